"""Python code in a model's text: fenced blocks, however they are fenced, or bare code between sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPENING = re.compile(
    r"(?P<indent>[ \t]*)(?:[-*>]\s+|\d+\.\s+)?(?P<fence>`{3,}|~{3,})[ \t]*(?P<tag>[\w+#.-]*)[ \t]*(?P<rest>[^`]*)"
)
_PYTHON = re.compile(r"(?:i?python|py)[\d.]*", re.IGNORECASE)
_STARTS_CODE = re.compile(
    r"from\s+[\w.]+\s+import\s+[\w*(]|import\s+[\w.]+(?:\s+as\s+\w+)?\s*(?:[,;#].*)?$|(?:async\s+)?def\s+\w+\s*\("
    r"|class\s+\w+\s*[:(]|@\w|[A-Za-z_]\w*(?:\s*:[^=]+)?\s*=[^=]|[)\]}]"
)
_DEFINES = re.compile(r"^\s*(?:(?:async\s+)?def|class)\s", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A piece of code. language: ``python``, the tag of another one, or the empty string where none is given."""

    source: str
    language: str
    fenced: bool = True


def code_blocks(text: str) -> list[Block]:
    """The code blocks of a text in their order; without any fence, the lines that look like Python are one block."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u00a0", " ")
    blocks = _fenced(text.split("\n"))
    if blocks:
        return [block for block in blocks if block.source.strip()]
    bare = _bare(text.strip("\n"))
    return [Block(bare, "", fenced=False)] if bare else []


def _fenced(lines: list[str]) -> list[Block]:
    blocks, rest = [], iter(lines)
    for line in rest:
        if opening := _OPENING.fullmatch(line):
            language = "python" if _PYTHON.fullmatch(opening["tag"]) else opening["tag"].lower()
            behind_tag = [opening["rest"]] if _STARTS_CODE.match(opening["rest"]) else []
            body = behind_tag + list(_until_closed(rest, opening["fence"]))
            # a block inside a list is indented as a whole
            blocks.append(Block("\n".join(line.removeprefix(opening["indent"]) for line in body), language))
    return blocks


def _until_closed(lines: Iterator[str], fence: str) -> Iterator[str]:
    """The lines up to the closing fence, which may be missing, or stand right behind the last statement."""
    for line in lines:
        stripped = line.strip()
        if len(stripped) >= len(fence) and not stripped.strip(fence[0]):
            return
        if stripped.endswith(fence) and stripped.count(fence) == 1:
            yield line.rstrip().removesuffix(fence)
            return
        yield line


def _bare(text: str) -> str:
    """A body that goes on where a prompt stops; or the lines that start or continue Python statements."""
    if text[:1] in (" ", "\t") and re.search(r"^\s+return\b", text, re.MULTILINE):
        return text
    kept, inside = [], False
    for line in text.split("\n"):
        inside = bool(_STARTS_CODE.match(line)) or (inside and line[:1] in ("", " ", "\t", "#"))
        if inside:
            kept.append(line)
    code = "\n".join(kept).strip("\n")
    return code if _DEFINES.search(code) else ""
