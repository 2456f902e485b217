"""Build hook: the ``.pth`` files, which Python runs at every start and which hatchling has no setting for."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StartupFiles(BuildHookInterface):
    """Writes each script of ``startup/`` into a ``.pth`` file at the top of site-packages.

    The scripts stand in the files themselves, because importing a module would cost an unrelated process its time.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a build; ``version`` is ``standard`` or ``editable``."""
        self._written = TemporaryDirectory()
        if version == "editable":
            included = build_data["force_include_editable"]
            self._include(included, "find-checkout", "_lm_eval_latentmas_checkout.pth", CHECKOUT=self.root)
        else:
            included = build_data["force_include"]
        self._include(included, "wait-for-lm-eval", "lm_eval_latentmas.pth")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling after a build."""
        self._written.cleanup()

    def _include(self, included: dict[str, str], script: str, name: str, **names: str) -> None:
        source = Path(self.root, "startup", f"{script}.py").read_text(encoding="utf-8")
        file = Path(self._written.name, name)
        # one line that starts with "import" is what Python runs, any other it takes for a folder
        file.write_text(f"import sys; exec({source!r}, {dict(names, __name__=name)!r})\n", encoding="utf-8")
        included[str(file)] = name
