"""Which program is read from a response. The programs are run here: they are this file's own."""

from __future__ import annotations

import pytest

from lm_eval_latentmas.scoring.answers import extract_code

DOUBLE = "def f(x):\n    return 2 * x\n"
FENCED = {
    "python": f"```python\n{DOUBLE}```",
    "py": f"```py\n{DOUBLE}```",
    "Python3": f"Here:\n```Python3\n{DOUBLE}```\nThat is it.",
    "python3.11": f"```python3.11\n{DOUBLE}```",
    "space before the tag": f"``` python\n{DOUBLE}```",
    "attributes": f'```python title="f.py"\n{DOUBLE}```',
    "no tag": f"```\n{DOUBLE}```",
    "tilde": f"~~~python\n{DOUBLE}~~~",
    "four backticks": f"````python\n{DOUBLE}````",
    "CRLF": f"```python\n{DOUBLE}```\nDone.".replace("\n", "\r\n"),
    "unclosed": f"```python\n{DOUBLE}",
    "unclosed with prose behind": f"```python\n{DOUBLE}\nThis doubles the number.",
    "closed on the last line": "```python\ndef f(x):\n    return 2 * x```",
    "code behind the tag": "```python def f(x):\n    return 2 * x\n```",
    "in a list": "1. The code:\n\n   ```python\n   def f(x):\n       return 2 * x\n   ```",
    "indented as a whole": "```python\n    def f(x):\n        return 2 * x\n```",
    "non-breaking spaces": f"```python\n{DOUBLE}```".replace("    ", "\u00a0" * 4),
    "tilde inside backticks": f"```python\n{DOUBLE}# ~~~\n```",
    "another language first": f"```bash\npip install f\n```\n```python\n{DOUBLE}```",
    "output behind": f"```python\n{DOUBLE}```\nOutput:\n```\n[2, 4]\n```",
    "a tag of another language": f"```text\n{DOUBLE}```",
    "behind a thought": f"<think>```python\ndef f(x): return 0\n```</think>\n```python\n{DOUBLE}```",
    "the later of two": f"```python\ndef f(x):\n    return 0\n```\nBetter:\n```python\n{DOUBLE}```",
    "a test block behind": f"```python\n{DOUBLE}```\nTest:\n```python\nassert f(2) == 4\nprint(f(3))\n```",
    "cut off behind the function": f"```python\n{DOUBLE}\ndef unfinished(",
    "lambda": "```python\nf = lambda x: 2 * x\n```",
    "async helper beside it": f"```python\n{DOUBLE}\nasync def g():\n    pass\n```",
    "a class around it": "```python\nclass Solution:\n    def f(self, x):\n        return 2 * x\n```",
    "defined in a branch": "```python\nif True:\n    def f(x):\n        return 2 * x\n```",
}
BARE = {
    "alone": DOUBLE,
    "prose around": f"Here is the function:\n\n{DOUBLE}\nIt doubles the number.",
    "call behind": f"{DOUBLE}\nprint(f(3))\n",
    "import in front": f"import math\n\n{DOUBLE}",
}
# the blocks of a response, each of which stands between fences
NEEDED = {
    "helper of an earlier block": (
        "def g(x):\n    return 2 * x",
        "def f(x):\n    return g(x)",
    ),
    "import of an earlier block": (
        "import operator",
        "def f(x):\n    return operator.mul(2, x)",
    ),
    "constant of an earlier block": (
        "TWO = 2",
        "def f(x):\n    return TWO * x",
    ),
    "helper of a helper": (
        "TWO = 2\n\ndef g(x):\n    return TWO * x",
        "def f(x):\n    return g(x)",
    ),
    "helper behind": ("def f(x):\n    return g(x)\n\ndef g(x):\n    return 2 * x",),
    "nested helper": ("def f(x):\n    def g(y):\n        return 2 * y\n    return g(x)",),
    "later version of a helper": (
        "def g(x):\n    return 0",
        "def g(x):\n    return 2 * x\n\ndef f(x):\n    return g(x)",
    ),
    "table that a loop fills": (
        "table = []\nfor i in range(9):\n    table.append(2 * i)\n\ndef f(x):\n    return table[x]",
    ),
    "dictionary that is filled": ("known = {}\nknown[3] = 6\n\ndef f(x):\n    return known[x]",),
    "attribute of the function": ("def f(x):\n    return f.two * x\nf.two = 2",),
    "decorator": ("import functools\n\n@functools.lru_cache(None)\ndef f(x):\n    return 2 * x",),
    "optional import": (
        "try:\n    import no_such_package as two\nexcept ImportError:\n    two = 2\n\ndef f(x):\n    return two * x",
    ),
    "star import": ("from operator import *\n\ndef f(x):\n    return mul(2, x)",),
    "future import": (
        "import operator",
        "from __future__ import annotations\n\ndef f(x: Later):\n    return operator.mul(2, x)",
    ),
    "two statements on a line": ("import operator; TWO = 2\ndef f(x):\n    return operator.mul(TWO, x)",),
    "class with a helper": (
        "class Solution:\n    def g(self, x):\n        return 2 * x\n    def f(self, x):\n        return self.g(x)",
    ),
}
HARMLESS = {
    "main guard": "if __name__ == '__main__':\n    raise SystemExit(f(int(input())))",
    "example call that raises": "print(f(None).nothing)",
    "failing test": "assert f(2) == 5",
    "reads input": "n = int(input())",
    "result of a call": "result = f(None).nothing",
    "loop over tests": "for case in [1, None]:\n    print(f(case).nothing)",
    "unused import": "import no_such_package",
    "test framework": "import unittest\nunittest.main()",
    "endless loop": "while True:\n    pass",
    "exit": "exit()",
    "unused helper that fails": "@no_such_decorator\ndef helper():\n    pass",
}


def run(program: str) -> int:
    space: dict = {"__name__": "answer"}
    exec(compile(program, "answer", "exec"), space)
    return space["f"](3)


@pytest.mark.parametrize("case", FENCED)
def test_a_fenced_block_is_read(case):
    answer = extract_code(FENCED[case], "f")
    assert (run(answer.value), answer.rule) == (6, "fenced")


@pytest.mark.parametrize("case", BARE)
def test_code_without_a_fence_is_read(case):
    answer = extract_code(BARE[case], "f")
    assert (run(answer.value), answer.rule) == (6, "bare")


@pytest.mark.parametrize("case", NEEDED)
def test_what_the_function_needs_comes_along(case):
    response = "\nThen:\n".join(f"```python\n{block}\n```" for block in NEEDED[case])
    assert run(extract_code(response, "f").value) == 6


def test_a_recursion_limit_is_kept():
    limit = "sys.setrecursionlimit(10**6)"
    assert limit in extract_code(f"```python\nimport sys\n{limit}\n{DOUBLE}```", "f").value


@pytest.mark.parametrize("case", HARMLESS)
@pytest.mark.parametrize("template", ["```python\n{code}\n{rest}\n```", "```python\n{rest}\n{code}\n```"])
def test_what_acts_by_itself_is_left_out(case, template):
    response = template.format(code=DOUBLE, rest=HARMLESS[case])
    assert run(extract_code(response, "f").value) == 6


def test_a_body_that_goes_on_from_the_prompt_keeps_its_indentation():
    for response in ("    y = 2 * x\n    return y\n", "```python\n    y = 2 * x\n    return y\n```"):
        answer = extract_code(response, "f")
        assert answer.rule == "code without the function"
        assert run("def f(x):\n" + answer.value) == 6


def test_code_without_the_function_or_that_does_not_parse_is_handed_on():
    assert extract_code("```python\ndef other(x):\n    return x\n```", "f").value == "def other(x):\n    return x"
    assert extract_code("```python\ndef f(x:\n    return x\n```", "f").value == "def f(x:\n    return x"


def test_a_function_is_found_by_its_whole_name():
    response = f"```python\n{DOUBLE}```\n```python\ndef f2(x):\n    return 0\n```"
    assert run(extract_code(response, "f").value) == 6


NOTHING = [
    "",
    "I cannot write this.",
    "for example: x",
    "```python\n```",
    "```\n\n```",
    "```javascript\nfunction f(x) {}\n```",
    f"<think>```python\n{DOUBLE}```",
    f"<think>```python\n{DOUBLE}```</think>",
]


@pytest.mark.parametrize("response", NOTHING)
def test_no_code_is_no_answer(response):
    assert extract_code(response, "f") is None


@pytest.mark.parametrize("piece", ["```python\n", "def f(x):\n", "(", "-", "    ", "[[", "f(", "~~~\n", "# \n", "\x00"])
def test_a_degenerate_response_does_no_harm(piece):
    extract_code(piece * 5_000, "f")
    extract_code(f"```python\n{piece * 5_000}\n{DOUBLE}", "f")
