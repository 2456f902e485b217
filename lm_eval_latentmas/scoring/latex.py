r"""LaTeX formulas that have one exact value, such as ``\sqrt{16}`` or ``\binom{5}{2}``, by math-verify's parser.

Optional (extra ``math``): without the package every such formula counts as unreadable; nothing else changes.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sympy

_LONGEST = 120  # characters
_LARGEST_EXPONENT = 1000


def evaluate(formula: str) -> Fraction | None:
    """The rational value of a LaTeX formula; None if it has letters, several values, none, or is out of bounds.

    Bounds stand in for a time limit, so that the outcome never depends on the machine.
    """
    formula = formula.strip().strip("$").strip()
    if len(formula) > _LONGEST or re.search(r"\d{5}|\\(?:sum|prod|int|lim)", formula):
        return None
    try:
        from latex2sympy2_extended import latex2sympy  # the parser of math-verify
    except ImportError:
        return None
    try:
        parsed = latex2sympy(formula)
    except Exception:  # the parser has no error of its own for text that is no formula
        return None
    return _exact(parsed) if getattr(parsed, "free_symbols", True) == set() else None


def _exact(parsed: sympy.Basic) -> Fraction | None:
    import sympy

    if not isinstance(parsed, sympy.Expr) or any(_unbounded(part) for part in sympy.preorder_traversal(parsed)):
        return None
    value = parsed.doit()
    return Fraction(int(value.p), int(value.q)) if value.is_Rational else None


def _unbounded(part: sympy.Basic) -> bool:
    import sympy

    if isinstance(part, sympy.Pow):
        return not (part.exp.is_Rational and abs(part.exp) <= _LARGEST_EXPONENT)
    return isinstance(part, sympy.factorial | sympy.binomial) and not all(
        argument.is_Integer and abs(argument) <= _LARGEST_EXPONENT for argument in part.args
    )
