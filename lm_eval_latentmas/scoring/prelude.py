"""Completes an extracted program with what the prompt has already given: imports, helpers, and a function's head."""

from __future__ import annotations

import ast
import re
import textwrap

#: Annotations name these without importing them; the function is no less right.
_TYPING = "from typing import *\n"


def complete(code: str, prompt: str, entry_point: str) -> str:
    """The program to be tested: the prompt's prelude and ``code``, or the prompt itself if ``code`` is its body."""
    head = re.search(rf"^(?:async\s+)?def\s+{re.escape(entry_point)}\b", prompt, re.MULTILINE)
    if head and _continues(code, entry_point):
        return f"{_TYPING}\n{prompt.rstrip()}\n{code}\n"
    future, rest = _part_future(textwrap.dedent(code))
    return f"{future}{_TYPING}{prompt[: head.start()] if head else ''}\n{rest}\n"


def _continues(code: str, entry_point: str) -> bool:
    first = next(filter(str.strip, code.split("\n")), "")
    return first[:1] in (" ", "\t") and not re.search(rf"\bdef\s+{re.escape(entry_point)}\b", code)


def _part_future(code: str) -> tuple[str, str]:
    """Imports from ``__future__``, which must come before everything else, and the code without them."""
    try:
        nodes = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # an error of the program, found when it runs
        return "", code
    lines = code.split("\n")
    future = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    taken = {number for node in future for number in range(node.lineno - 1, (node.end_lineno or node.lineno))}
    kept = [line for number, line in enumerate(lines) if number not in taken]
    return "".join(f"{ast.unparse(node)}\n" for node in future), "\n".join(kept)
