"""(e) Every compressor against the full relay at equal numbers of decoded tokens, as agents are added."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import yaml

from benchmarks.chain import answers, chain, load, plans
from benchmarks.measure import Spread, Table, interleaved, ratio
from benchmarks.sizes import Sizes
from lm_eval_latentmas.agents import load_prompts

TITLE = "(e) Compressors against the full relay, seconds"
NOTE = (
    "The package's prompts; beyond four agents, critic and refiner take turns. All decode the same number of tokens. "
    "The full relay carries every prompt on, so its passes grow with the agents."
)


def run(sizes: Sizes) -> Table:
    """Measure the first model of ``sizes`` with every number of agents."""
    table = Table(TITLE, NOTE)
    name, layers = next(iter(sizes.models.items()))
    adapter = load(name, sizes.agents_layers or layers, sizes)
    shares: dict[str, list[float]] = {}
    for count in sizes.agents:
        with prompt_file(count) as prompts:
            made = {spec: chain(adapter, spec, sizes, prompts=prompts) for spec in sizes.compared}
        asked = plans(made["full"], [sizes.new_tokens] * sizes.agents_rows, sizes)
        seconds = interleaved(
            {spec: partial(answers, one, asked, sizes.agents_rows) for spec, one in made.items()}, sizes.rounds
        )
        for spec in sizes.compared:
            share = ratio(seconds[spec], seconds["full"])
            shares.setdefault(spec, []).append(share.median)
            table.add(
                {
                    "model": f"{name}, {adapter.layers} layers",
                    "batch": sizes.agents_rows,
                    "agents": count,
                    "compressor": spec,
                    "seconds": Spread.of(seconds[spec]),
                    "of full": share,
                }
            )
    compressed = {spec: share for spec, share in shares.items() if spec != "full"}
    table.target(f"of full at {sizes.agents[0]} agents, most", max(share[0] for share in compressed.values()), most=1.0)
    worst = max(later - earlier for share in compressed.values() for earlier, later in itertools.pairwise(share))
    table.target("change of the ratio as agents are added, most", worst, most=0.0)
    return table


@contextmanager
def prompt_file(count: int) -> Iterator[str]:
    """A prompt set of ``count`` agents made from the package's own."""
    own = load_prompts().as_dict()
    planner, critic, refiner, judger = own["agents"]
    thinkers = [planner, *((critic, refiner) * count)[: count - 2]]
    agents = [agent | {"name": f"{agent['name']} {place}"} for place, agent in enumerate([*thinkers, judger])]
    del own["source"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prompts.yaml"
        path.write_text(yaml.safe_dump(own | {"agents": agents}), "utf-8")
        yield str(path)
