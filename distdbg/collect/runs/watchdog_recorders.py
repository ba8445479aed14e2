"""Read what torch's watchdogs left of an attempt whose ranks they ended: recorders in files, and lines in the logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from distdbg.collect.files.recorder_files import RecorderReader, RecorderUnreadable
from distdbg.evidence.dump import Dump
from distdbg.evidence.logs.watchdog import Watchdogs
from distdbg.evidence.recorder.log import RecorderLog, Signatures
from distdbg.evidence.recorder.watchdog_dump import join_recorders
from distdbg.evidence.run import RankRecord
from distdbg.model import Unknown


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
