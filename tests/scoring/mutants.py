"""Wrong, and now and then still right, versions of a program: one operator, constant, comparison or result changed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv}
_COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}


def mutants(source: str) -> Iterator[str]:
    """Every version of ``source`` that differs from it in one place."""
    for index in range(len(list(ast.walk(ast.parse(source))))):
        tree = ast.parse(source)
        if _mutate(list(ast.walk(tree))[index]):
            yield ast.unparse(ast.fix_missing_locations(tree))


def _mutate(node: ast.AST) -> bool:
    """Change one node; False where there is nothing to change in it."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        node.op = _OPERATORS[type(node.op)]()
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        node.ops[0] = _COMPARISONS[type(node.ops[0])]()
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1
    elif isinstance(node, ast.Return) and node.value is not None:
        node.value = ast.Call(ast.Name("list", ast.Load()), [ast.List([node.value], ast.Load())], [])
    else:
        return False
    return True
