"""Grades of code answers: EvalPlus's verdicts, from the first text to the metrics of a run."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import hostile
import pytest
from evalplus.eval import untrusted_check
from evalplus_rows import DOUBLED, MATCHES, POLYNOMIAL, PROGRAMS, ROOT, SHARED, row

from lm_eval_latentmas.records import Record, Response
from lm_eval_latentmas.scoring import consent, evalplus, evalplus_expected
from lm_eval_latentmas.scoring.evalplus_expected import expected
from lm_eval_latentmas.scoring.evalplus_grade import SUITES, grade
from lm_eval_latentmas.scoring.evalplus_problem import Problem
from lm_eval_latentmas.scoring.sandbox import Limits, Sandbox, SandboxError


@pytest.fixture(scope="module")
def sandbox():
    return Sandbox(workers=4)


@pytest.fixture(autouse=True, scope="module")
def kept_apart(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LATENTMAS_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("EVALPLUS_MAX_MEMORY_BYTES", "-1")  # of a fork of this process, which holds more than a program
        yield


def reference(problem: Problem) -> str:
    return problem.prompt + problem.canonical_solution


def fenced(code: str) -> str:
    return f"Here it is:\n```python\n{code}\n```\n"


def metrics(doc, *responses):
    return evalplus.process_results(doc, [list(responses)])


# -- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("doc", [doc for doc, _ in PROGRAMS], ids=lambda doc: doc["entry_point"])
def test_reference_solutions_pass(doc, sandbox):
    problem = Problem.from_doc(doc)
    assert [each.verdict for each in grade(problem, [reference(problem)], sandbox)] == ["passed"]


@pytest.mark.parametrize(
    ("doc", "programs"), PROGRAMS, ids=lambda value: value["entry_point"] if "atol" in value else ""
)
def test_every_verdict_is_that_of_evalplus_s_own_check(doc, programs, sandbox):
    problem = Problem.from_doc(doc)
    results, seen = expected(problem, sandbox), set()
    for program, ours in zip(programs, grade(problem, programs, sandbox), strict=True):
        for suite in SUITES:
            status, _ = untrusted_check(
                problem.dataset,
                program,
                copy.deepcopy(problem.inputs(suite)),
                problem.entry_point,
                expected=results[suite].outputs,
                atol=problem.atol,
                ref_time=results[suite].cpu,
            )
            assert (getattr(ours, suite) == "passed") is (status == "pass"), (suite, program, ours.reason)
            seen.add(status)
    assert seen == {"pass", "fail"}


def test_a_zero_of_a_polynomial_is_tried_out(sandbox):
    """By EvalPlus's rule; its 0.3.1 forgets to count the results and so fails whatever keeps to it."""
    problem = Problem.from_doc(POLYNOMIAL)
    programs = [reference(problem)]
    programs += [
        f"def find_zero(xs): return {zero}" for zero in ("1e-6 - xs[0] / xs[1]", "1e-3 - xs[0] / xs[1]", "'0'")
    ]
    assert [each.verdict for each in grade(problem, programs, sandbox)] == ["passed", "passed", "wrong", "wrong"]


def test_a_program_can_pass_the_base_tests_alone(sandbox):
    [each] = grade(Problem.from_doc(DOUBLED), ["def doubled(numbers): return [2, 10]"], sandbox)
    assert (each.base, each.plus, each.passed) == ("passed", "wrong", False)
    assert each.reason == "plus: input 0 [[]] gives [2, 10], the reference []"


def test_the_first_input_that_goes_wrong_decides(sandbox):
    programs = [
        "def doubled(numbers): return numbers.pop() and [] if numbers else []",
        "def doubled(numbers): return [2 * n for n in numbers] if len(numbers) != 2 else 1 / 0",
        "import time\ndef doubled(numbers):\n    while True: pass",
        "def doubled(numbers): return [0] * (1 << 40)",
    ]
    verdicts = [each.verdict for each in grade(Problem.from_doc(DOUBLED), programs, sandbox)]
    assert verdicts == ["wrong", "exception", "timeout", "memory"]


def test_a_hostile_program_fails_and_the_run_goes_on(sandbox):
    doc = row("HumanEval/9004", "double", "def double(x):\n    '''Twice x.'''\n", "    return 2 * x\n", [[1]], [[2]])
    problem = Problem.from_doc(doc)
    names = (
        "leaves by os._exit before the tests",
        "patches the comparison",
        "writes a report of its own",
        "loops forever",
    )
    programs = [hostile.ALL[name] for name in names]
    grades = grade(problem, [*programs, reference(problem)], sandbox)
    assert [each.passed for each in grades] == [False] * len(programs) + [True]


def test_integers_beyond_64_bits_and_infinities_are_inputs_like_others(sandbox):
    text = "[[NaN], [Infinity], [123456789012345678901234567890]]"
    doc = row("Mbpp/9005", "same", '"""same"""\n', "def same(x): return str(x)\n", text, text)
    assert Problem.from_doc(doc).base_input[2] == [123456789012345678901234567890]
    [each] = grade(Problem.from_doc(doc), ["def same(x): return f'{x}'"], sandbox)
    assert each.passed


def test_a_wrong_result_too_long_to_print_is_a_wrong_result(sandbox):
    [each] = grade(Problem.from_doc(DOUBLED), ["def doubled(numbers): return 10**10_000"], sandbox)
    assert each.verdict == "wrong"
    assert "a long int" in each.reason


# -- problems ---------------------------------------------------------------------------------------------------------


def test_inputs_are_restored_to_what_solutions_expect():
    assert Problem.from_doc(SHARED).base_input == [[(1, 2), (2, 3)]]
    assert Problem.from_doc(DOUBLED).base_input == [[[1, 5]]]


def test_inputs_as_text_and_an_empty_object_are_read():
    as_text = DOUBLED | {"base_input": json.dumps(DOUBLED["base_input"]), "plus_input": {}}
    assert Problem.from_doc(as_text).base_input == Problem.from_doc(DOUBLED).base_input
    assert Problem.from_doc(as_text).plus_input == []


def test_the_digest_follows_what_verdicts_depend_on():
    digest = Problem.from_doc(DOUBLED).digest
    assert digest == Problem.from_doc(DOUBLED | {"contract": "other"}).digest
    assert digest != Problem.from_doc(DOUBLED | {"plus_input": [[[1]]]}).digest
    assert digest != Problem.from_doc(DOUBLED | {"atol": 0.1}).digest


def test_a_row_of_another_layout_is_named_with_the_expected_release():
    hub = {"task_id": "HumanEval/0", "prompt": "", "entry_point": "f", "canonical_solution": "", "test": ""}
    with pytest.raises(ValueError, match=r"HumanEval/0.*v0\.1\.10.*base_input"):
        Problem.from_doc(hub)
    with pytest.raises(ValueError, match="Codex/1"):
        Problem.from_doc(DOUBLED | {"task_id": "Codex/1"})


# -- reference results ------------------------------------------------------------------------------------------------


def test_reference_results_are_made_once(sandbox, monkeypatch, tmp_path):
    monkeypatch.setenv("LATENTMAS_CACHE_DIR", str(tmp_path))
    problem = Problem.from_doc(SHARED)
    first = expected(problem, sandbox)
    monkeypatch.setattr(Sandbox, "run_all", lambda *_: pytest.fail("ran again"))
    assert expected(problem, sandbox) == first
    assert type(first["base"].outputs[0]) is tuple


def test_reference_results_of_other_data_are_made_anew(sandbox, monkeypatch, tmp_path):
    monkeypatch.setenv("LATENTMAS_CACHE_DIR", str(tmp_path))
    assert expected(Problem.from_doc(DOUBLED), sandbox)["base"].outputs == [[2, 10]]
    assert expected(Problem.from_doc(DOUBLED | {"base_input": [[[3]]]}), sandbox)["base"].outputs == [[6]]


@pytest.mark.parametrize("text", ["", "{}", '{"format": 0}', '{"format": 1, "base": {"outputs": [{"int": 1}]}}'])
def test_kept_results_that_cannot_be_read_are_made_again(text, sandbox, monkeypatch, tmp_path):
    monkeypatch.setenv("LATENTMAS_CACHE_DIR", str(tmp_path))
    problem = Problem.from_doc(DOUBLED)
    first = expected(problem, sandbox)
    [kept] = [path for path in tmp_path.rglob("*.json") if problem.digest in path.name]
    kept.write_text(text)
    assert expected(problem, sandbox)["plus"].outputs == first["plus"].outputs


def test_a_cache_that_cannot_be_written_costs_time_only(sandbox, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LATENTMAS_CACHE_DIR", str(tmp_path / "file"))
    assert expected(Problem.from_doc(DOUBLED), sandbox)["base"].outputs == [[2, 10]]


@pytest.mark.parametrize(
    ("solution", "reason"),
    [
        ("    return 1 / 0\n", "ZeroDivisionError"),
        ("    return (n for n in numbers)\n", "generator"),
        ("    import time\n    time.sleep(1e6)\n", "did nothing"),
    ],
)
def test_a_reference_that_does_not_run_stops_everything(solution, reason, sandbox, monkeypatch):
    monkeypatch.setattr(evalplus_expected, "_REFERENCE_LIMITS", Limits(idle_seconds=0.3))
    problem = Problem.from_doc(DOUBLED | {"canonical_solution": solution})
    with pytest.raises(SandboxError, match=f"HumanEval/9001.*{reason}"):
        grade(problem, ["def doubled(numbers): return []"], sandbox)


def test_limits_follow_the_reference_s_own_time(sandbox):
    results = expected(Problem.from_doc(ROOT), sandbox)["plus"]
    slow = replace(results, cpu=[20.0, 30.0], cpu_seconds=50.0, idle_seconds=1.0)
    assert slow.call_limits() == [80.0, 120.0]
    assert slow.limits().cpu_seconds > 2 * slow.cpu_seconds
    assert slow.limits().idle_seconds > results.limits().idle_seconds
    assert results.call_limits() == [1.0, 1.0]


# -- from text to metrics ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "response",
    [
        fenced("def doubled(numbers: List[int]) -> List[int]:\n    return [twice(n) for n in numbers]"),
        fenced("def doubled(numbers: Sequence[int]) -> Optional[List[int]]:\n    return [n + n for n in numbers]"),
        fenced("from __future__ import annotations\ndef doubled(numbers: Nothing): return [n + n for n in numbers]"),
        fenced(
            "def doubled(numbers):\n    def add(n): return n + n\n    return list(map(add, numbers))\n"
            "print(doubled(int(input())))"
        ),
        fenced("class Solution:\n    def doubled(self, numbers): return [n * 2 for n in numbers]"),
        fenced(
            "def doubled(numbers): return [n * 2 for n in numbers]\nif __name__ == '__main__':\n    doubled(input())"
        ),
        fenced("def doubled(numbers): return [n * 2 for n in numbers]\nassert doubled('wrong example') == 3"),
        fenced("def doubled(numbers): return [n * 2 for n in numbers]\ndoubled(None)"),
        "    return [2 * n for n in numbers]\n",
        "<think>```python\ndef doubled(n): return 1\n```</think>" + fenced("def doubled(n): return [m * 2 for m in n]"),
    ],
)
def test_right_answers_pass_however_they_are_written(response):
    assert metrics(DOUBLED, response)["pass@1"] == 1, metrics(DOUBLED, response)["samples"]


@pytest.mark.parametrize("response", ["", "I do not know.", "<think>it goes on and on"])
def test_an_answer_without_code_is_counted_as_none(response):
    found = metrics(DOUBLED, response)
    assert (found["pass@1"], found["no_answer"]) == (0, 1)
    assert found["samples"][0]["base"] == "no_code"
    assert found["samples"][0]["reason"]


def test_pass_at_k_is_unbiased_over_repeats():
    right, wrong = fenced("def doubled(n): return [2 * m for m in n]"), fenced("def doubled(n): return n")
    found = metrics(DOUBLED, right, wrong, wrong)
    assert found["pass@1"] == pytest.approx(1 / 3)
    assert found["acc"] == pytest.approx(1 / 3)
    assert found["pass@3"] == 1
    assert evalplus.pass_at([True] * 3 + [False] * 9)["pass@10"] == 1
    assert evalplus.pass_at([True] + [False] * 11)["pass@10"] == pytest.approx(10 / 12)


def test_base_tests_have_a_score_of_their_own():
    found = metrics(DOUBLED, fenced("def doubled(n): return [2, 10]"))
    assert (found["pass@1"], found["pass@1_base"]) == (0, 1)


def test_one_text_a_document_is_read_like_a_list_of_one():
    response = fenced("def doubled(n): return [2 * m for m in n]")
    assert evalplus.process_results(DOUBLED, [response])["pass@1"] == 1


def test_truncated_answers_are_counted_where_the_model_tells():
    record = Record("task", 0, 0, "text", stop="length")
    assert "truncated" not in metrics(DOUBLED, "text")
    assert metrics(DOUBLED, Response("text", record), Response("", replace(record, stop="eos")))["truncated"] == 0.5


def test_the_results_name_sandbox_and_data():
    found = [metrics(doc, "") for doc in (DOUBLED, MATCHES)]
    assert evalplus.sandbox_level([each["sandbox"] for each in found]) == Sandbox().level
    version = evalplus.data_version([each["data"] for each in found])
    assert version.startswith("HumanEval+ v0.1.10, MBPP+ v0.2.0, 2 problems, sha256 ")
    assert version == evalplus.data_version([each["data"] for each in reversed(found)])


def test_without_evalplus_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(consent, "find_spec", lambda name: None if name == "evalplus" else object())
    with pytest.raises(ImportError, match=r"lm-eval-latentmas\[code\]"):
        metrics(DOUBLED, "")


def test_no_environment_variable_is_needed_beside_consent(monkeypatch):
    monkeypatch.delenv("HF_ALLOW_CODE_EVAL", raising=False)
    assert metrics(DOUBLED, fenced("def doubled(n): return [2 * m for m in n]"))["pass@1"] == 1
