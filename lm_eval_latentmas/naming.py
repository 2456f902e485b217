"""How an unknown name is answered: with the nearest known one and the list of all."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(given: object, known: Iterable[str], beside: Iterable[str] = ()) -> str:
    """A phrase for an error message: the name that was given, the closest known one, and all known names.

    beside: more names that may be the closest but are too many to list.
    """
    names = sorted(known)
    close = difflib.get_close_matches(str(given), [*names, *beside], n=1, cutoff=0.6)
    hint = f"; did you mean '{close[0]}'?" if close else ";"
    return f"'{given}'{hint} Known: {', '.join(names)}"
