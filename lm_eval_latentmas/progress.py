"""One progress bar: samples done, samples a minute, and what the chain is doing."""

from __future__ import annotations

from tqdm import tqdm


class Progress:
    """A bar over samples; ``done`` of an earlier run are counted but not in the rate. Silent where ``quiet``."""

    def __init__(self, todo: int, *, done: int, quiet: bool) -> None:
        self._bar = tqdm(
            total=todo + done,
            initial=done,
            disable=quiet,
            desc="latentmas-obf",
            unit="sample",
            bar_format="{desc}: {n_fmt}/{total_fmt} |{bar}| {elapsed}<{remaining}{postfix}",
        )
        self._done = done

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def phase(self, name: str) -> None:
        """Show what is going on."""
        elapsed = self._bar.format_dict["elapsed"]
        rate = 60 * (self._bar.n - self._done) / elapsed if elapsed else 0.0
        self._bar.set_postfix_str(f"{rate:.1f} samples/min, {name}")

    def step(self) -> None:
        """One more sample is finished."""
        self._bar.update()
