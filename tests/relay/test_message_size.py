"""How much smaller a packed relay is, in bytes of real messages at the shape of Qwen3-4B (8 KV heads of size 128)."""

from __future__ import annotations

import pytest
import torch

from lm_eval_latentmas.cache import Relay, Segment
from lm_eval_latentmas.relay import wire
from lm_eval_latentmas.relay.presets import compressor
from lm_eval_latentmas.relay.settings import RelaySettings

# every layer weighs the same, so two of the 36 give the same ratio
LAYERS, HEADS, SIZE, STEPS, SINK = 2, 8, 128, 40, 4


def next_segment(relay: Relay | None, prompt: int) -> Segment:
    """One row in bfloat16 that begins with what the relay brought."""
    history = relay.lengths[0] if relay else 0
    slots = history + prompt + STEPS
    generator = torch.Generator().manual_seed(history)

    def states(held: int) -> tuple[torch.Tensor, ...]:
        drawn = torch.randn(LAYERS, 1, HEADS, slots, SIZE, generator=generator).bfloat16()
        for layer in range(LAYERS if relay else 0):
            drawn[layer, :, :, :history] = relay.layer(layer)[held]
        return tuple(drawn)

    return Segment(
        keys=states(0),
        values=states(1),
        mass=tuple(torch.rand(LAYERS, 1, HEADS, slots, generator=generator)),
        history=(history,),
        prompt=(prompt,),
        latent=(STEPS,),
        sink=(SINK,),
        cursors=(slots,),
        positions=tuple(torch.arange(slots, dtype=torch.int32).view(1, 1, -1) for _ in range(LAYERS)),
        origins=relay.origins if relay else None,
    )


def three_hops(spec: str, prompts: list[int]) -> tuple[int, Relay]:
    """Bytes of the messages of three hops, and the last relay."""
    compress, relay, total = compressor(spec, RelaySettings()), None, 0
    for prompt in prompts:
        relay = compress(next_segment(relay, prompt))
        total += len(wire.encode(relay, fingerprint="Qwen/Qwen3-4B"))
    return total, relay


@pytest.mark.parametrize(("read", "ratio"), [(1012, 9.5), (524, 5.5)], ids=["MedQA", "GSM8K"])
def test_l_obf_at_8_bits_is_many_times_smaller_than_full(read: int, ratio: float) -> None:
    prompts = [read // 3, read // 3, read - 2 * (read // 3)]
    full, everything = three_hops("full", prompts)
    packed, kept = three_hops("l-obf-int8", prompts)
    assert full >= ratio * packed
    assert everything.prompt_states(0) == read
    assert kept.prompt_states(0) == 3 * 32 + SINK
