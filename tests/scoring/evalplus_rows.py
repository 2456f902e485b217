"""Small problems of our own in the layout of EvalPlus's release files, and programs for them that pass or do not."""

from __future__ import annotations

from typing import Any


def row(
    task_id: str, entry_point: str, prompt: str, solution: str, base: list, plus: list, atol: float = 0
) -> dict[str, Any]:
    """A row as EvalPlus writes it."""
    return {
        "task_id": task_id,
        "entry_point": entry_point,
        "prompt": prompt,
        "canonical_solution": solution,
        "base_input": base,
        "plus_input": plus,
        "atol": atol,
        "contract": "",
    }


DOUBLED = row(
    "HumanEval/9001",
    "doubled",
    "from typing import List\n\n\ndef twice(n: int) -> int:\n    return 2 * n\n\n\n"
    "def doubled(numbers: List[int]) -> List[int]:\n"
    '    """Each number times two.\n    >>> doubled([1, 5])\n    [2, 10]\n    """\n',
    "    return [twice(n) for n in numbers]\n",
    [[[1, 5]]],
    [[[]], [[-3, 0]], [[10**30]]],
)
ROOT = row(
    "HumanEval/9002",
    "half",
    'def half(x: float) -> float:\n    """Half of x."""\n',
    "    return x / 2\n",
    [[1.0]],
    [[0.1], [3]],
)
POLYNOMIAL = row(
    "HumanEval/32",
    "find_zero",
    'def find_zero(xs: list):\n    """A zero of the polynomial with coefficients xs."""\n',
    "    return -xs[0] / xs[1]\n",
    [[[1, 2]]],
    [[[-6, 3]]],
    atol=0.0001,
)
SHARED = row(
    "Mbpp/2",
    "similar_elements",
    '"""\nWrite a function to find what two tuples share.\nassert set(similar_elements((1, 2), (2, 3))) == {2}\n"""\n',
    "def similar_elements(a, b):\n    assert type(a) is type(b) is tuple\n    return tuple(set(a) & set(b))\n",
    [[[1, 2], [2, 3]]],
    [[[], []], [[4, 5, 5], [5, 4]]],
)
MATCHES = row(
    "Mbpp/737",
    "check_str",
    '"""\nWrite a function to check for a vowel at the start.\nassert check_str("annie")\n"""\n',
    "import re\ndef check_str(text):\n    return re.match('[aeiou]', text)\n",
    [["annie"], ["dawood"]],
    [[""], ["e"]],
)
DIVISORS = row(
    "Mbpp/295",
    "sum_div",
    '"""\nWrite a function to return the sum of the proper divisors.\n"""\n',
    "def sum_div(n):\n    return sum(d for d in range(1, n) if n % d == 0)\n",
    [[8]],
    [[12], [7]],
)
AREA = row(
    "Mbpp/581",
    "surface_Area",
    '"""\nWrite a function to find the surface of a square pyramid.\n"""\n',
    "def surface_Area(b, s):\n    return 2 * b * s + b * b\n",
    [[3, 4]],
    [[4, 5]],
)
DIGITS = row(
    "Mbpp/558",
    "digit_distance_nums",
    '"""\nWrite a function to add up the distances of digits.\n"""\n',
    "def digit_distance_nums(a, b):\n    return sum(map(int, str(abs(a - b))))\n",
    [[1, 2]],
    [[23, 56]],
)
ANYTHING = row(
    "Mbpp/164",
    "are_equivalent",
    '"""\nWrite a function to compare divisor sums.\n"""\n',
    "def are_equivalent(a, b):\n    return a == b\n",
    [[1, 2]],
    [[2, 2]],
)
MEASURED = row(
    "Mbpp/9003",
    "measure",
    '"""\nWrite a function to measure.\n"""\n',
    "def measure(kind):\n"
    "    return {'float': 0.3, 'mixed': [1, 0.3], 'floats': (0.3, 2.0), 'text': 'a', 'int': 3}[kind]\n",
    [["float"], ["mixed"], ["floats"], ["int"]],
    [["mixed"], ["text"], ["floats"]],
)

_MEASURE = "def measure(kind):\n    return {{'float': {}, 'mixed': {}, 'floats': {}, 'text': {}, 'int': {}}}[kind]\n"

#: Programs by problem; which of them pass is for EvalPlus to say.
PROGRAMS: list[tuple[dict[str, Any], list[str]]] = [
    (
        DOUBLED,
        [
            "def doubled(numbers): return [2 * n for n in numbers]",
            "def doubled(numbers): return tuple(2 * n for n in numbers)",
            "def doubled(numbers): return [2.0 * n for n in numbers]",
            "def doubled(numbers): return [2 * n for n in numbers if n >= 0]",
            "def doubled(numbers): return (2 * n for n in numbers)",
            "def doubled(numbers): return [2, 10]",
            "def doubled(numbers):\n    for i, n in enumerate(numbers): numbers[i] = 2 * n\n    return numbers",
            "class L(list):\n    pass\ndef doubled(numbers): return L(2 * n for n in numbers)",
            "import numpy\ndef doubled(numbers): return numpy.array(numbers) * 2",
            "def doubled(numbers): raise ValueError",
            "def doubled(): return []",
            "doubled = 3",
            "def tripled(numbers): return numbers",
            "def doubled(numbers)",
        ],
    ),
    (
        ROOT,
        [
            "def half(x): return x * 0.5",
            "def half(x): return x * 0.5 + 1e-9",
            "def half(x): return x * 0.5 + 1e-5",
            "from fractions import Fraction\ndef half(x): return Fraction(x) / 2",
            "from decimal import Decimal\ndef half(x): return Decimal(x) / 2",
            "import numpy\ndef half(x): return numpy.float64(x) / 2",
            "import numpy\ndef half(x): return numpy.float64(x) / 2 + 1e-9",
            "def half(x): return complex(x / 2)",
            "def half(x): return str(x / 2)",
            "def half(x): return float('nan')",
        ],
    ),
    (
        SHARED,
        [
            "def similar_elements(a, b): return [x for x in a if x in b]",
            "def similar_elements(a, b): return (x for x in a if x in b)",
            "def similar_elements(a, b): return filter(b.__contains__, a)",
            "def similar_elements(a, b): return {x: 0 for x in a if x in b}",
            "def similar_elements(a, b): return a + b",
            "def similar_elements(a, b): return [[x] for x in a if x in b]",
            "def similar_elements(a, b): return None",
            "def similar_elements(a, b): return list(a & b)",
            "def similar_elements(a, b): return tuple(hash(a) and x for x in a if x in b)",
        ],
    ),
    (
        MATCHES,
        [
            "def check_str(text): return text[:1] in set('aeiou')",
            "def check_str(text): return text[0] in 'aeiou'",
            "def check_str(text): return text or None",
            "def check_str(text): return 'yes' if text[:1] in set('aeiou') else None",
            "def check_str(text): return 1 if text[:1] in set('aeiou') else 0",
        ],
    ),
    (DIVISORS, ["def sum_div(n): return 0", "def sum_div(n): return 1", "def sum_div(n): return False"]),
    (
        AREA,
        [
            "def surface_Area(b, h): return round(b * b + 2 * b * ((b / 2) ** 2 + h * h) ** 0.5)",
            "def surface_Area(b, h): return 0",
        ],
    ),
    (
        DIGITS,
        [
            "def digit_distance_nums(a, b): return sum(abs(int(x) - int(y)) for x, y in zip(str(a), str(b)))",
            "def digit_distance_nums(a, b): return 1",
        ],
    ),
    (ANYTHING, ["def are_equivalent(a, b): return None", "def are_equivalent(a, b): return 1 / 0"]),
    (
        MEASURED,
        [
            _MEASURE.format("0.1 + 0.2", "[1, 0.3]", "(0.3, 2.0)", "'a'", "3"),
            _MEASURE.format("0.3", "[1, 0.1 + 0.2]", "(0.3, 2.0)", "'a'", "3"),
            _MEASURE.format("0.3", "[1, 0.1 + 0.2]", "(0.1 + 0.2, 2.0)", "'a'", "3"),
            _MEASURE.format("0.3", "[1, 0.3]", "[0.3, 2.0]", "'a'", "3"),
            _MEASURE.format("0.3", "[1, 0.3]", "(0.3, 2.0, 2.0)", "'a'", "3"),
            _MEASURE.format("0.3", "[1, 0.3]", "(0.3, 2.0)", "'b'", "3"),
            _MEASURE.format("0.3", "[1, 0.3]", "(0.3, 2.0)", "'a'", "3.0"),
            _MEASURE.format("0.3", "[1, 0.3]", "(0.3, 2.0)", "'a'", "3 + 1e-9"),
        ],
    ),
]
