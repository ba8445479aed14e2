"""What the logs of a job say of one process, collected line by line."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from distdbg.evidence.logs.nccl import NcclLog
from distdbg.evidence.run import UNKNOWN_RANK, ExceptionFact, GuardFact, RankRecord
from distdbg.model import Citation


@dataclass(eq=False)
class LoggedProcess:
    """The fields are those of RankRecord. `rank` is UNKNOWN_RANK, and `place` says what else is known, where no line
    says the rank. `exit_citation` is None where no line says how it ended."""

    rank: int
    local_rank: int | None = None
    host: str = ""
    pid: int | None = None
    place: str = ""
    ended: float | None = None
    exit_code: int | None = None
    exit_path: str = ""
    exit_citation: Citation | None = None
    asked_to_stop: float | None = None
    ended_by_watchdog: bool = False
    exceptions: list[ExceptionFact] = field(default_factory=list)
    stderr_tail: str = ""
    stderr_path: str = ""
    stderr_first_line: int = 1
    nccl_tail: str = ""
    nccl_path: str = ""
    nccl: NcclLog | None = None
    guards: list[GuardFact] = field(default_factory=list)

    @classmethod
    def of_unknown_rank(
        cls, host: str = "", pod: str = "", pid: int | None = None, local_rank: int | None = None
    ) -> LoggedProcess:
        """Its place is `host node7`, `pid 7, pod train-3` or `local rank 3, host node7`."""
        where = f"host {host}" if host else f"pod {pod}" if pod else ""
        who = f"local rank {local_rank}" if local_rank is not None else f"pid {pid}" if pid is not None else ""
        return cls(UNKNOWN_RANK, local_rank, host or pod, pid, place=", ".join(filter(None, (who, where))))

    @property
    def says_nothing(self) -> bool:
        return not (self.exceptions or self.exit_code or self.nccl or self.guards)

    @property
    def only_nccl(self) -> bool:
        """It is known from a file of NCCL alone."""
        return self.nccl is not None and not self.stderr_path

    def record(self, node_rank: int) -> RankRecord:
        """Of a process of which nothing else is known."""
        return self._all_onto(RankRecord(self.rank, 0, node_rank, "", place=self.place))

    def added_to(self, record: RankRecord) -> RankRecord:
        """The record of the same rank with what it does not say itself."""
        return self._nccl_onto(record) if self.only_nccl else self._all_onto(record)

    def _nccl_onto(self, record: RankRecord) -> RankRecord:
        said = replace(record, host=record.host or self.host)
        if record.nccl is not None:
            return said
        return replace(said, nccl=self.nccl, nccl_tail=self.nccl_tail, nccl_path=self.nccl_path)

    def _all_onto(self, record: RankRecord) -> RankRecord:
        return replace(
            self._nccl_onto(record),
            local_rank=record.local_rank if self.local_rank is None else self.local_rank,
            pid=self.pid or record.pid,
            ended=record.ended if self.ended is None else self.ended,
            exit_code=self.exit_code,
            exit_unknown_because="its log does not tell" if self.exit_code is None else "",
            exit_path=self.exit_path or record.exit_path,
            exit_citation=self.exit_citation,
            asked_to_stop=record.asked_to_stop if self.asked_to_stop is None else self.asked_to_stop,
            from_log=True,
            ended_by_watchdog=self.ended_by_watchdog,
            exceptions=tuple(self.exceptions) or record.exceptions,
            guards=(*record.guards, *self.guards),
            stderr_tail=self.stderr_tail,
            stderr_path=self.stderr_path or record.stderr_path,
            stderr_first_line=self.stderr_first_line,
        )
