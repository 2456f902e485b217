"""Checks on real rows, too long for the suite: ``python tests/scoring/check_shared_data.py FOLDER``.

FOLDER holds ``humaneval_plus.jsonl`` and ``mbpp_plus.jsonl`` in the layout of EvalPlus's release, any number of rows.
References: every reference solution passes twice, with 16 workers while all CPUs are busy. Constants: a function that
returns the value printed in the prompt fails. Agreement: ``evalplus.evaluate`` gives the same result, task by task, to
references and to mutants of them.
"""

from __future__ import annotations

import ast
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from mutants import mutants

from lm_eval_latentmas.scoring.evalplus import write_samples
from lm_eval_latentmas.scoring.evalplus_grade import Grade, grade
from lm_eval_latentmas.scoring.evalplus_problem import Problem
from lm_eval_latentmas.scoring.samples_file import keep_samples_in
from lm_eval_latentmas.scoring.sandbox import Sandbox

FILES = {"humaneval": "humaneval_plus.jsonl", "mbpp": "mbpp_plus.jsonl"}
MUTANTS = 4  # per problem


def main(folder: Path) -> None:
    """Run all checks and print what they found."""
    problems = {
        name: [Problem.from_doc(json.loads(line)) for line in lines(folder / file)] for name, file in FILES.items()
    }
    every = [problem for several in problems.values() for problem in several]
    for attempt in ("first", "second"):
        with busy_cpus():
            grades = grade_all(every, [[reference(problem)] for problem in every], workers=16)
        report(f"references, {attempt} time", every, [each for [each] in grades], wanted=True)
    printed = [(problem, program) for problem in every for program in constant_from_prompt(problem)]
    grades = grade_all([problem for problem, _ in printed], [[program] for _, program in printed])
    report("constants from the prompt", [problem for problem, _ in printed], [each for [each] in grades], wanted=False)
    for name, several in problems.items():
        programs = [[reference(problem), *some_mutants(problem)] for problem in several]
        compare(name, folder / FILES[name], several, grade_all(several, programs))


def lines(path: Path) -> list[str]:
    """The lines of a file of rows."""
    return path.read_text(encoding="utf-8").splitlines()


def grade_all(
    problems: Sequence[Problem], programs: Sequence[list[str]], workers: int | None = None
) -> list[list[Grade]]:
    """The grades of several programs a problem, as many problems at a time as there are workers."""
    sandbox = Sandbox(workers=1 if workers else None)
    with ThreadPoolExecutor(workers or sandbox.workers) as threads:
        return list(threads.map(lambda pair: grade(*pair, sandbox), zip(problems, programs, strict=True)))


def reference(problem: Problem) -> str:
    """The reference solution as a program."""
    return problem.prompt + problem.canonical_solution


def some_mutants(problem: Problem) -> list[str]:
    """A few mutants of the reference, always the same ones."""
    found = list(mutants(reference(problem)))
    return random.Random(problem.task_id).sample(found, min(MUTANTS, len(found)))


def constant_from_prompt(problem: Problem) -> Iterator[str]:
    """A function that returns the first result which the prompt's examples or assertions print."""
    printed = problem.prompt.splitlines()
    after = [following.strip() for line, following in pairwise(printed) if line.strip().startswith(">>>")]
    asserted = [line.partition("==")[2].strip() for line in printed if line.strip().startswith("assert")]
    for text in after + asserted:
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            continue
        yield f"def {problem.entry_point}(*arguments):\n    return {value!r}\n"
        return


@contextmanager
def busy_cpus() -> Iterator[None]:
    """Keeps every CPU busy with something else."""
    burners = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(os.cpu_count() or 1)]
    for burner in burners:
        burner.start()
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()


def _burn() -> None:
    while True:
        pass


def report(name: str, problems: Sequence[Problem], grades: Sequence[Grade], wanted: bool) -> None:
    """Print how many grades are as wanted, and each that is not."""
    others = [(p.task_id, g.verdict, g.reason) for p, g in zip(problems, grades, strict=True) if g.passed is not wanted]
    print(f"{name}: {len(grades) - len(others)} of {len(grades)} {'pass' if wanted else 'fail'}", *others, sep="\n  ")
    assert not others


def compare(name: str, data: Path, problems: Sequence[Problem], grades: Sequence[Sequence[Grade]]) -> None:
    """Grade the same programs by ``evalplus.evaluate`` and print where it disagrees."""
    rows = [
        [{"task_id": problem.task_id, "solution": each.program} for each in several]
        for problem, several in zip(problems, grades, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        keep_samples_in(folder)
        samples = write_samples(rows)
        theirs = run_evalplus(name, data, samples, folder)
    differing, both, passed = [], 0, 0
    for problem, several in zip(problems, grades, strict=True):
        for ours, other in zip(several, theirs[problem.task_id], strict=True):
            both, passed = both + 1, passed + ours.passed
            same = [(ours.base == "passed"), (ours.plus == "passed")] == [
                other["base_status"] == "pass",
                other["plus_status"] == "pass",
            ]
            if not same:
                differing.append(
                    (problem.task_id, ours.base, ours.plus, ours.reason, other["base_status"], other["plus_status"])
                )
    print(
        f"agreement on {name}: {both - len(differing)} of {both} programs ({passed} of them pass)",
        *differing,
        sep="\n  ",
    )
    assert not differing


def run_evalplus(name: str, data: Path, samples: str, cache: str) -> dict[str, list[dict[str, str]]]:
    """``evalplus.evaluate`` in a process of its own, on a data file of any subset: its results by task."""
    override = {f"{name.upper()}_OVERRIDE_PATH": str(data), "XDG_CACHE_HOME": cache}
    command = [sys.executable, "-m", "evalplus.evaluate", "--dataset", name, "--samples", samples]
    subprocess.run(command, env=os.environ | override, check=True, capture_output=True)
    return json.loads(Path(samples.replace(".jsonl", "_eval_results.json")).read_text())["eval"]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
