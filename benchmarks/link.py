"""(f) A relay's way to another process, against the speed of the link: written, sent, received and read."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.measure import Spread, Table, ratio
from benchmarks.sizes import Sizes
from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.links import received, written
from lm_eval_latentmas.pipeline.ring import Ring
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.relay.settings import RelaySettings

TITLE = "(f) A relay's way to another process, milliseconds"
NOTE = (
    "Random states in {dtype}, {layers} layers of {heads} KV heads of size {width}; prompts of {prompts} tokens and "
    "{steps} latent steps. Two processes on loopback, held back in the process to the link's speed. Of a rollout, all "
    "hops one after the other: writing the message, sending it, reading it."
)
_NAMES = ("process 0 (receives)", "process 1 (sends)")
_TIMEOUT = 600.0


class Pace:
    """Holds bytes back to a link's speed. gigabits: a second."""

    def __init__(self, gigabits: float = float("inf")) -> None:
        self.gigabits, self._free = gigabits, 0.0

    def __call__(self, count: int) -> None:
        """Wait until the link has carried ``count`` more bytes."""
        self._free = max(self._free, time.perf_counter()) + 8 * count / (self.gigabits * 1e9)
        time.sleep(max(0.0, self._free - time.perf_counter()))


def run(sizes: Sizes) -> Table:
    """Measure the first shape of ``sizes`` over every link."""
    shape = sizes.shapes[0]
    told = {"layers": shape.layers, "heads": shape.kv_heads, "width": shape.head_dim, "steps": sizes.latent_steps}
    table = Table(TITLE, NOTE.format(dtype=sizes.link_dtype, prompts=", ".join(map(str, sizes.hops)), **told))
    found = _measured(sizes)
    for gigabits in sizes.links:
        totals = {spec: [sum(hops) for hops in found["seconds"][gigabits, spec]] for spec in sizes.linked}
        for spec in sizes.linked:
            last = [hops[-1] for hops in found["seconds"][gigabits, spec]]
            table.add(
                {
                    "Gbit/s": gigabits,
                    "compressor": spec,
                    "MB a rollout": sum(found["bytes"][spec]) / 1e6,
                    "last hop": Spread.of([1e3 * seconds for seconds in last]),
                    "rollout": Spread.of([1e3 * seconds for seconds in totals[spec]]),
                    "of full": ratio(totals[spec], totals["full"]),
                }
            )
    _hold(table, found, sizes)
    return table


def _hold(table: Table, found: dict[str, Any], sizes: Sizes) -> None:
    """Targets on the slowest link, where a relay's size is what counts."""
    slowest = min(sizes.links)
    full = [sum(hops) for hops in found["seconds"][slowest, "full"]]
    bare = 8 * sum(found["bytes"]["full"]) / (slowest * 1e9)
    table.target(f"full over the bare link at {slowest:g} Gbit/s", Spread.of(full).median / bare, most=1.2)
    for spec, most in (("h-obf", 0.4), ("l-obf-int8", 0.25)):
        share = ratio([sum(hops) for hops in found["seconds"][slowest, spec]], full)
        table.target(f"{spec} of full at {slowest:g} Gbit/s", share.median, most=most)


def _measured(sizes: Sizes) -> dict[str, Any]:
    """What process 0 measured: per link and compressor the seconds of every round's hops, and the messages' bytes."""
    # forked off a server that has imported everything, and never off this process and its threads
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        members = [context.Process(target=_member, args=(rank, meeting, sizes, results)) for rank in range(2)]
        for member in members:
            member.start()
        found = results.get(timeout=3 * _TIMEOUT)
        for member in members:
            member.join()
    if isinstance(found, str):
        raise RuntimeError(found)
    return found


def _member(rank: int, meeting: str, sizes: Sizes, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    pace = Pace()
    ring = Ring(_NAMES, _TIMEOUT, pace=pace if rank == 1 else None)
    try:
        with ring.watch.working():
            if rank == 1:
                _send(ring, pace, sizes)
            else:
                results.put(_receive(ring, sizes))
        if rank == 0:
            ring.end()
    except Exception as error:
        results.put(f"{_NAMES[rank]}: {type(error).__name__}: {error}")
        raise


def _receive(ring: Ring, sizes: Sizes) -> dict[str, Any]:
    """Ask for every hop of every round, the order of compressors turning, and read what comes."""
    found: dict[str, Any] = {"bytes": {}, "seconds": {}}
    devices = [torch.device(sizes.device)] * sizes.shapes[0].layers
    for gigabits in sizes.links:
        for number in range(-1, sizes.rounds):
            turn = number % len(sizes.linked)
            for spec in sizes.linked[turn:] + sizes.linked[:turn]:
                hops, counts = [], []
                for hop in range(len(sizes.hops)):
                    ring.channel.send({"kind": "ask", "spec": spec, "hop": hop, "gigabits": gigabits})
                    message = ring.channel.receive()
                    reading = _timed(lambda message=message: received(message.bodies, "", devices), sizes)[1]
                    hops.append(message.header["seconds"] + message.seconds + reading)
                    counts.append(sum(map(len, message.bodies)))
                if number >= 0:
                    found["seconds"].setdefault((gigabits, spec), []).append(hops)
                found["bytes"][spec] = counts
    return found


def _send(ring: Ring, pace: Pace, sizes: Sizes) -> None:
    """Write and send the relays that are asked for."""
    relays = {spec: rollout(spec, sizes) for spec in sizes.linked}
    while (asked := ring.channel.receive().header)["kind"] != "end":
        pace.gigabits = asked["gigabits"]
        relay = relays[asked["spec"]][asked["hop"]]
        messages, seconds = _timed(lambda relay=relay: written(relay, ""), sizes)
        ring.channel.send({"kind": "relay", "seconds": seconds}, messages)
    ring.leave()


def _timed(work: Callable[[], Any], sizes: Sizes) -> tuple[Any, float]:
    started = time.perf_counter()
    done = work()
    if sizes.device == "cuda":
        torch.cuda.synchronize()
    return done, time.perf_counter() - started


def rollout(spec: str, sizes: Sizes) -> list[Relay]:
    """The relays of one question's hops, each compressed behind the one before."""
    compress = compressor(spec, RelaySettings(kv_budget=sizes.kv_budget))
    relays: list[Relay] = []
    for hop, prompt in enumerate(sizes.hops):
        relays.append(compress(_segment(relays[-1] if relays else None, prompt, hop, sizes)))
    return relays


def _segment(relay: Relay | None, prompt: int, hop: int, sizes: Sizes) -> Segment:
    """What an agent hands to its compressor: the relay before it, and random states of its own."""
    shape, generator = sizes.shapes[0], torch.Generator().manual_seed(hop)
    history, new = (relay.lengths[0] if relay else 0), prompt + sizes.latent_steps
    cursor = (relay.cursors[0] if relay else 0) + new

    def grown(before: torch.Tensor | None) -> torch.Tensor:
        own = torch.randn(1, shape.kv_heads, new, shape.head_dim, generator=generator)
        own = own.to(sizes.device, getattr(torch, sizes.link_dtype))
        return own if before is None else torch.cat([before, own], dim=2)

    held = [relay.layer(layer) if relay else (None, None) for layer in range(shape.layers)]
    stand = torch.arange(cursor - new, cursor, dtype=torch.int32, device=sizes.device)[None, None]
    before = relay.positions if relay else [stand[..., :0]] * shape.layers
    return Segment(
        keys=tuple(grown(keys) for keys, _ in held),
        values=tuple(grown(values) for _, values in held),
        mass=tuple(
            torch.rand(1, shape.kv_heads, history + new, generator=generator).to(sizes.device)
            for _ in range(shape.layers)
        ),
        history=(history,),
        prompt=(prompt,),
        latent=(sizes.latent_steps,),
        sink=relay.sinks if relay else (RelaySettings().sink_size,),
        cursors=(cursor,),
        positions=tuple(torch.cat([there, stand.expand(-1, there.shape[1], -1)], dim=2) for there in before),
        origins=relay.origins if relay else None,
    )
