"""``python -m benchmarks``: measure, print tables, write JSON. Let nothing else run meanwhile."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import time
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import torch

from benchmarks.sizes import BY_NAME

BENCHMARKS = {"a": "compression", "b": "chain", "c": "decoding", "d": "memory", "e": "agents"}

_THREADING = ("OMP_", "GOMP_", "MKL_", "KMP_")


def machine() -> dict[str, object]:
    """What figures depend on beside the code."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "environment": {
            name: value for name, value in os.environ.items() if name.startswith(("OMP_", "GOMP_", "MKL_", "KMP_"))
        },
        "versions": {name: metadata.version(name) for name in ("torch", "transformers", "lm-eval-latentmas")},
    }


def main() -> None:
    """Run the benchmarks that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default="a,b,c,d,e", help="comma-separated letters (default: %(default)s)")
    parser.add_argument("--rounds", type=int, help="of every comparison (default: 5; in --toy 2)")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results.json"), help="(default: %(default)s)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_const", const="quick", dest="size", help="about twenty minutes")
    size.add_argument("--toy", action="store_const", const="toy", dest="size", help="seconds; measures nothing")
    given = parser.parse_args()
    sizes = BY_NAME[given.size or "full"]
    if given.rounds is not None:
        sizes = replace(sizes, rounds=given.rounds)
    found = {"machine": machine(), "size": sizes.name, "rounds": sizes.rounds, "tables": {}}
    for letter in given.only.split(","):
        if letter not in BENCHMARKS:
            parser.error(f"--only {letter}: known are {', '.join(BENCHMARKS)}")
        started = time.perf_counter()
        table = importlib.import_module(f"benchmarks.{BENCHMARKS[letter]}").run(sizes)
        print(f"\n{table}\n\n{time.perf_counter() - started:.0f} s\n", flush=True)
        found["tables"][letter] = table.as_dict()
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
