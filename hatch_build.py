"""Build hook: the ``.pth`` file, which Python runs at every start and which hatchling has no setting for."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StartupFile(BuildHookInterface):
    """Writes the script of ``startup/`` into a ``.pth`` file at the top of site-packages.

    The script stands in the file itself, because importing a module would cost unrelated processes more time.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a build; ``version`` is ``standard`` or ``editable``."""
        editable = version == "editable"
        source = Path(self.root, "startup", "lm_eval_latentmas.pth.py").read_text(encoding="utf-8")
        names = {"__name__": "lm_eval_latentmas.pth", "CHECKOUT": self.root if editable else None}
        self._folder = TemporaryDirectory()
        file = Path(self._folder.name, names["__name__"])
        # one line that starts with "import" is what Python runs, any other it takes for a folder
        file.write_text(f"import sys; exec({source!r}, {names!r})\n", encoding="utf-8")
        build_data["force_include_editable" if editable else "force_include"][str(file)] = file.name

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling after a build."""
        self._folder.cleanup()
