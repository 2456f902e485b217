"""``make demo``: the package's own small task with the full relay and with h-obf, side by side."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

ROWS = (
    ("score", lambda r: f"{r['score']:.2f}"),
    ("relay, KiB per question", lambda r: f"{r['relay_bytes'] / 1024:,.0f}"),
    ("prompt tokens, L", lambda r: f"{r['L']:.0f}"),
    ("prompt states kept, rho", lambda r: f"{100 * r['rho']:.1f} %"),
    ("latent passes", lambda r: f"{r['latent_passes']:,}"),
    ("decoded tokens", lambda r: f"{r['decoded_tokens']:,}"),
    ("answers cut off", lambda r: f"{r['truncated']} of {r['samples']}"),
    ("seconds thinking", lambda r: f"{r['seconds']['latent']:.1f}"),
    ("seconds compressing", lambda r: f"{r['seconds']['compression']:.2f}"),
    ("seconds decoding", lambda r: f"{r['seconds']['decoding']:.1f}"),
)


def run(
    compressors: Sequence[str], *, task: str, batch_size: int, limit: int | None = None
) -> dict[str, dict[str, Any]]:
    """Evaluate the embedded model on a task once per compressor, over one loaded model; summary and score of each."""
    import lm_eval

    from lm_eval_latentmas.model import LatentMASLM

    found: dict[str, dict[str, Any]] = {}
    loaded: dict[str, Any] = {}
    for name in compressors:
        lm = LatentMASLM(compressor=name, batch_size=batch_size, device="cpu", **loaded)
        loaded = {"pretrained": lm.model, "tokenizer": lm.tokenizer}
        results = lm_eval.simple_evaluate(model=lm, tasks=[task], limit=limit, bootstrap_iters=0)
        summary = results["config"]["latentmas"]["summary"][task] if "latentmas" in results["config"] else {}
        found[name] = summary | {"score": _score(results["results"][task])}
    return found


def _score(metrics: dict[str, Any]) -> float:
    """The task's first metric, whatever it is called."""
    return next(
        value
        for key, value in metrics.items()
        if isinstance(value, float) and key.split(",")[0] in ("acc", "exact_match", "pass@1")
    )


def table(results: dict[str, dict[str, Any]]) -> str:
    """The results as text, one column per compressor."""
    width = max(len(label) for label, _ in ROWS) + 2
    lines = ["".ljust(width) + "".join(name.rjust(14) for name in results)]
    lines += [label.ljust(width) + "".join(show(r).rjust(14) for r in results.values()) for label, show in ROWS]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demo and print its table."""
    parser = argparse.ArgumentParser(prog="python -m lm_eval_latentmas.demo", description=__doc__)
    parser.add_argument("--compressors", default="full,h-obf", help="comma-separated (default: %(default)s)")
    parser.add_argument("--task", default="latentmas_demo", help="(default: %(default)s)")
    parser.add_argument("--batch_size", type=int, default=10, help="questions side by side (default: %(default)s)")
    parser.add_argument("--limit", type=int, help="only the first so many questions")
    given = parser.parse_args(arguments)
    results = run(given.compressors.split(","), task=given.task, batch_size=given.batch_size, limit=given.limit)
    print(f"\n{given.task}, SmolLM2-135M-Instruct on the CPU\n\n{table(results)}")


if __name__ == "__main__":
    main()
