"""Report what torch.compile did in a run, as text and JSON, compared with a run without compilation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from statistics import quantiles
from typing import Any

from distdbg.evidence.jsonl import finite, integer, number
from distdbg.evidence.run import GuardFact, RunEvidence
from distdbg.model import Unknown
from distdbg.wording import counted, name_ranks

SCHEMA = "distdbg.compile/1"
#: Timed steps that are needed for a spread.
_FEWEST = 5
#: From such a first difference on, the two did not begin from the same numbers.
_OTHER_START = 0.01
#: How losses.py writes what JSON has no number for.
_NO_NUMBER = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
#: (line of the backward, step) -> loss
Losses = Mapping[tuple[str, int], float]


@dataclass(frozen=True)
class CompiledLine:
    """A line with a graph break, or a guard that failed; `why` is torch's reason."""

    where: str
    why: str
    count: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Speed:
    """Milliseconds of the steps in which nothing was compiled: median and quartiles."""

    steps: int
    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Bad:
    """The first step with a loss that is not finite; `stays` where no later one is finite either."""

    step: int
    stays: bool

    @property
    def when(self) -> str:
        return f"from step {self.step} on" if self.stays else f"at step {self.step}"


@dataclass(frozen=True)
class Compiled:
    """`difference` is the largest relative one of the first losses, and its step; None where they were not compared.
    `compared` counts the steps in which both are finite; `bad` is what is not, of the steps that both runs have.
    """

    graphs: int
    functions: int
    seconds: float
    breaks: tuple[CompiledLine, ...]
    recompiles: tuple[CompiledLine, ...]
    speed: Speed | None
    eager: Speed | None = None
    difference: tuple[float, int] | None = None
    compared: int = 0
    bad: Bad | None = None
    eager_bad: Bad | None = None
    unknown: tuple[Unknown, ...] = ()


def build(run: RunEvidence, eager: RunEvidence | None = None) -> Compiled:
    """Compare a run with `--watch compile` and one without compilation, by the first rank that reports figures."""
    fields, speed = _fields(run), _speed(run)
    unknown: list[Unknown] = []
    if not _facts(run, "compile"):
        unknown.append(Unknown("what was compiled", "no rank reported it: each ended before its script did"))
    if speed is None:
        unknown.append(Unknown("step time", f"under {_FEWEST} steps went by after the first three without compiling"))
    slow, difference, compared = None, None, 0
    bad: tuple[Bad | None, Bad | None] = None, None
    if eager is not None:
        slow = _speed(eager)
        ours, theirs = _in_both(_losses(fields), _losses(_fields(eager)))
        difference, compared, why = _difference(ours, theirs)
        bad = _bad(ours), _bad(theirs)
        unknown += [Unknown("step time without compilation", "too few steps")] if slow is None else []
        unknown += [Unknown("whether the losses are the same", why)] if why else []
    return Compiled(
        integer(fields, "compiled") or 0, integer(fields, "functions") or 0, number(fields, "seconds") or 0.0,
        _places(run, "graph-break", "reason"), _places(run, "recompile", "guard_failed"), speed, slow, difference,
        compared, *bad, tuple(unknown),
    )  # fmt: skip


def as_json(found: Compiled) -> dict[str, Any]:
    """`distdbg.compile/1`."""
    largest, step = found.difference or (None, None)
    return {
        "schema": SCHEMA, "graphs": found.graphs, "functions": found.functions, "seconds": found.seconds,
        "graph_breaks": [asdict(line) | {"ranks": list(line.ranks)} for line in found.breaks],
        "recompiles": [asdict(line) | {"ranks": list(line.ranks)} for line in found.recompiles],
        "step_ms": asdict(found.speed) if found.speed else None,
        "eager_step_ms": asdict(found.eager) if found.eager else None,
        "losses": {"compared": found.compared, "largest_relative_difference": largest, "at_step": step,
                   "first_not_finite": {"compiled": found.bad and found.bad.step,
                                        "eager": found.eager_bad and found.eager_bad.step}},
        "unknown": [{"what": u.what, "because": u.because} for u in found.unknown],
    }  # fmt: skip


def text(found: Compiled, width: int = 100) -> str:
    """The report as text, without a final newline."""
    return "\n".join(_lines(found, width))


def _lines(found: Compiled, width: int) -> Iterable[str]:
    if found.graphs:
        graphs, functions = counted(found.graphs, "graph"), counted(found.functions, "function")
        yield f"{graphs} of {functions} compiled, {found.seconds:.1f} s spent compiling"
    else:
        yield "Nothing was compiled: the script calls no torch.compile, or nothing that was compiled ran."
    for title, none, places in (("Graph breaks", "No graph breaks.", found.breaks),
                                ("Recompilations", "No recompilations.", found.recompiles)):  # fmt: skip
        if not found.graphs:
            continue
        yield ""
        yield title if places else none
        for place in places:
            yield f"  {place.where}  x{place.count}  {name_ranks(place.ranks)}"
            yield from textwrap.wrap(place.why, width, initial_indent="    ", subsequent_indent="    ",
                                     break_long_words=False)  # fmt: skip
    lines = [*_speeds(found), *_how_alike(found)]
    yield from ["", *lines] if lines else []
    for unknown in found.unknown:
        yield f"Unknown: {unknown.what}, because {unknown.because}"


def _speeds(found: Compiled) -> Iterable[str]:
    for name, speed in (("compiled", found.speed), ("eager", found.eager)):
        if speed is not None:
            yield (f"{name:<9} {speed.median:.4g} ms a step ({speed.low:.4g} to {speed.high:.4g}, {speed.steps} steps "
                   "in which nothing was compiled)")  # fmt: skip
    if found.speed is not None and found.eager is not None:
        times = found.eager.median / found.speed.median
        apart = found.speed.high < found.eager.low or found.eager.high < found.speed.low
        word = f"compiled is {times:.3g} times as fast" if times >= 1 else f"compiled is {1 / times:.3g} times as slow"
        yield word if apart else "no difference in speed beyond the spread of both"


def _how_alike(found: Compiled) -> Iterable[str]:
    bad, eager = found.bad, found.eager_bad
    if found.difference is not None:
        largest, step = found.difference
        words = f"largest relative difference {largest:.2g}, at step {step}" if largest else "the same to the bit"
        which = "steps in which both are finite" if bad or eager else "steps"
        yield f"losses of the first {found.compared} {which}: {words}"
    if bad is not None and bad == eager:
        yield f"{bad.when} the loss is NaN or infinite in both"
    elif bad is not None:
        yield f"{bad.when} the compiled loss is NaN or infinite, the eager one {eager.when if eager else 'is finite'}"
    elif eager is not None:
        yield f"{eager.when} the eager loss is NaN or infinite, the compiled one is finite"


def _facts(run: RunEvidence, guard: str) -> list[GuardFact]:
    return [fact for rank in run.ranks for fact in rank.guards if fact.guard == guard]


def _fields(run: RunEvidence) -> Mapping[str, Any]:
    return next((fact.fields for fact in _facts(run, "compile")), {})


def _places(run: RunEvidence, guard: str, reason: str) -> tuple[CompiledLine, ...]:
    """The same line and reason on several ranks is one; the most frequent first."""
    found: dict[tuple[str, str], tuple[int, list[int]]] = {}
    for fact in _facts(run, guard):
        file, line, function = fact.where or ("?", 0, "?")
        key = f"{file.rpartition('/')[2]}:{line} in {function}", str(fact.fields.get(reason))
        count, ranks = found.get(key, (0, []))
        found[key] = max(count, integer(fact.fields, "count") or 1), [*ranks, fact.rank]
    places = [CompiledLine(where, why, count, tuple(ranks)) for (where, why), (count, ranks) in found.items()]
    return tuple(sorted(places, key=lambda place: -place.count))


def _speed(run: RunEvidence) -> Speed | None:
    for fact in _facts(run, "compile"):
        step_ms = fact.fields.get("step_ms")
        times = [t for t in map(finite, step_ms) if t is not None] if isinstance(step_ms, list) else []
        if len(times) >= _FEWEST:
            low, middle, high = quantiles(times, n=4, method="inclusive")
            return Speed(len(times), round(low, 4), round(middle, 4), round(high, 4))
    return None


def _losses(fields: Mapping[str, Any]) -> Losses:
    series = fields.get("losses")
    return {
        (line, pair[0]): value
        for line, pairs in (series.items() if isinstance(series, dict) else ())
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2 and (value := _loss(pair[1])) is not None
    }


def _loss(value: object) -> float | None:
    return _NO_NUMBER.get(value) if isinstance(value, str) else number({"loss": value}, "loss")


def _in_both(a: Losses, b: Losses) -> tuple[Losses, Losses]:
    """What both have, by step."""
    both = sorted(a.keys() & b.keys(), key=lambda key: key[1])
    return {key: a[key] for key in both}, {key: b[key] for key in both}


def _bad(losses: Losses) -> Bad | None:
    finite = [isfinite(loss) for loss in losses.values()]
    if all(finite):
        return None
    at = finite.index(False)
    return Bad([step for _, step in losses][at], not any(finite[at:]))


def _difference(a: Losses, b: Losses) -> tuple[tuple[float, int] | None, int, str]:
    """(largest, its step), how many steps were compared, and why the answer may not be one."""
    if not a:
        return None, 0, "the two runs have no step with a loss in common"
    both = [key for key in a if isfinite(a[key]) and isfinite(b[key])]
    if not both:
        return None, 0, ""
    apart = [(abs(a[key] - b[key]) / max(abs(a[key]), abs(b[key]), 1e-12), key[1]) for key in both]
    why = ""
    if apart[0][0] > _OTHER_START:
        why = (f"they differ by {100 * apart[0][0]:.0f} % at step {apart[0][1]} already: is the script seeded? Random "
               "numbers of compiled code are others, too")  # fmt: skip
    return max(apart), len({step for _, step in both}), why
