"""From the code blocks of an answer to one program: the asked function, what it needs, and nothing that acts by itself.

Works on syntax trees and symbol tables, and never runs anything.
"""

from __future__ import annotations

import ast
import symtable
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from lm_eval_latentmas.scoring.code_blocks import code_blocks


@dataclass(frozen=True)
class Program:
    """A program's source, and the rule by which it was found."""

    source: str
    rule: str


def find_program(text: str, entry_point: str) -> Program | None:
    """The program in a text that defines ``entry_point``; None if the text has no code.

    The last block that defines the function counts. Statements of it and of earlier blocks that the function needs
    (imports, helpers, constants) come along; example calls, tests and main guards do not. Code without the function,
    or that does not parse, is handed on as it is: a body that goes on from the prompt, or an error to be judged.
    """
    blocks = code_blocks(text)
    ours = [block for block in blocks if block.language in ("python", "")]
    for candidates in (ours, blocks):
        parsed = [_statements(block.source) for block in candidates]
        for index in range(len(parsed) - 1, -1, -1):
            if (name := _provider(parsed[index], entry_point)) is not None:
                alias = "" if name == entry_point else f"{entry_point} = {name}().{entry_point}\n"
                source = "\n\n".join(_needed(parsed[: index + 1], name)) + "\n"
                return Program(source + alias, "fenced" if candidates[index].fenced else "bare")
    if not ours:
        return None
    best = next((block for block in reversed(ours) if block.language), ours[-1])
    return Program(best.source, "code without the function")


@dataclass(frozen=True)
class _Statement:
    """A statement at the margin. binds: names it defines; uses: names it reads that are not its own."""

    source: str
    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]


def _statements(source: str) -> list[_Statement]:
    """The statements of a block; an answer may stop in mid-line or run on in prose, so the end may have to go."""
    if source[:1] in (" ", "\t"):
        source = textwrap.dedent(source)
    lines = source.split("\n")
    margins = [index for index, line in enumerate(lines) if index and line[:1].strip()]
    for end in [len(lines), *margins[:-21:-1]]:
        kept = "\n".join(lines[:end])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes are the model's business
                return [_statement(kept, node) for node in ast.parse(kept).body]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # not Python up to here
    return []


def _statement(source: str, node: ast.stmt) -> _Statement:
    text = ast.get_source_segment(source, node) or ""
    decorators = getattr(node, "decorator_list", [])
    if decorators:
        text = "\n".join(source.split("\n")[decorators[0].lineno - 1 : node.end_lineno])
    table = symtable.symtable(text, "answer", "exec")
    binds = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    return _Statement(text, node, frozenset(binds), frozenset(_free_names(table)))


def _free_names(table: symtable.SymbolTable) -> Iterator[str]:
    module = table.get_type() == "module"
    yield from (s.get_name() for s in table.get_symbols() if s.is_referenced() and (module or s.is_global()))
    for child in table.get_children():
        yield from _free_names(child)


def _provider(statements: list[_Statement], entry_point: str) -> str | None:
    """The name at the margin that provides the function: its own, or that of the class it is a method of."""
    if any(entry_point in statement.binds for statement in statements):
        return entry_point
    classes = [statement.node for statement in statements if isinstance(statement.node, ast.ClassDef)]
    holders = (c.name for c in classes if any(getattr(part, "name", None) == entry_point for part in c.body))
    return next(holders, None)


def _needed(blocks: list[list[_Statement]], name: str) -> list[str]:
    """The sources of the statements that ``name`` needs, in order; a later block's definitions hide earlier ones."""
    wanted, kept = {name}, []
    for statements in reversed(blocks):
        chosen = _closure(statements, wanted, name)
        kept = [statement.source for statement in chosen] + kept
        wanted = wanted.union(*(s.uses for s in chosen)) - {own for s in chosen for own in s.binds}
    futures = [source for source in kept if source.startswith("from __future__")]
    return futures + [source for source in kept if source not in futures]


def _closure(statements: list[_Statement], names: set[str], entry_point: str) -> list[_Statement]:
    """The statements that define ``names``, those that define what these use, and those that fill their data."""
    wanted, data, chosen = set(names), set(), set()
    while True:
        more = [
            index
            for index, statement in enumerate(statements)
            if index not in chosen and (_defines(statement, wanted) or _fills(statement, data, wanted, entry_point))
        ]
        if not more:
            return [statements[index] for index in sorted(chosen)]
        for index in more:
            chosen.add(index)
            wanted |= statements[index].uses
            if isinstance(statements[index].node, ast.Assign | ast.AnnAssign):
                data |= statements[index].binds


def _defines(statement: _Statement, wanted: set[str]) -> bool:
    node = statement.node
    if isinstance(node, ast.If) and "__name__" in statement.uses:
        return False  # a main guard
    always = isinstance(node, ast.ImportFrom) and (node.module == "__future__" or node.names[0].name == "*")
    return always or bool(statement.binds & wanted)


def _fills(statement: _Statement, data: set[str], wanted: set[str], entry_point: str) -> bool:
    """Whether a statement changes wanted data (``table.append(1)``, ``f.cache = {}``) or a limit of ``sys``.

    What calls the function itself is an example or a test.
    """
    if isinstance(statement.node, ast.Assert) or (isinstance(statement.node, ast.If) and "__name__" in statement.uses):
        return False
    for part in ast.walk(statement.node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            owner = _owner(part.func)
            if owner == "sys" and part.func.attr.startswith("set"):
                return True
            if owner in data and entry_point not in statement.uses:
                return True
        elif isinstance(part, ast.Attribute | ast.Subscript) and isinstance(part.ctx, ast.Store):
            if _owner(part) in data | wanted:
                return True
        elif isinstance(part, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            return False  # writes only when it is called
    return False


def _owner(part: ast.expr) -> str | None:
    while isinstance(part, ast.Attribute | ast.Subscript):
        part = part.value
    return part.id if isinstance(part, ast.Name) else None
