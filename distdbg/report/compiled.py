"""What torch.compile made of a run, as a table and as JSON; and beside it the same run without compilation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from distdbg.evidence.jsonl import integer, number
from distdbg.evidence.run import GuardFact, RunEvidence
from distdbg.model import Unknown, fold_ranks

SCHEMA = "distdbg.compile/1"
#: Timed steps that are needed for a spread.
_FEWEST = 5
#: From such a first difference on, the two did not begin from the same numbers.
_OTHER_START = 0.01


@dataclass(frozen=True)
class Place:
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
class Compiled:
    """`difference` is the largest relative one of the first losses, and its step; None where they were not compared."""

    graphs: int
    functions: int
    seconds: float
    breaks: tuple[Place, ...]
    recompiles: tuple[Place, ...]
    speed: Speed | None
    eager: Speed | None = None
    difference: tuple[float, int] | None = None
    compared: int = 0
    unknown: tuple[Unknown, ...] = ()


def build(run: RunEvidence, eager: RunEvidence | None = None) -> Compiled:
    """From a run with `--watch compile`, and one without compilation. Figures are of the first rank that told any."""
    told, speed = _told(run), _speed(run)
    unknown: list[Unknown] = []
    if not _facts(run, "compile"):
        unknown.append(Unknown("what was compiled", "no rank told it: it ended before its script did"))
    if speed is None:
        unknown.append(Unknown("step time", f"under {_FEWEST} steps went by after the first three without compiling"))
    slow, difference, compared = None, None, 0
    if eager is not None:
        slow = _speed(eager)
        difference, compared, why = _difference(_losses(told), _losses(_told(eager)))
        unknown += [Unknown("step time without compilation", "too few steps")] if slow is None else []
        unknown += [Unknown("whether the losses are the same", why)] if why else []
    return Compiled(
        integer(told, "compiled") or 0, integer(told, "functions") or 0, number(told, "seconds") or 0.0,
        _places(run, "graph-break", "reason"), _places(run, "recompile", "guard_failed"), speed, slow, difference,
        compared, tuple(unknown),
    )  # fmt: skip


def as_json(found: Compiled) -> dict[str, Any]:
    """`distdbg.compile/1`."""

    def places(them: Sequence[Place]) -> list[dict[str, Any]]:
        return [{"where": p.where, "why": p.why, "count": p.count, "ranks": list(p.ranks)} for p in them]

    def speed(of: Speed | None) -> dict[str, Any] | None:
        return None if of is None else {"steps": of.steps, "low": of.low, "median": of.median, "high": of.high}

    largest, step = found.difference or (None, None)
    return {
        "schema": SCHEMA, "graphs": found.graphs, "functions": found.functions, "seconds": found.seconds,
        "graph_breaks": places(found.breaks), "recompiles": places(found.recompiles),
        "step_ms": speed(found.speed), "eager_step_ms": speed(found.eager),
        "losses": {"compared": found.compared, "largest_relative_difference": largest, "at_step": step},
        "unknown": [{"what": u.what, "because": u.because} for u in found.unknown],
    }  # fmt: skip


def text(found: Compiled, width: int = 100) -> str:
    """Without a newline at its end."""
    return "\n".join(_lines(found, width))


def _lines(found: Compiled, width: int) -> Iterable[str]:
    if found.graphs:
        yield (f"{found.graphs} graph{'s' * (found.graphs != 1)} of {found.functions} function"
               f"{'s' * (found.functions != 1)} compiled, {found.seconds:.1f} s spent compiling")  # fmt: skip
    else:
        yield "Nothing was compiled: the script calls no torch.compile, or nothing that was compiled ran."
    for title, none, places in (("Graph breaks", "No graph breaks.", found.breaks),
                                ("Recompilations", "No recompilations.", found.recompiles)):  # fmt: skip
        if not found.graphs:
            continue
        yield ""
        yield title if places else none
        for place in places:
            head = f"  {place.where}  x{place.count}  rank{'s' * (len(place.ranks) > 1)} {fold_ranks(place.ranks)}"
            yield head
            yield from textwrap.wrap(place.why, width, initial_indent="    ", subsequent_indent="    ",
                                     break_long_words=False)  # fmt: skip
    yield from _compared(found)
    for unknown in found.unknown:
        yield f"Unknown: {unknown.what}, because {unknown.because}"


def _compared(found: Compiled) -> Iterable[str]:
    if found.speed is None and found.eager is None:
        return
    yield ""
    for name, speed in (("compiled", found.speed), ("eager", found.eager)):
        if speed is not None:
            yield (f"{name:<9} {speed.median:.4g} ms a step ({speed.low:.4g} to {speed.high:.4g}, {speed.steps} steps "
                   "in which nothing was compiled)")  # fmt: skip
    if found.speed is not None and found.eager is not None:
        times, apart = found.eager.median / found.speed.median, _apart(found.speed, found.eager)
        word = f"compiled is {times:.3g} times as fast" if times >= 1 else f"compiled is {1 / times:.3g} times as slow"
        yield word if apart else "no difference in speed beyond the spread of both"
    if found.difference is not None:
        largest, step = found.difference
        words = f"largest relative difference {largest:.2g}, at step {step}" if largest else "the same to the bit"
        yield f"losses of the first {found.compared} steps: {words}"


def _apart(a: Speed, b: Speed) -> bool:
    return a.high < b.low or b.high < a.low


def _facts(run: RunEvidence, guard: str) -> list[GuardFact]:
    return [fact for rank in run.ranks for fact in rank.guards if fact.guard == guard]


def _told(run: RunEvidence) -> Mapping[str, Any]:
    return next((fact.fields for fact in _facts(run, "compile")), {})


def _places(run: RunEvidence, guard: str, reason: str) -> tuple[Place, ...]:
    """The same line and reason on several ranks is one; the most frequent first."""
    found: dict[tuple[str, str], tuple[int, list[int]]] = {}
    for fact in _facts(run, guard):
        file, line, function = fact.where or ("?", 0, "?")
        key = f"{file.rpartition('/')[2]}:{line} in {function}", str(fact.fields.get(reason))
        count, ranks = found.get(key, (0, []))
        found[key] = max(count, integer(fact.fields, "count") or 1), [*ranks, fact.rank]
    places = [Place(where, why, count, tuple(ranks)) for (where, why), (count, ranks) in found.items()]
    return tuple(sorted(places, key=lambda place: -place.count))


def _speed(run: RunEvidence) -> Speed | None:
    for fact in _facts(run, "compile"):
        told = fact.fields.get("step_ms")
        times = [float(t) for t in told if isinstance(t, (int, float))] if isinstance(told, list) else []
        if len(times) >= _FEWEST:
            low, middle, high = quantiles(times, n=4, method="inclusive")
            return Speed(len(times), round(low, 4), round(middle, 4), round(high, 4))
    return None


def _losses(told: Mapping[str, Any]) -> dict[tuple[str, int], float]:
    """By line and step."""
    series = told.get("losses")
    return {
        (line, pair[0]): value
        for line, pairs in (series.items() if isinstance(series, dict) else ())
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2 and (value := number({"loss": pair[1]}, "loss")) is not None
    }


def _difference(
    a: Mapping[tuple[str, int], float], b: Mapping[tuple[str, int], float]
) -> tuple[tuple[float, int] | None, int, str]:
    """(largest, its step), how many steps were compared, and why the answer may not be one."""
    both = sorted(a.keys() & b.keys(), key=lambda key: key[1])
    if not both:
        return None, 0, "the two runs have no step with a loss in common"
    apart = [(abs(a[key] - b[key]) / max(abs(a[key]), abs(b[key]), 1e-12), key[1]) for key in both]
    why = ""
    if apart[0][0] > _OTHER_START:
        why = (f"they differ by {100 * apart[0][0]:.0f} % at step {apart[0][1]} already: is the script seeded? Random "
               "numbers of compiled code are others, too")  # fmt: skip
    return max(apart), len({step for _, step in both}), why
