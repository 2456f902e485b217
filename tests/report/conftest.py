"""Writes small results and samples files in lm-eval's layout, for arms, seeds and scores of a test's choosing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest


def sample_row(task: str, doc_id: int, score: Any, **changes: Any) -> dict[str, Any]:
    question, target = f"{task} question {doc_id}", f"target {doc_id}"
    row = {
        "doc_id": doc_id,
        "doc": {"question": question},
        "target": target,
        "arguments": {"gen_args_0": {"arg_0": f"Q: {question}", "arg_1": {"until": []}}},
        "resps": [[f"the answer is {doc_id}"]],
        "filtered_resps": [str(doc_id)],
        "filter": "none",
        "metrics": ["exact_match"],
        "doc_hash": f"doc {question}",
        "prompt_hash": f"prompt {question}",
        "target_hash": f"hash {target}",
        "exact_match": score,
    }
    return row | changes


def relay_columns(scores: Sequence[Any], *, relay_bytes: int, compression: float) -> dict[str, list]:
    documents = range(len(scores))
    return {
        "doc_id": list(documents),
        "repeat": [0 for _ in documents],
        "prompt_tokens": [500 + 2 * d for d in documents],
        "kept_states": [100.0 for _ in documents],
        "latent_passes": [120 for _ in documents],
        "decoded_tokens": [40 + d for d in documents],
        "relay_bytes": [[relay_bytes, 2 * relay_bytes, 3 * relay_bytes] for _ in documents],
        "truncated": [d == 0 for d in documents],
        "clamped": [False for _ in documents],
        "seconds": [{"latent": 1.0, "compression": compression, "decoding": 3.0} for _ in documents],
    }


@pytest.fixture
def dummy_folder() -> Path:
    """Files that lm-eval 0.4.13 wrote for its dummy model."""
    return Path(__file__).parent / "fixtures" / "dummy"


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., Path]:
    """Write one run: ``write_run({"sums": [1, 0, 1]}, compressor="h-obf", seed=4)`` returns its results file."""
    minutes = count()

    def write(
        scores: dict[str, Sequence[Any]],
        *,
        folder: str = "out",
        seed: int = 0,
        version: float = 1.0,
        relay_bytes: int | None = None,
        compression: float = 0.1,
        edit: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda row: row,
        **arguments: Any,
    ) -> Path:
        stamp = f"2026-01-01T10-{next(minutes):02d}-00.000000"
        place = tmp_path / folder
        place.mkdir(parents=True, exist_ok=True)
        config: dict[str, Any] = {
            "model": "latentmas-obf",
            "model_args": arguments | {"seed": seed},
            "torch_seed": 1234,
        }
        if relay_bytes is not None:
            columns = {t: relay_columns(s, relay_bytes=relay_bytes, compression=compression) for t, s in scores.items()}
            settings = {"kv_budget": 32, "pca_rank": None} | arguments
            relay = {name: settings.pop(name) for name in ("kv_budget", "pca_rank")}
            config["latentmas"] = {
                "chain": {"compressor": "full", "latent_steps": 40} | settings | {"hand_off": relay, "seed": seed},
                "loading": {"pretrained": "/models/tiny", "batch_size": "4"},
                "model": {"fingerprint": "0123", "max_length": 2048},
                "samples": columns,
                "summary": {},
            }
        numbers = {t: [v for v in s if isinstance(v, int | float)] for t, s in scores.items()}
        results = {
            "results": {
                t: {"alias": t, "exact_match,none": sum(n) / len(n) if n else None, "exact_match_stderr,none": 0.1}
                for t, n in numbers.items()
            },
            "configs": {t: {"task": t, "metric_list": [{"metric": "exact_match"}]} for t in scores},
            "versions": dict.fromkeys(scores, version),
            "n-samples": {t: {"original": len(s), "effective": len(s)} for t, s in scores.items()},
            "higher_is_better": {t: {"exact_match": True} for t in scores},
            "config": config,
        }
        for task, values in scores.items():
            rows = [edit(sample_row(task, doc_id, value)) for doc_id, value in enumerate(values)]
            text = "".join(json.dumps(row) + "\n" for row in rows if row is not None)
            (place / f"samples_{task}_{stamp}.jsonl").write_text(text, encoding="utf-8")
        path = place / f"results_{stamp}.json"
        path.write_text(json.dumps(results), encoding="utf-8")
        return path

    return write
