"""Judge whether a model can memorize one batch, by the losses that a rank of `--overfit-batch` reports.

A training that works takes the loss of one repeated batch down by far more than a tenth within 100 steps: nothing but
that batch is asked of it. What falls by less may be slow (a warm-up, a small learning rate), and is unknown; what does
not fall by more than it wavers does not learn. The last losses count by their median, and waver by their quartiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Literal

from distdbg.evidence.jsonl import integer, number
from distdbg.wording import counted

Verdict = Literal["learns", "fails", "unknown"]
#: Of its start, the least by which the loss must fall to have learnt, and by which it has moved at all.
_LEARNT, _MOVED = 0.1, 0.01
_LAST = 10
_FEWEST = 5
#: A loss that begins so near to 0 has nothing to learn.
_NOTHING = 1e-3
_RISES = 1.05


@dataclass(frozen=True)
class Judged:
    """`words` are what the loss did, or why that is not known. `constant`: every loss was the same number."""

    verdict: Verdict
    words: str
    constant: bool = False


def judge(fields: Mapping[str, Any]) -> Judged:
    """Of one rank. Where several lines begin a backward, all of their losses must agree; and where all of them moved
    without falling, they may be meant to work against each other, as a GAN's do.
    """
    because = _why_not(fields)
    if because:
        return Judged("unknown", because)
    judged = {line: _one(values, fields) for line, values in losses(fields).items() if values}
    verdicts = {j.verdict for j in judged.values()}
    if not judged:
        return Judged("unknown", "no backward began from one number")
    if len(judged) == 1:
        return next(iter(judged.values()))
    words = "; ".join(f"{_place(line)}: {j.words}" for line, j in judged.items())
    constant = any(j.constant for j in judged.values())
    words = f"{len(judged)} lines begin a backward, {words}"
    if verdicts == {"fails"} and all(map(_moved, losses(fields).values())) and number(fields, "highest_rate") != 0:
        return Judged("unknown", f"{words}; losses that work against each other do not fall")
    return Judged(verdicts.pop() if len(verdicts) == 1 else "unknown", words, constant)


def _why_not(fields: Mapping[str, Any]) -> str:
    steps = integer(fields, "steps") or 0
    if not steps:
        return "no optimizer stepped"
    if not integer(fields, "repeated"):
        why = fields.get("because") or "no DataLoader of torch gave a batch before the first backward"
        if steps < _FEWEST:
            why = f"the script ended by itself after {steps} steps"
        return f"the batch could not be repeated: {why}"
    if steps < _FEWEST:
        return f"the script ended by itself after {steps} of {integer(fields, 'wanted')} steps"
    return ""


def losses(fields: Mapping[str, Any]) -> dict[str, list[tuple[int, float | None]]]:
    """(step, loss) by the line that began the backward; None for what is not finite."""
    losses = fields.get("losses")
    return {line: _values(series) for line, series in losses.items()} if isinstance(losses, dict) else {}


def _values(series: object) -> list[tuple[int, float | None]]:
    pairs = [pair for pair in series if isinstance(pair, list) and len(pair) == 2] if isinstance(series, list) else []
    return [(pair[0], number({"loss": pair[1]}, "loss")) for pair in pairs if isinstance(pair[0], int)]


def _one(values: Sequence[tuple[int, float | None]], fields: Mapping[str, Any]) -> Judged:
    if values[-1][1] is None:
        bad = next(step for step, value in values if value is None)
        return Judged("fails", f"it was not finite from step {bad} on")
    finite = [value for _, value in values if value is not None]
    if len(finite) <= 2:
        return Judged("unknown", "it was seen too seldom")
    return _fell(finite, values[-1][0], fields)


def _fell(finite: Sequence[float], steps: int, fields: Mapping[str, Any]) -> Judged:
    start, last = finite[0], finite[1:][-_LAST:]
    low, _, high = quantiles(last, n=4, method="inclusive")
    end, waver = median(last), high - low
    fell, size = start - end, abs(start)
    words = f"from {start:.4g} to {end:.4g} in {steps} steps" + (f", wavering by {waver:.2g}" if waver else "")
    if size < _NOTHING:
        return Judged("unknown", f"it began at {start:.2g} already")
    if fell >= max(_LEARNT * size, waver):
        return Judged("learns", words)
    if fell > max(_MOVED * size, waver):
        return Judged("unknown", f"it fell by only {100 * fell / size:.0f} %: {words}; more steps may tell")
    if _warms_up(fields):
        return Judged("unknown", f"the learning rate was still rising at the end: {words}; more steps may tell")
    constant = set(finite) == {start}
    return Judged("fails", f"it did not move from {start:.4g} in {steps} steps" if constant else words, constant)


def _moved(values: Sequence[tuple[int, float | None]]) -> bool:
    """Whether the values change by more than rounding, and end at a finite number."""
    seen = [value for _, value in values]
    start = seen[0] if seen else None
    if start is None or seen[-1] is None:
        return False
    return any(value is not None and abs(value - start) > _MOVED * abs(start) for value in seen)


def _warms_up(fields: Mapping[str, Any]) -> bool:
    rates = fields.get("rates")
    if not isinstance(rates, list) or len(rates) != 2 or not all(isinstance(rate, (int, float)) for rate in rates):
        return False
    return bool(rates[1] > _RISES * rates[0] and rates[1] > 0)


def reasons(fields: Mapping[str, Any]) -> Iterable[str]:
    """What the parameters show, as sentences: it may be why, and may be as it is meant."""
    if (integer(fields, "steps") or 0) and number(fields, "highest_rate") == 0:
        yield "The learning rate is 0 at every step."
    words = {
        "not_owned": "with a gradient that no optimizer that steps holds",
        "without_grad": "held by an optimizer that never got a gradient",
        "not_owned_without_grad": "with requires_grad, no gradient, and no optimizer",
        "frozen": "held by an optimizer and frozen (requires_grad is off)",
    }
    for word, meaning in words.items():
        found = fields.get(word)
        if isinstance(found, dict) and (count := integer(found, "count")):
            names = found.get("names")
            shown = [str(name) for name in names] if isinstance(names, list) else []
            more = ", …" if count > len(shown) else ""
            yield f"{counted(count, 'parameter')} {meaning}: {', '.join(shown)}{more}."


def noise(fields: Mapping[str, Any]) -> str:
    """What makes the loss waver though the batch is the same."""
    count = integer(fields, "dropout") or 0
    return f"{count} dropout module{'s were' if count > 1 else ' was'} on: the loss wavers." if count else ""


def _place(line: str) -> str:
    return line.rpartition("/")[2]
