"""Programs get what their prompt has already given."""

from __future__ import annotations

import pytest

from lm_eval_latentmas.scoring.prelude import complete

PROMPT = (
    "import math\nfrom typing import List\n\n\ndef helper(x):\n    return math.floor(x)\n\n\n"
    'def f(x: List[int]) -> int:\n    """Doc."""\n'
)


def run(code: str, prompt: str = PROMPT, entry_point: str = "f"):
    namespace: dict = {}
    exec(complete(code, prompt, entry_point), namespace)
    return namespace


def test_imports_and_helpers_of_the_prompt_are_there():
    assert run("def f(x: List[int]) -> int:\n    return helper(math.pi)\n")["f"](0) == 3


def test_the_prompt_s_own_function_is_not_there_unless_it_is_defined():
    assert "f" not in run("def g(x): return x")


def test_a_body_goes_on_from_the_prompt():
    assert run("    y = helper(x)\n    return y + 1\n")["f"](2.5) == 3


def test_a_function_that_is_indented_is_no_body_and_no_part_of_a_helper():
    assert run("    def f(x): return 1\n")["f"](0) == 1


def test_names_of_typing_need_no_import():
    assert run("def f(x: Optional[Dict[str, int]]): return 1", '"""Task."""\n')["f"](0) == 1


def test_imports_from_the_future_stay_first():
    code = '"""Doc."""\nfrom __future__ import annotations\ndef f(x: Unknown): return 1\n'
    assert run(code)["f"](0) == 1


def test_the_answer_s_definitions_hide_the_prompt_s():
    assert run("def helper(x): return 7\ndef f(x): return helper(x)\n")["f"](0) == 7


@pytest.mark.parametrize("code", ["def f(x)", "", "\0", "def f(x): return '''"])
def test_code_that_is_not_python_is_handed_on(code):
    assert code in complete(code, PROMPT, "f")
