"""Build hook: puts the start-up files of ``startup/`` into wheels, and what an editable install needs besides."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StartupFiles(BuildHookInterface):
    """Adds the ``.pth`` files, which the wheel target has no setting for, at the top of site-packages."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a build; ``version`` is ``standard`` or ``editable``."""
        editable = version == "editable"
        names = ["lm_eval_latentmas.pth"] + ["_lm_eval_latentmas_checkout.pth"] * editable
        included = build_data["force_include_editable" if editable else "force_include"]
        included.update({f"startup/{name}": name for name in names})
