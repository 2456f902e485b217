"""lm-eval's requests as questions: texts to be written, and continuations to be scored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lm_eval_latentmas import harness
from lm_eval_latentmas.conversation import unpack
from lm_eval_latentmas.planning import Question
from lm_eval_latentmas.sampling import Generation


def written(requests: Sequence[Any], default_max: int) -> list[Question]:
    """Requests of (context, generation arguments) as questions; the n-th for one document is its n-th repeat.

    One that is sampled gets ``do_sample=True``: by that word alone lm-eval's ``--use_cache`` knows that its texts must
    not be replayed, as one text for all repeats.
    """
    questions = []
    for request, repeat in _counted(requests):
        context, arguments = request.args
        generation = Generation.of(arguments, default_max=default_max)
        if not generation.greedy:
            arguments["do_sample"] = True
        questions.append(_question(request, context, generation, repeat=repeat))
    return questions


def scored(requests: Sequence[Any]) -> list[Question]:
    """Requests of (context, continuation) as questions; those of one task and context are one question.

    It has all their continuations, in an order of its own, so that it is thought about once whatever the documents.
    """
    together: dict[tuple[str, str], set[str]] = defaultdict(set)
    for request in requests:
        together[request.task_name, request.args[0]].add(request.args[1])
    ordered = {place: tuple(sorted(continuations)) for place, continuations in together.items()}
    questions = []
    for request, _ in _counted(requests):  # a score is the same every time, so all repeats are one
        context, _ = request.args
        continuations = ordered[request.task_name, context]
        questions.append(_question(request, context, Generation(), repeat=0, continuations=continuations))
    return questions


def _counted(requests: Sequence[Any]) -> Iterator[tuple[Any, int]]:
    """Requests with their repeats, counted from 0.

    In a run over several processes lm-eval pads ranks with copies of their last request: beyond a request's own
    repeats the copies begin again at 0, so that no document is computed twice, and their responses are not added to
    the request's own.
    """
    seen: Counter[int] = Counter()
    for request in requests:
        repeats = max(1, request.repeats or 1)
        repeat = seen[id(request)] % repeats
        seen[id(request)] += 1
        if seen[id(request)] > repeats:
            request.resps = _AtMost(repeats, request.resps)
        yield request, repeat


def _question(request: Any, context: str, generation: Generation, **about: Any) -> Question:
    talk = unpack(context)
    chosen = harness.chosen().get(request.task_name)
    doc_id = request.doc_id if request.doc_id is not None else 0
    return Question(
        task=request.task_name or "",
        doc_id=chosen[doc_id] if chosen else doc_id,
        text=talk.question,
        generation=generation,
        system=talk.system,
        prefix=talk.prefix,
        **about,
    )


class _AtMost(list):
    """A list that takes no more than ``most`` items; what is appended beyond is dropped."""

    def __init__(self, most: int, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.most = most

    def append(self, item: Any) -> None:
        """Append while there is room."""
        if len(self) < self.most:
            super().append(item)
