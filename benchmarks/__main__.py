"""``python -m benchmarks``: measure, print tables, write JSON. Let nothing else run meanwhile."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path

import torch

from benchmarks.sizes import BY_NAME, Sizes

BENCHMARKS = {"a": "compression", "b": "chain", "c": "decoding", "d": "memory", "e": "agents", "f": "link"}

_THREADING = ("OMP_", "GOMP_", "MKL_", "KMP_")


def machine() -> dict[str, object]:
    """What figures depend on beside the code."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "load": os.getloadavg()[0],
        "environment": {name: value for name, value in os.environ.items() if name.startswith(_THREADING)},
        "versions": {name: metadata.version(name) for name in ("torch", "transformers", "lm-eval-latentmas")},
    }


def _counts(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default="a,b,c,d,e,f", help="comma-separated letters (default: %(default)s)")
    parser.add_argument("--models", help="some of the size's models, for (b); (c), (d) and (e) take the first")
    parser.add_argument("--batches", type=_counts, metavar="ROWS,ROWS", help="rows side by side in (b) and (d)")
    parser.add_argument(
        "--skew",
        type=_counts,
        metavar="BATCHES,MEAN,CAP",
        help="answers of skewed length in (b) and (d); 0: none in (b)",
    )
    parser.add_argument("--rounds", type=int, help="of every comparison (default: 5; with --toy 2)")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results.json"), help="(default: %(default)s)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_const", const="quick", dest="size", help="about an hour on two cores")
    size.add_argument("--toy", action="store_const", const="toy", dest="size", help="seconds; measures nothing")
    size.add_argument("--gpu", action="store_const", const="gpu", dest="size", help="Qwen3-4B's shape in bfloat16")
    given = parser.parse_args(arguments)
    letters = given.only.split(",")
    if unknown := set(letters) - set(BENCHMARKS):
        parser.error(f"--only {', '.join(sorted(unknown))}: known are {', '.join(BENCHMARKS)}")
    sizes = BY_NAME[given.size or "full"]
    if given.models is not None:
        names = given.models.split(",")
        if unknown := set(names) - set(sizes.models):
            parser.error(f"--models {', '.join(sorted(unknown))}: of this size are {', '.join(sizes.models)}")
        sizes = replace(sizes, models={name: sizes.models[name] for name in names})
    if given.skew and given.skew != (0,) and len(given.skew) != 3:
        parser.error(f"--skew {','.join(map(str, given.skew))}: give batches, mean and cap, or 0")
    changes = {"rounds": given.rounds, "batches": given.batches, "skew": given.skew and (given.skew * 3)[:3]}
    sizes = replace(sizes, **{name: value for name, value in changes.items() if value is not None})
    measure(letters, sizes, given.json)


def measure(letters: Sequence[str], sizes: Sizes, path: Path) -> None:
    """Print every table as it is done, and keep all of them in one file."""
    found = {"machine": machine(), "size": sizes.name, "sizes": asdict(sizes), "tables": {}}
    for letter in letters:
        started = time.perf_counter()
        table = importlib.import_module(f"benchmarks.{BENCHMARKS[letter]}").run(sizes)
        print(f"\n{table}\n\n{time.perf_counter() - started:.0f} s\n", flush=True)
        found["tables"][letter] = table.as_dict()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
