"""The report knows files: none of its modules names a library that runs models."""

from __future__ import annotations

import ast
from pathlib import Path

import lm_eval_latentmas.report

ALLOWED = {"agents", "conversation", "naming", "relay_probe"}  # of this package: plain data, no model


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0}


def test_no_module_of_the_report_runs_models() -> None:
    modules = sorted(Path(lm_eval_latentmas.report.__file__).parent.rglob("*.py"))
    assert len(modules) > 20
    for module in modules:
        for name in imported(module):
            top, _, rest = name.partition(".")
            assert top not in {"torch", "transformers", "lm_eval", "datasets"}, (module.name, name)
            assert top != "lm_eval_latentmas" or rest.partition(".")[0] in ALLOWED, (module.name, name)
