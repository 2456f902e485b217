"""(a) to (f) with random weights at Qwen3-4B's true shape, for whoever has a GPU: ``python -m benchmarks.gpu``.

Takes the arguments of ``python -m benchmarks``; it has not been run where this package is developed. ``--toy`` runs the
same paths, compiled step included, on a CPU in a minute.
"""

from __future__ import annotations

import sys

import torch

from benchmarks import __main__ as benchmarks


def main(arguments: list[str]) -> None:
    """Measure on the GPU, or say why not."""
    if "--toy" not in arguments:
        if not torch.cuda.is_available():
            sys.exit("benchmarks.gpu: PyTorch finds no CUDA device; --toy runs the same paths on a CPU")
        arguments = ["--gpu", *arguments]
    benchmarks.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
