"""`latentmas-obf score`: saved answers graded again, without a model, one line each with the verdict and the reason."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack

from lm_eval_latentmas.benchmarks import BENCHMARKS
from lm_eval_latentmas.naming import nearest
from lm_eval_latentmas.scoring.consent import check_consent
from lm_eval_latentmas.scoring.saved import grade_saved, read_saved

_EXAMPLES = """\
examples:
  latentmas-obf score --task latentmas_gsm8k answers.jsonl
  latentmas-obf score --task latentmas_mbpp_plus --confirm_run_unsafe_code out/*/samples_latentmas_mbpp_plus_*.jsonl

A line is {"doc": <row of the data set>, "response": "<text>"}, or one of a samples file of lm-eval --log_samples.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``score``."""
    parser.description, parser.epilog = __doc__.partition(": ")[2], _EXAMPLES
    parser.add_argument("answers", nargs="+", metavar="FILE", help="saved answers, as JSON lines")
    parser.add_argument("--task", required=True, help="the task that they answer, such as latentmas_gsm8k")
    parser.add_argument("--output", metavar="FILE", help="where the lines go; to standard output without it")
    parser.add_argument("--confirm_run_unsafe_code", action="store_true", help="your consent to run the answers' code")


def run(arguments: argparse.Namespace) -> int:
    """Grade the files; the lines go to the output, a summary of them to standard error."""
    benchmark = arguments.task.removeprefix("latentmas_")
    if benchmark not in BENCHMARKS:
        raise ValueError(
            f"unknown task {nearest(f'latentmas_{benchmark}', [f'latentmas_{name}' for name in BENCHMARKS])}"
        )
    check_consent([f"latentmas_{benchmark}"], arguments.confirm_run_unsafe_code)
    total = correct = unanswered = 0
    files = [(path, read_saved(path, benchmark)) for path in arguments.answers]
    with ExitStack() as stack:
        output = arguments.output
        lines = stack.enter_context(open(output, "w", encoding="utf-8")) if output else sys.stdout
        for path, saved in files:
            for graded in grade_saved(benchmark, saved):
                # plain ASCII holds in any locale, and a lone surrogate does no harm
                print(json.dumps({"file": str(path), **graded}), file=lines)
                total += 1
                correct += graded["correct"]
                unanswered += graded["verdict"] == "no answer"
    print(
        f"{total} responses: {correct} correct ({correct / total:.4f}), {unanswered} without an answer", file=sys.stderr
    )
    return 0
