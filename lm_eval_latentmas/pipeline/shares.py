"""Which process has which agents. Process 0 has the last ones: its answers are the results that lm-eval writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from lm_eval_latentmas.agents import PromptSet
from lm_eval_latentmas.launch import processes
from lm_eval_latentmas.naming import nearest


def shared_out(
    setting: bool | str, prompts: PromptSet, pretrained: object, loading: Mapping[str, Any]
) -> list[range] | None:
    """The shares of this launch, None without a pipeline. Raises ValueError for what cannot run in one."""
    if not setting:
        return None
    if not isinstance(pretrained, str):
        raise ValueError(f"pipeline={setting}: every process loads the model itself; give pretrained as a name or path")
    if loading.get("tp_plan"):
        raise ValueError(f"pipeline={setting}: tp_plan has all processes work on one pass; leave one of the two out")
    return shares(setting, prompts, processes())


def called(parts: Sequence[range], prompts: PromptSet) -> list[str]:
    """What every process is called in errors: its number and its agents."""
    names = [agent.name for agent in prompts.agents]
    return [f"process {rank} ({', '.join(names[place] for place in part)})" for rank, part in enumerate(parts)]


def shares(setting: bool | str, prompts: PromptSet, count: int) -> list[range]:
    """Per process, the places in the prompt set of the agents that it runs.

    In the order of the agents the processes are 1, 2, ... and 0 at the end, so that relays travel in a ring.
    setting: ``True``, even shares, the larger ones first; or names, ``planner+critic;refiner+judger``.
    Raises ValueError for what cannot be shared out.
    """
    if prompts.side_by_side:
        raise ValueError(
            f"pipeline={setting}: the agents of a hierarchical prompt set work side by side, as rows of one batch; "
            "leave pipeline out, and several processes share the documents instead"
        )
    names = [agent.name for agent in prompts.agents]
    if count < 2:
        raise ValueError(
            f"pipeline={setting}: there is one process; start more with torchrun --nproc_per_node N -m lm_eval ..."
        )
    if count > len(names):
        raise ValueError(
            f"pipeline={setting}: {count} processes for {len(names)} agents ({', '.join(names)}); start "
            f"{len(names)} or fewer"
        )
    sizes = _even(len(names), count) if setting is True else _named(str(setting), names, count)
    in_order = [range(*ends) for ends in pairwise([0, *accumulate(sizes)])]
    return [in_order[-1], *in_order[:-1]]


def _even(agents: int, count: int) -> list[int]:
    return [agents // count + (place < agents % count) for place in range(count)]


def _named(text: str, names: list[str], count: int) -> list[int]:
    groups = [[name.strip() for name in group.split("+")] for group in text.split(";")]
    given = [name for group in groups for name in group]
    for name in given:
        if name not in names:
            raise ValueError(f"pipeline={text}: unknown agent {nearest(name, names)}; or give true")
    if given != names:
        raise ValueError(f"pipeline={text}: name every agent once and in order: {', '.join(names)}")
    if len(groups) != count:
        raise ValueError(f"pipeline={text}: {len(groups)} shares for {count} processes; start {len(groups)}")
    return [len(group) for group in groups]
