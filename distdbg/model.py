"""The types that every part shares: findings, their evidence, the report. Frozen, plain, pure.

The JSON forms of these are the contract `distdbg.report/1`; field names here are the keys there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, TypeVar

REPORT_SCHEMA = "distdbg.report/1"
#: The largest plausible world size, twice the largest job that is known of. What a person or a file names beyond it is
#: refused: each rank costs a reader about 3 KiB and 0.1 ms.
MOST_RANKS = 200_000

#: Epoch seconds, in the year 2242: of a later time no calendar date is made.
MAX_TIME_S = 2**33

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

Severity = Literal["error", "warning", "info"]
Confidence = Literal["certain", "likely", "possible"]
Outcome = Literal["succeeded", "failed", "hung", "cancelled", "unknown"]


class CauseClass(IntEnum):
    """How near to the root of a failure a finding stands; lower is nearer.

    The order is what experience with interleaved logs teaches: a rank whose exception is still in flight
    began it even when it dies last, and a communication error or a SIGTERM is almost always a consequence.
    """

    EXCEPTION_IN_FLIGHT = 0
    UNCAUGHT_ERROR = 1
    KILLED_OR_OOM = 2
    EARLY_EXIT = 3
    #: it lives, and keeps the others waiting
    STUCK = 4
    COMMUNICATION = 5
    VICTIM = 6
    #: not about the end of the job at all (a warning, a hint)
    OBSERVATION = 7


@dataclass(frozen=True)
class Citation:
    """The place of a finding's evidence. `path` is relative to the run directory; `line` is 1-based or None."""

    path: str
    line: int | None = None
    where: str | None = None
    quote: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, for one cause. `id` is a contract; `first_seen` (epoch seconds) orders equals."""

    id: str
    severity: Severity
    confidence: Confidence
    summary: str
    cause: str = ""
    remedy: str = ""
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    step: int | None = None
    explained_by: str | None = None
    evidence: tuple[Citation, ...] = ()
    cause_class: CauseClass = CauseClass.OBSERVATION
    first_seen: float | None = None
    #: of a job on GPUs: whether the host of these ranks is at fault, or their device. None where that is no question.
    side: Literal["host", "device"] | None = None
    #: of a hang: the part of the model whose operation the ranks wait in, and forward or backward; empty where unknown
    module: str = ""
    phase: str = ""


@dataclass(frozen=True)
class LintDoc:
    """How lint detects a finding without a run. What is empty is as in the entry itself."""

    how_seen: str
    severity: Severity | None = None
    title: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class FindingDoc:
    """What `distdbg findings ID` prints. `source` is a paper, a page of documentation or an upstream issue."""

    id: str
    severity: Severity
    title: str
    meaning: str
    how_seen: str
    remedy: str
    source: str = ""
    lint: LintDoc | None = None


@dataclass(frozen=True)
class Unknown:
    """What could not be found out, and why: "skipped, because" is data.

    `decisive`: evidence is lost, or something is wrong, so that an answer without findings is not "nothing found".
    """

    what: str
    because: str
    decisive: bool = False
    #: of preflight: the row of the table, and the nodes that it is not known of
    row: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RankSummary:
    rank: int
    node: str
    state: str
    step: int | None = None
    top_frame: str | None = None


@dataclass(frozen=True)
class Report:
    """A whole answer. `run` holds id, path, name, argv, started, ended, world_size …; None where there is no run."""

    outcome: Outcome | None
    findings: tuple[Finding, ...]
    run: dict[str, Any] | None = None
    exit_code: int | None = None
    exit_code_of: str | None = None
    unknown: tuple[Unknown, ...] = ()
    ranks: tuple[RankSummary, ...] = ()

    @property
    def verdict(self) -> tuple[Finding, ...]:
        """The findings that no other finding explains."""
        return tuple(f for f in self.findings if f.explained_by is None)

    @property
    def undecided(self) -> bool:
        """Something is wrong and no finding of severity error says what: exit code 11."""
        if self.outcome in ("succeeded", "cancelled") or any(f.severity == "error" for f in self.findings):
            return False
        return self.outcome in ("hung", "failed") or any(unknown.decisive for unknown in self.unknown)


def is_plausible_time(t: float) -> bool:
    """Whether a number from a file can be epoch seconds of a job: a date can be made of it."""
    return 0 <= t < MAX_TIME_S


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """The values of each key, in the order of the pairs."""
    found: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def fold_ranks(ranks: Iterable[int]) -> str:
    """Ranks as people write them: `0-3,7`. Empty for none."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def unfold_ranks(text: str) -> tuple[int, ...]:
    """The reverse of fold_ranks; raises ValueError with a sentence for what is not such a list."""
    ranks: set[int] = set()
    count = 0
    for part in filter(None, (p.strip() for p in text.split(","))):
        first, dash, last = part.partition("-")
        if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in (first, last if dash else first)):
            raise ValueError(f"{part[:40]!r} is neither a rank nor a range such as 0-7")
        low, high = int(first), int(last or first)
        if high < low:
            raise ValueError(f"{part!r} counts backwards")
        count += high - low + 1
        if high >= MOST_RANKS or count > MOST_RANKS:
            raise ValueError(f"{part!r} names ranks beyond {MOST_RANKS:,}, and no job has more")
        ranks.update(range(low, high + 1))
    return tuple(sorted(ranks))
