"""One rank's failure, as checks see it."""

from __future__ import annotations

from dataclasses import dataclass

from distdbg.evidence.logs.messages import KnownMessage
from distdbg.evidence.run import RankRecord
from distdbg.evidence.stacks.tracebacks import TracebackFrame
from distdbg.model import CauseClass, Citation, Confidence


@dataclass(frozen=True)
class RankFailure:
    """One rank's failure. `finding` is the id it will get, `t` (epoch seconds) its first symptom.

    `kind` says what there is to show: an exception, a signal, a bare exit code, or an abort after the script's end.
    """

    rank: RankRecord
    kind: str
    finding: str
    cause_class: CauseClass
    confidence: Confidence
    t: float | None
    type: str = ""
    message: str = ""
    where: TracebackFrame | None = None
    #: the user's frames, innermost first
    frames: tuple[TracebackFrame, ...] = ()
    known: KnownMessage | None = None
    citation: Citation | None = None
    #: what happened between its cause and the rank's end, as a sentence
    course: str = ""
    #: what limits the confidence, in words
    doubt: str = ""
    signal: int | None = None
    #: of an error that may be none of the end's causes: what to take it for where another rank has a cause of its own
    otherwise: RankFailure | None = None

    @property
    def read_no_value(self) -> bool:
        """Whether its line reads a value of a device that computes none, as an assert in a rehearsal does."""
        return self.where is not None and (self.where.file, self.where.line) in self.rank.value_reads

    @property
    def headline(self) -> str:
        """`ValueError: the first line of the message`."""
        first = self.message.split("\n", 1)[0].strip()
        return f"{self.type}: {first}" if first and self.type else self.type or first


def line_of_file(rank: RankRecord, at: int) -> int | None:
    """1-based line of the file for a 0-based one of the tail; None where the file was too long to count."""
    return rank.stderr_first_line + at if rank.stderr_first_line else None
