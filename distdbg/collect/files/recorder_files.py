"""Read recorder dumps of any origin in a child process that cannot execute them: recorder_child.py."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from distdbg.collect.files.child_limits import MOST_WALL_S, LostTime, why_it_ended, why_not_started
from distdbg.collect.files.recorder_child import MOST_CPU_S
from distdbg.evidence import jsonl
from distdbg.evidence.dump import Dump
from distdbg.evidence.logs.watchdog import Watchdogs
from distdbg.evidence.recorder.log import RecorderLog, Signatures
from distdbg.evidence.recorder.packed import Unpacker
from distdbg.evidence.recorder.watchdog_dump import join_recorders
from distdbg.evidence.run import RankRecord
from distdbg.model import Unknown

#: Bytes of an answer: a million entries take 21 MiB, the signatures of 2,000 entries less than 1 MiB.
_MOST_ANSWER = 64 << 20


class RecorderUnreadable(Exception):
    """Says why a file gave nothing."""


class RecorderReader:
    """Reads dumps one after another, in one child as long as it lives; `with` ends it."""

    def __init__(self, signatures: Signatures) -> None:
        self._signatures = signatures
        self._child: subprocess.Popen[bytes] | None = None
        self._unpacker = Unpacker(signatures)
        self._buffer = bytearray()
        self._lost = LostTime()

    def __enter__(self) -> RecorderReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def read(self, path: Path) -> RecorderLog:
        """Raises RecorderUnreadable."""
        if self._lost.spent:
            raise RecorderUnreadable(str(self._lost))
        begun = time.monotonic()
        try:
            return self._answer(path, begun + MOST_WALL_S)
        except RecorderUnreadable:
            self._lost.add(time.monotonic() - begun)
            raise

    def _answer(self, path: Path, until: float) -> RecorderLog:
        child = self._child or self._start()
        assert child.stdin is not None
        try:
            child.stdin.write(json.dumps(str(path.absolute())).encode() + b"\n")
            child.stdin.flush()
            head = jsonl.whole(self._until_newline(until).decode())
            if head is None:
                raise RecorderUnreadable("its reader answered nonsense")
            if "because" in head:
                if head.get("last"):
                    self._end()
                raise RecorderUnreadable(str(head["because"]))
            log = self._unpacker.unpack(head, self._exactly(head["bytes"], until))
        except (BrokenPipeError, EOFError, TimeoutError):
            raise RecorderUnreadable(self._why_it_ended()) from None
        if log.unused and not (log.groups or log.transfers):
            raise RecorderUnreadable("; ".join(f"{what} cannot be used: {why}" for what, why in log.losses()))
        return log

    def _start(self) -> subprocess.Popen[bytes]:
        self._buffer.clear()
        self._unpacker = Unpacker(self._signatures)
        command = [sys.executable, "-S", str(Path(__file__).with_name("recorder_child.py"))]
        pipe = subprocess.PIPE
        try:
            self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        except OSError as error:  # a limit on processes
            raise RecorderUnreadable(why_not_started(error)) from None
        return self._child

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _why_it_ended(self) -> str:
        child = self._child
        assert child is not None
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = child.wait(1.0)
        self._end()
        return why_it_ended(code, MOST_CPU_S)

    def _until_newline(self, until: float) -> bytes:
        while (at := self._buffer.find(b"\n")) < 0:
            self._more(until)
        return self._exactly(at + 1, until)

    def _exactly(self, count: int, until: float) -> bytes:
        while len(self._buffer) < count:
            self._more(until)
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def _more(self, until: float) -> None:
        assert self._child is not None and self._child.stdout is not None
        ready, _, _ = select.select([self._child.stdout], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise TimeoutError
        data = os.read(self._child.stdout.fileno(), 1 << 20)
        if not data or len(self._buffer) > _MOST_ANSWER:
            raise EOFError
        self._buffer += data


def add_watchdog_recorders(
    dump: Dump | None, records: Sequence[RankRecord], files: Mapping[int, tuple[Path, str]]
) -> tuple[Dump | None, list[Unknown]]:
    """`files` are each rank's recorder and its name in citations, where there is one. Never raises for bad content."""
    signatures = dump.signatures if dump is not None else Signatures()
    left: dict[int, tuple[RecorderLog, str]] = {}
    unknown: list[Unknown] = []
    with RecorderReader(signatures) as reader:
        for rank, (path, name) in files.items():
            try:
                left[rank] = reader.read(path), name
            except RecorderUnreadable as error:  # noqa: PERF203 -- one bad file
                unknown.append(Unknown(name, str(error), decisive=True))
    watchdogs = Watchdogs()
    for record in records:
        watchdogs.read(record.stderr_tail.split("\n"), record.rank, record.stderr_path)
    for rank, log in watchdogs.recorders(signatures, operations=not left).items():
        left.setdefault(rank, (log, watchdogs.paths[rank]))
    if not left:
        return dump, unknown
    return join_recorders(dump, left, records, Dump("", signatures=signatures)), unknown
