"""Where a given answer goes: behind the judger's prompt, as the chat template places a reply, and in which tokens."""

from __future__ import annotations

from collections.abc import Sequence

from lm_eval_latentmas.model_adapters import ModelAdapter

Tokens = tuple[int, ...]

_TURNS = [{"role": "user", "content": "question"}]


def opens_thought(adapter: ModelAdapter) -> bool:
    """Whether the chat template begins a thought for the model, which then only ends it."""
    return adapter.render(_TURNS).rstrip().endswith(adapter.thought[0])


def reply_opening(adapter: ModelAdapter) -> str:
    """What stands between a prompt and the reply to it, by the model's own chat template.

    Nothing for most; a blank, a closed empty thought or a channel's name for others. A thought that the prompt opens is
    closed also where the template does not show how.
    """
    reply = "the reply as it was written"
    prompt = adapter.render(_TURNS)
    written = adapter.render([*_TURNS, {"role": "assistant", "content": reply}])
    if written.startswith(prompt) and reply in written[len(prompt) :]:
        return written[len(prompt) :].split(reply)[0]
    return f"\n{adapter.thought[1]}\n\n" if opens_thought(adapter) else ""


def placed(
    adapter: ModelAdapter, text: str, continuations: Sequence[str], *, verbatim: bool
) -> tuple[Tokens, tuple[Tokens, ...]]:
    """The tokens of the judger's text, and for every continuation those that follow it.

    Text and continuation are encoded as one, and scored is all from the first token in which any of the encodings
    differs from that of the text alone: a blank at the end of the text thus belongs to the continuation, as in lm-eval.
    A continuation's own leading blanks part it from a context that lm-eval would put before it; a reply has none, so
    they are left out unless ``verbatim``.

    Raises ValueError for a continuation without tokens.
    """
    texts = [text + (given if verbatim else given.lstrip() or given) for given in continuations]
    alone, *whole = (tuple(adapter.encode(each)) for each in (text, *texts))
    shared = min((common(alone, tokens) for tokens in whole), default=len(alone))
    scored = tuple(tokens[shared:] for tokens in whole)
    if not all(scored):
        empty = continuations[[bool(tokens) for tokens in scored].index(False)]
        raise ValueError(f"continuation {empty!r} has no tokens of its own, so that there is nothing to score")
    return alone[:shared], scored


def common(one: Tokens, other: Tokens) -> int:
    """How many tokens two sequences begin with in common."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))
