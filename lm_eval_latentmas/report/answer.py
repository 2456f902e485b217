"""The report's first lines: which arm to use and how sure that is, in plain sentences made from the findings."""

from __future__ import annotations

from .comparison import Comparison
from .costs import arm_cost
from .findings import Findings

_MOST = 8  # arms that a sentence names


def answer(findings: Findings) -> list[str]:
    """Sentences, most important first; they claim no more than the tests do."""
    decisive = _decisive(findings)
    if not decisive:
        return [f"Only {findings.reference.name} was run: there is nothing to compare it with."]
    controls = {arm.name for arm in findings.arms if arm.is_control}
    judged = [c for c in decisive if c.arm not in controls]
    sentences = []
    for verdict in ("better", "worse"):
        if found := [c for c in judged if c.verdict == verdict]:
            sentences.append(
                f"{verdict.capitalize()} than {findings.reference.name} on {_where(found[0])}: {_named(found)}."
            )
    if unclear := [c for c in judged if c.difference is not None and not c.distinguishable]:
        sentences.append(_unclear(unclear, findings.reference.name))
    sentences += [f"{c.arm}: {c.verdict}." for c in decisive if c.refused]
    sentences += [_control(c) for c in decisive if c.arm in controls and not c.refused]
    if smallest := _smallest(findings, judged):
        sentences.append(smallest)
    return sentences


def _decisive(findings: Findings) -> list[Comparison]:
    """One comparison per arm: over the mean of tasks where there is one, else on its only task."""
    by_arm: dict[str, Comparison] = {}
    for comparison in findings.comparisons:
        if comparison.task is None or comparison.arm not in by_arm:
            by_arm[comparison.arm] = comparison
    return list(by_arm.values())


def _unclear(comparisons: list[Comparison], reference: str) -> str:
    sizes = [c.detectable for c in comparisons if c.detectable is not None and c.unit == 100]
    needed = [c.needed for c in comparisons if c.needed is not None]
    sentence = f"Not distinguishable from {reference} on {_where(comparisons[0])}: {_named(comparisons)}."
    if sizes:
        sentence += f" With this sample, a difference of {100 * max(sizes):.1f} points would have shown"
        sentence += f"; {max(needed):,} documents would be needed for 1 point." if needed else "."
    return sentence


def _control(comparison: Comparison) -> str:
    """What a control says of the tasks: a judger that does as well without its relay says nothing of relays."""
    instead = "Without a relay" if comparison.arm.startswith("none") else "With another document's relay"
    what = f"{instead} ({comparison.arm}, {_difference(comparison)})"
    if comparison.verdict == "worse":
        return (
            f"{what} the judger does worse than with {comparison.reference}: its relay carries something that it uses."
        )
    return f"{what} the judger is not shown to do worse: these scores can't tell what a relay carries."


def _smallest(findings: Findings, decisive: list[Comparison]) -> str | None:
    """The smallest relay among arms that nothing speaks against; silent where sizes are unknown."""
    worse = {c.arm for c in decisive if c.verdict == "worse" or c.refused or _lies_below(c)}
    sizes = {
        arm.name: size
        for arm in findings.arms
        if arm.name not in worse and not arm.is_control and (size := arm_cost(arm, findings.tasks).relay_bytes)
    }
    if len(sizes) < 2:
        return None
    name = min(sizes, key=sizes.__getitem__)
    reference = arm_cost(findings.reference, findings.tasks).relay_bytes
    ratio = f", {reference / sizes[name]:.1f} times smaller than {findings.reference.name}'s" if reference else ""
    return f"Smallest relay among the arms not shown to be worse: {name}, {sizes[name] / 1e6:.3g} MB per sample{ratio}."


def _lies_below(comparison: Comparison) -> bool:
    """Whether the whole interval speaks against the arm, even where the corrected test does not yet."""
    difference = comparison.difference
    if difference is None or difference.high is None:
        return False
    return difference.high < 0 if comparison.higher_is_better else difference.low > 0


def _named(comparisons: list[Comparison]) -> str:
    shown = ", ".join(f"{c.arm} ({_difference(c)})" for c in comparisons[:_MOST])
    return shown if len(comparisons) <= _MOST else f"{shown}, and {len(comparisons) - _MOST} more"


def _difference(comparison: Comparison) -> str:
    difference = comparison.difference
    unit = comparison.unit
    text = f"{unit * difference.estimate:+.1f}" + " points" * (unit == 100)
    if difference.low is not None:
        text += f", {unit * difference.low:+.1f} to {unit * difference.high:+.1f}"
    return text


def _where(comparison: Comparison) -> str:
    return comparison.task or comparison.notes[0].replace("mean", "the mean", 1)
