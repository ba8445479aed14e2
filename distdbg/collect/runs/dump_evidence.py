"""Read a dump without its run: RunEvidence with the ranks of the dump."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from distdbg.collect.files.bounded_read import read_whole
from distdbg.collect.runs.dump_files import load_dump
from distdbg.collect.runs.known_secrets import known_secrets
from distdbg.evidence import jsonl
from distdbg.evidence.dump import Dump
from distdbg.evidence.recorder.log import RecorderLog
from distdbg.evidence.run import NodeRecord, RankRecord, RunEvidence
from distdbg.hidden_values import HiddenValues
from distdbg.model import Unknown, grouped
from distdbg.wording import name_ranks

_MOST_MANIFEST = 256 << 20


def is_dump(folder: Path) -> bool:
    """One of ours, whole or not: a manifest, or the part of a node."""
    manifest = jsonl.whole(read_whole(folder / "manifest.json", _MOST_MANIFEST)[0] or "") or {}
    return manifest.get("schema") == "distdbg.dump/1" or next((folder / "nodes").glob("[0-9]*.json"), None) is not None


def load_dump_alone(folder: Path, name: str = "") -> RunEvidence:
    """`name` begins the paths of citations; the folder's own name where it is empty. Never raises for bad content."""
    dump, unknown = load_dump(folder, name or folder.name)
    manifest = jsonl.whole(read_whole(folder / "manifest.json", _MOST_MANIFEST)[0] or "") or {}
    job = manifest.get("job")
    return evidence_of(dump, job if isinstance(job, dict) else {}, unknown)


def unseen(dump: Dump, *, recorders: bool = False) -> list[Unknown]:
    """Ranks that a dump has nothing of, and those without a stack, folded by the reason; with `recorders` those without
    a flight recorder, too."""
    reasons = grouped((("the state", because), rank) for rank, because in dump.missing.items())
    for rank, found in dump.ranks.items():
        why = found.last.missing.get("stacks")
        if why and not any(look.threads for look in found.looks):
            reasons.setdefault(("stacks", why), []).append(rank)
        if recorders and found.recorder is None and (why := found.last.missing.get("recorder")):
            reasons.setdefault(("the flight recorder", why), []).append(rank)
    return [Unknown(f"{what} of {name_ranks(ranks)}", why) for (what, why), ranks in reasons.items()]


def evidence_of(dump: Dump, job: Mapping[str, Any], unknown: list[Unknown]) -> RunEvidence:
    """`job` is the requester's description of the job: name, argv, cwd, world_size, doubles."""
    size = jsonl.world_size(job) or dump.world_size
    hosts = dict(sorted({rank.node_rank: rank.host for rank in dump.ranks.values()}.items()))
    doubles = job.get("doubles")
    if isinstance(doubles, list) and doubles:
        pids = ", ".join(str(pid) for pid in doubles[:8])
        unknown = [*unknown, Unknown(f"what pid {pids} is", "it has the rank of a process that was started before it")]
    unknown = [*unknown, *unseen(dump, recorders=True)]
    everybody = tuple(range(size)) if size and dump.has_all_ranks else ()
    words = job.get("argv")
    argv = [word for word in words if isinstance(word, str)] if isinstance(words, list) else []
    numbers = sorted({*dump.ranks, *dump.missing})
    counters: dict[int, Iterator[int]] = defaultdict(count)
    local = {n: next(counters[dump.ranks[n].node_rank]) for n in numbers if n in dump.ranks}
    return RunEvidence(
        job={"name": jsonl.text(job, "name") or None, "argv": argv, "cwd": jsonl.text(job, "cwd"),
             "topology": {"world_size": size} if size else {}},
        attempt=1,
        ranks=tuple(_rank(dump, number, local.get(number, 0), everybody) for number in numbers),
        nodes=tuple(NodeRecord(number, host) for number, host in hosts.items()),
        unknown=tuple(unknown),
        dump=dump,
        hidden=HiddenValues(known=known_secrets()),
    )  # fmt: skip


def _rank(dump: Dump, number: int, local_rank: int, everybody: tuple[int, ...]) -> RankRecord:
    found = dump.ranks.get(number)
    if found is None:
        return RankRecord(number, 0, 0, "", exit_unknown_because=dump.missing[number])
    log = found.recorder
    page = found.last.page
    return RankRecord(
        rank=number,
        local_rank=local_rank,
        node_rank=found.node_rank,
        host=found.host,
        pid=found.pid or None,
        step=page.step if page else None,
        phase=(page.phase or None) if page else None,
        initialised=log is not None and bool(log.groups),
        groups=dict(_groups(log, everybody)) if log else {},
    )


def _groups(log: RecorderLog, everybody: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The groups in the recorder: NCCL's recorder names their ranks, and the default group has all ranks."""
    for group in log.groups.values():
        ranks = group.ranks or (everybody if group.description == "default_pg" else ())
        if ranks:
            yield group.name, ranks
