"""Find the lines, and the thread, that began the operation which a rank waits in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from distdbg.diagnosis.timeline.call_lines import line_of
from distdbg.diagnosis.timeline.device import OpenOperation
from distdbg.diagnosis.timeline.groups import Group
from distdbg.diagnosis.timeline.seen import parts
from distdbg.diagnosis.timeline.standing import Standing
from distdbg.diagnosis.waits.graph import Wait
from distdbg.evidence.dump import Dump, RankDump
from distdbg.evidence.frames import Activity
from distdbg.evidence.ops import find, is_recorded_as
from distdbg.evidence.stacks.threads import Frame, Thread


def lines_of(
    dump: Dump, rank: int, operation: OpenOperation, known: Sequence[Group], host: tuple[Frame, ...]
) -> tuple[Frame, ...]:
    """Return the user's lines that enqueued an operation: by the recorder, else by the call that the rank wrote down,
    with the lines that called it if the host still stands below them."""
    if not operation.transfers and (lines := known[operation.group].logs[rank].lines):
        return lines
    line = line_of(dump.ranks[rank], operation.created, python_name(dump, operation))
    if line is None:
        return ()
    at = next((n for n, f in enumerate(host) if (f.file, f.function) == (line.file, line.function)), None)
    return (line,) if at is None else (line, *host[at + 1 :])


def python_name(dump: Dump, operation: OpenOperation) -> str:
    if operation.transfers:
        return "send" if operation.transfers[0].sends else "recv"
    return dump.signatures[operation.signature].operation


@dataclass(frozen=True)
class ThreadOperation:
    """An operation that is open in the group in which the thread that a standing describes waits for a newer one.

    `function` is its name and `frames` are the user's lines, innermost first. `thread` is the other thread that waits
    in it, empty if no stack shows one; `newer` is the function of the described thread.
    """

    group: str
    thread: str
    function: str
    frames: tuple[Frame, ...]
    newer: str


def find_thread_operations(
    dump: Dump, known: Iterable[Group], waits: Iterable[Wait], standings: dict[int, Standing]
) -> dict[int, ThreadOperation]:
    """By rank, of those whose host waits in the oldest of several open operations of one group.

    Without a recorder, of those that have one process group, in which two of their threads stand.
    """
    by_name = {(group.name, rank): group for group in known if not group.on_device for rank in group.logs}
    found: dict[int, ThreadOperation] = {}
    for wait in waits:
        for rank in () if wait.on_device else wait.waiting:
            group, operation = by_name.get((wait.group, rank)), None
            if standings[rank].thread:
                continue
            if wait.by_stacks:
                operation = _by_its_stack(dump.ranks[rank], standings[rank])
            elif group is not None and wait.sequence is not None:
                operation = _of_another_thread(dump, rank, group, wait.sequence, standings[rank])
            found.update({rank: operation} if operation is not None else {})
    return found


def _by_its_stack(had: RankDump, standing: Standing) -> ThreadOperation | None:
    if had.last.process.groups != 1:
        return None
    for thread in _other_threads(had):
        library, users = parts(thread.frames)
        function = next((f.function for f in library if f.activity is Activity.COLLECTIVE and find(f.function)), "")
        if users and function:
            return ThreadOperation("its only process group", thread.label, function, users, standing.function)
    return None


def _other_threads(had: RankDump) -> Iterator[Thread]:
    """Those of the rank's process but for the one that its standing describes."""
    return (t for t in had.first.threads if t.pid == had.pid and not t.ours and t != had.judged(had.first))


def _of_another_thread(
    dump: Dump, rank: int, group: Group, sequence: int, standing: Standing
) -> ThreadOperation | None:
    """By the thread's own stack, and by the call that the rank wrote down, if it did."""
    had, log = dump.ranks[rank], group.logs[rank]
    at = log.index(sequence)
    if at is None or log.done[at]:
        return None
    names = [dump.signatures[log.signature[n]].operation for n in range(at, len(log.sequence)) if not log.done[n]]
    operation, newer = names[0], next((name for name in names[1:] if is_recorded_as(standing.function, name)), "")
    line = line_of(had, log.created[at], operation)
    described = standing.frame
    if not newer or (line is None and newer == operation) or (line is not None and _same_line(line, described)):
        return None
    for thread in _other_threads(had):
        users = parts(thread.frames)[1]
        if users and _is_in(thread, operation) and (line is None or _same_line(line, users[0])):
            return ThreadOperation(group.title, thread.label, operation, users, standing.function)
    return ThreadOperation(group.title, "", operation, (line,), standing.function) if line is not None else None


def _same_line(one: Frame, other: Frame | None) -> bool:
    return other is not None and (one.file, one.line) == (other.file, other.line)


def _is_in(thread: Thread, operation: str) -> bool:
    """It stands in a function of torch.distributed that the recorder has under this name."""
    library = parts(thread.frames)[0]
    return any(f.activity is Activity.COLLECTIVE and is_recorded_as(f.function, operation) for f in library)
