"""One problem of MBPP+ or HumanEval+ as EvalPlus releases it, and EvalPlus's rule for comparing two results of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

#: The releases that the fields and special cases here belong to.
RELEASES = {"HumanEval": "HumanEval+ v0.1.10", "Mbpp": "MBPP+ v0.2.0"}
_FIELDS = ("task_id", "prompt", "entry_point", "canonical_solution", "base_input", "plus_input", "atol")
Suite = Literal["base", "plus"]


@dataclass(frozen=True)
class Problem:
    """A problem with its inputs restored to the types that its solutions expect.

    base_input, plus_input: one list of positional arguments per test.
    atol: absolute tolerance for numbers; 0 where results must be equal, floats excepted.
    digest: SHA-256 of all that a verdict depends on, as hexadecimal text.
    """

    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    base_input: list[Any]
    plus_input: list[Any]
    atol: float
    digest: str

    @classmethod
    def from_doc(cls, doc: Mapping[str, Any]) -> Problem:
        """The problem in a row of EvalPlus's release files; inputs may also be given as JSON text.

        Raises ValueError where the row is of another layout, such as that of EvalPlus's data sets on the Hub.
        """
        task_id = str(doc.get("task_id"))
        missing = [name for name in _FIELDS if name not in doc]
        if missing or task_id.partition("/")[0] not in RELEASES:
            raise ValueError(
                f"{task_id}: not a row of EvalPlus's release files ({', '.join(RELEASES.values())}); "
                f"missing: {', '.join(missing) or 'a known task_id'}; given: {', '.join(doc)}"
            )
        row = {name: doc[name] for name in _FIELDS}
        for name in ("base_input", "plus_input"):
            inputs = json.loads(row[name]) if isinstance(row[name], str) else row[name]
            row[name] = list(inputs)  # Mbpp/793 has an empty object in place of an empty list
        digest = hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()
        restored = {name: _restored(task_id, row[name]) for name in ("base_input", "plus_input")}
        return cls(**row | restored, digest=digest)

    @property
    def release(self) -> str:
        """The release of which this is a row, by its layout and name; `digest` tells whether it was changed."""
        return RELEASES[self.task_id.partition("/")[0]]

    @property
    def dataset(self) -> Literal["humaneval", "mbpp"]:
        """EvalPlus's name of the benchmark."""
        return "mbpp" if self.task_id.startswith("Mbpp/") else "humaneval"

    def inputs(self, suite: Suite) -> list[Any]:
        """The inputs of the ``base`` tests or of those that EvalPlus added."""
        return self.base_input if suite == "base" else self.plus_input

    @property
    def collect(self) -> Literal["value", "iterate", "not_none"]:
        """What has to be known of a result for EvalPlus's comparison."""
        from evalplus.eval._special_oracle import MBPP_OUTPUT_NOT_NONE_TASKS, MBPP_OUTPUT_SET_EQ_TASKS

        if self.dataset == "mbpp" and self.entry_point in MBPP_OUTPUT_NOT_NONE_TASKS:
            return "not_none"
        return "iterate" if self.dataset == "mbpp" and self.entry_point in MBPP_OUTPUT_SET_EQ_TASKS else "value"


def _restored(task_id: str, inputs: list[Any]) -> list[Any]:
    if not task_id.startswith("Mbpp/"):
        return inputs
    from evalplus.data.mbpp import mbpp_deserialize_inputs

    return mbpp_deserialize_inputs(task_id, inputs)


def first_wrong(problem: Problem, suite: Suite, outputs: Sequence[Any], expected: Sequence[Any]) -> int | None:
    """The index of the first output that EvalPlus's rule rejects, None if it accepts all of them.

    outputs: results in the order of the inputs; there may be fewer.
    expected: the reference solution's results.
    """
    atol = problem.atol
    for index, (arguments, output, wanted) in enumerate(zip(problem.inputs(suite), outputs, expected, strict=False)):
        try:
            accepted, atol = _accepts(problem, arguments, output, wanted, atol)
        except (
            TypeError,
            ValueError,
            ArithmeticError,
            LookupError,
            AttributeError,
            RecursionError,
        ):  # results that do not compare are not equal
            accepted = False
        if not accepted:
            return index
    return None


def _accepts(problem: Problem, arguments: Any, output: Any, wanted: Any, atol: float) -> tuple[bool, float]:
    """Whether an output is right, and the tolerance for later inputs: after a float EvalPlus leaves it at 1e-6."""
    import numpy
    from evalplus.eval import is_floats
    from evalplus.eval._special_oracle import _poly

    if problem.dataset == "humaneval" and problem.entry_point == "find_zero":
        # EvalPlus 0.3.1 does not count these results after it has accepted them, and so fails every program
        return bool(abs(_poly(*arguments, output)) <= atol), atol
    equal = _equal(problem, arguments, output, wanted, atol)
    if atol == 0 and is_floats(wanted):
        atol = 1e-6
    if equal or atol == 0:
        return bool(equal), atol
    if type(output) is not type(wanted) or (isinstance(wanted, (list, tuple)) and len(output) != len(wanted)):
        return False, atol
    return bool(numpy.allclose(output, wanted, rtol=1e-07, atol=atol)), atol


def _equal(problem: Problem, arguments: Any, output: Any, wanted: Any, atol: float) -> Any:
    """Equality, or what EvalPlus takes for it in some tasks of MBPP+."""
    from evalplus.eval import _special_oracle as special

    name = problem.entry_point
    if problem.dataset != "mbpp":
        return output == wanted
    if name in special.MBPP_OUTPUT_SET_EQ_TASKS:
        return set(output) == set(wanted)
    if name == "are_equivalent":
        return True
    if output == wanted:
        return True
    if name == "sum_div":
        return output == 0
    if name == "surface_Area":
        return abs(output - special._surface_Area(*arguments)) <= atol
    if name == "digit_distance_nums":
        return output == special._digit_distance_nums(*arguments)
    return False
