"""Read what ProcessGroupNCCL's watchdog wrote into a log as a flight recorder of each rank.

At a timeout the watchdog of each rank writes the operation that timed out, and the sequence numbers that its host has
enqueued and its device has completed last. That is the device timeline, and it needs no dump. The form of the lines
changed between torch 2.1 and 2.13 (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, logPrefix and
checkAndSetException); the parts that are read here did not.

The rank of a line is that of its `[rankN]:`. `Rank N` within the line is the group's own count, which is the rank of
the job in the default group only.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from distdbg.evidence.ops import find
from distdbg.evidence.recorder.log import GroupLog, RecorderLog, Signature, Signatures, Transfer
from distdbg.model import MOST_RANKS

_LINE = re.compile(r"ProcessGroupNCCL\.cpp|WorkNCCL\(|NCCL work|join collective #")
_RANK = re.compile(r"\[rank(\d{1,7})\]:")
_GROUP = re.compile(
    r"\[PG (?:ID (?P<id>\d{1,9}) PG GUID (?P<name>[^\s()\]]{1,200})(?:\((?P<description>[^()\]]{0,200})\))?"
    r"|(?P<old>\d{1,9}))? ?Rank (?P<rank>\d{1,7})\]"
)
_ALONE = re.compile(r"\[Rank (\d{1,7})\]")
_TIMED_OUT = re.compile(
    r"Watchdog caught collective operation timeout: "
    r"WorkNCCL\(SeqNum=(?P<sequence>\d{1,18}), OpType=(?P<operation>\w{1,60})"
    r"(?:, (?:Numel|Tensor)In=(?P<size>\d{1,18}))?"
)
_STATUS = re.compile(
    r"last enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,18})"
    r"(?:, last started work: (?P<started>-?\d{1,18}))?.{0,200}?"
    r"last completed (?:NCCL )?work: (?P<completed>-?\d{1,18})",
    re.IGNORECASE,
)
#: The line with a group's status says which of its operations it is about.
_ABOUT = re.compile(r"(?:work sequence id|Timeout at NCCL work|watchdog at work): (\d{1,18})")
#: of the report that TORCH_NCCL_DESYNC_DEBUG adds
_LAGGING = re.compile(
    r"\[(?P<ranks>[\d, ]{1,10000})\] finished collective #\d{1,18}, but didn't join collective #(?P<next>\d{1,18})"
)
#: What the watchdog writes as soon as NCCL reports an error; it ends the process a minute later.
_ERROR = re.compile(
    r"(?:WorkNCCL\(SeqNum=\d{1,18}, OpType=\w{1,60}[^\n]{0,300}?raised the following async exception"
    r"|nccl hit async error on rank \d{1,7}): (?P<message>[^\n]{1,500})"
)
_LAST_ERROR = re.compile(r"^Last error:\n(?P<message>[^\n]{1,500})", re.MULTILINE)


@dataclass(frozen=True)
class NcclError:
    """An error that NCCL reported while the process lived. `line` is 1-based in the text."""

    message: str
    line: int


def nccl_error(text: str) -> NcclError | None:
    """The first one that a rank's watchdog wrote into its log, with NCCL's own last error where it stands below."""
    found = _ERROR.search(text)
    if found is None:
        return None
    own = _LAST_ERROR.search(text, found.end())
    message = found["message"].strip() + (f" ({own['message'].strip()})" if own is not None else "")
    return NcclError(message, text.count("\n", 0, found.start()) + 1)


@dataclass
class _Group:
    """What one rank's watchdog wrote of one group."""

    description: str = ""
    enqueued: int = -1
    completed: int = -1
    started: int = -1
    #: sequence number, operation and size of what timed out
    open: tuple[int, str, int | None] | None = None


@dataclass
class Watchdogs:
    """What the watchdogs of a job wrote, from one log after another.

    `ranks` has the groups of each rank that wrote, by name. `lagging` are ranks that the desync report names, with
    the sequence number that they have not joined. `paths` has the first log that names a rank.
    """

    ranks: dict[int, dict[str, _Group]] = field(default_factory=dict)
    lagging: dict[int, int] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)

    def recorders(self, signatures: Signatures, *, operations: bool = True) -> dict[int, RecorderLog]:
        """One for each rank that wrote or was named; it has the last operations only.

        Without `operations` they are left out: the lines count the elements of an operation and a recorder has their
        shape, so that the two cannot be compared.
        """
        found = {rank: _recorder(groups, signatures, operations) for rank, groups in self.ranks.items() if groups}
        for rank, number in self.lagging.items():
            if rank not in found:
                group = GroupLog("0", "default_pg", comm="nccl", enqueued=number - 1)
                found[rank] = RecorderLog({("0", "nccl"): group})
        return found

    def read(self, lines: Iterable[str], rank: int | None = None, path: str = "") -> None:
        """`rank` is whose log it is, None for one of several ranks; `path` is what citations call it."""
        timed_out: dict[int, re.Match[str]] = {}
        for line in lines:
            if not speaks_of_watchdog(line):
                continue
            for named in self._read_lagging(line):
                self.paths.setdefault(named, path)
            group = _GROUP.search(line)
            owner = _owner(line, group, rank)
            if owner is None:
                continue
            own = self.ranks.setdefault(owner, {})
            self.paths.setdefault(owner, path)
            open_, status, about = _TIMED_OUT.search(line), _STATUS.search(line), _ABOUT.search(line)
            if open_ is not None:
                timed_out[owner] = open_
            elif owner in timed_out and about is not None and about[1] == timed_out[owner]["sequence"]:
                open_ = timed_out[owner]
            if group is None or not (status or open_):
                continue
            name = group["name"] or group["old"] or "0"
            one = own.setdefault(name, _Group(group["description"] or ("default_pg" if name == "0" else "")))
            if status is not None:
                _take(one, status)
            if open_ is not None and one.open is None:
                size = int(open_["size"]) if open_["size"] else None
                one.open = int(open_["sequence"]), open_["operation"], size

    def _read_lagging(self, line: str) -> Iterator[int]:
        for lagging in _LAGGING.finditer(line):
            for text in lagging["ranks"].split(","):
                if text.strip() and int(text) < MOST_RANKS:
                    self.lagging[int(text)] = int(lagging["next"])
                    yield int(text)


def speaks_of_watchdog(text: str) -> bool:
    """Whether a line of it is of the kind that `Watchdogs` reads."""
    return _LINE.search(text) is not None


def _owner(line: str, group: re.Match[str] | None, rank: int | None) -> int | None:
    if marked := _RANK.search(line):
        return int(marked[1]) if int(marked[1]) < MOST_RANKS else None
    if rank is not None:
        return rank
    if group is not None and (group["name"] or group["old"] or "0") == "0":
        return int(group["rank"])
    alone = _ALONE.search(line) if group is None else None
    return int(alone[1]) if alone is not None and int(alone[1]) < MOST_RANKS else None


def _take(group: _Group, status: re.Match[str]) -> None:
    """The last line of a rank counts; -1 says that the watchdog has not looked yet."""
    group.enqueued = max(group.enqueued, int(status["enqueued"] or -1))
    group.completed = max(group.completed, int(status["completed"] or -1))
    group.started = max(group.started, int(status["started"] or -1))


def _counts_apart(operation: str) -> bool:
    """Transfers, and batches of them, have numbers of their own, which differ between ranks; so has each rank's
    `last enqueued work` then. A coalesced operation may be such a batch."""
    known = find(operation)
    return known is not None and (known.is_transfer or known.name == "coalesced")


def _recorder(groups: Mapping[str, _Group], signatures: Signatures, operations: bool) -> RecorderLog:
    log = RecorderLog()
    for name, one in groups.items():
        if one.open is not None and _counts_apart(one.open[1]):
            log.transfers.append(Transfer(name, sends=False, peer=None, done=False, created=0))
            continue
        made = GroupLog(name, one.description, comm="nccl", enqueued=max(one.enqueued, 0))
        made.completed = max(one.completed, 0)
        if one.open is not None and operations:
            sequence, said, size = one.open
            operation = find(said)
            words = f"of {size} element{'' if size == 1 else 's'}" if size is not None else ""
            agree = (size,) if operation is not None and operation.equal_inputs else ()
            signature = Signature(operation.name if operation is not None else said.lower(), agree, words)
            made.sequence = range(sequence, sequence + 1)
            made.signature = signatures.shared(array("I", [signatures.add(signature)]))
            made.created, made.done = array("q", [0]), bytearray(1)
            made.started = one.started >= sequence if one.started >= 0 else None
        log.groups[name, "nccl"] = made
    return log
