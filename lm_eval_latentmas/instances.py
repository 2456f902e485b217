"""lm-eval's requests as questions: texts to be written, and continuations to be scored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from lm_eval_latentmas.conversation import unpack
from lm_eval_latentmas.planning import Question
from lm_eval_latentmas.sampling import Generation


def written(requests: Sequence[Any], default_max: int) -> list[Question]:
    """Requests of (context, generation arguments) as questions; the n-th for one document is its n-th repeat.

    In a run over several processes lm-eval pads ranks with copies of their last request: beyond a request's own
    repeats the copies begin again at 0, so that no document is computed twice, and their responses are not added to
    the request's own.
    """
    seen: Counter[int] = Counter()
    questions = []
    for request in requests:
        repeats = max(1, request.repeats or 1)
        repeat = seen[id(request)] % repeats
        seen[id(request)] += 1
        if seen[id(request)] > repeats:
            request.resps = _AtMost(repeats, request.resps)
        context, arguments = request.args
        generation = Generation.of(arguments, default_max=default_max)
        questions.append(_question(request, context, generation, repeat=repeat))
    return questions


def scored(requests: Sequence[Any]) -> list[Question]:
    """Requests of (context, continuation) as questions; those of one task and context are one question.

    It has all their continuations, in an order of its own, so that it is thought about once whatever the documents.
    """
    together: dict[tuple[str, str], set[str]] = defaultdict(set)
    for request in requests:
        context, continuation = request.args
        together[request.task_name, context].add(continuation)
    return [
        _question(
            request,
            request.args[0],
            Generation(),
            continuations=tuple(sorted(together[request.task_name, request.args[0]])),
        )
        for request in requests
    ]


def _question(request: Any, context: str, generation: Generation, **about: Any) -> Question:
    talk = unpack(context)
    return Question(
        task=request.task_name or "",
        doc_id=request.doc_id if request.doc_id is not None else 0,
        text=talk.question,
        generation=generation,
        system=talk.system,
        prefix=talk.prefix,
        **({"repeat": 0} | about),
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
