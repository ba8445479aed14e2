"""Search the largest value of a script's option, or the fewest GPUs, with which a job fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GPUS = "gpus"


@dataclass(frozen=True)
class Fit:
    """What is searched: `name` is `gpus`, or an option of the script without its dashes."""

    name: str
    low: int
    high: int

    @property
    def fewest(self) -> bool:
        """Whether less is wanted: of GPUs; of everything else as much as fits."""
        return self.name == GPUS

    def next_value(self, fits: Mapping[int, bool]) -> int | None:
        """What to try after these tries; None where the answer is known.

        Values are doubled from the low one until the answer changes, then halved between the last two. The number of
        GPUs is only doubled: jobs are seldom run on five.
        """
        if not fits:
            return self.low
        largest = max(fits)
        if fits[largest] is not self.fewest and largest < self.high:
            return min(2 * largest, self.high)
        if self.fewest:
            return None
        below = max((value for value, fitted in fits.items() if fitted), default=self.low - 1)
        above = min((value for value, fitted in fits.items() if not fitted), default=self.high + 1)
        middle = (below + above) // 2
        return middle if below < middle < above and below >= self.low else None

    def answer(self, fits: Mapping[int, bool]) -> int | None:
        """The best value that fits; None where none does."""
        fitted = [value for value, fitted in fits.items() if fitted]
        return (min(fitted) if self.fewest else max(fitted)) if fitted else None

    def arguments(self, program: Sequence[str], value: int) -> tuple[str, ...]:
        """The script and its arguments with that value: in place of the one that is given, else at the end.

        Spellings: `--batch-size 4`, `--batch-size=4`, and `batch_size=4` as Hydra has it.
        """
        if self.name == GPUS:
            return tuple(program)
        words, flag = list(program), f"--{self.name}"
        for at, word in enumerate(words[1:], 1):
            if word == flag and at + 1 < len(words):
                return (*words[: at + 1], str(value), *words[at + 2 :])
            name, equals, _ = word.partition("=")
            if equals and name in (flag, self.name):
                return (*words[:at], f"{name}={value}", *words[at + 1 :])
        return (*words, flag, str(value))
