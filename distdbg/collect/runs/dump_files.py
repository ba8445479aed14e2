"""Read the folder of a dump. A file that is missing, truncated, foreign or hostile becomes an Unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from distdbg.collect.files.bounded_read import is_binary, read_bytes, read_whole
from distdbg.collect.files.recorder_files import RecorderReader, RecorderUnreadable
from distdbg.evidence import jsonl
from distdbg.evidence.dump import Dump, Look, RankDump
from distdbg.evidence.recorder.calls import Call, read_calls
from distdbg.evidence.recorder.log import RecorderLog, Signatures
from distdbg.evidence.recorder.nccl_ras import read_ras
from distdbg.evidence.recorder.reading import RecorderTexts
from distdbg.evidence.stacks.threads import StackTexts, Thread
from distdbg.model import MOST_RANKS, Unknown
from distdbg.protocol.dump import (
    Descendant,
    LockFile,
    LookPart,
    Manifest,
    NodePart,
    NoStacks,
    PageReading,
    ProcessState,
    RankPart,
)

Read = TypeVar("Read")

#: Bytes of the manifest or of one node's part: 16,384 ranks have 30 MiB together.
_MOST_PART = 128 << 20
_MOST_STACKS = 16 << 20
_MOST_RECORDER = 64 << 20
_MOST_CALLS = 1 << 20
_MOST_BESIDE = 8
_MOST_SOURCE = 1 << 20
_NO_STACKS = {kind.value: kind for kind in NoStacks}


def load_dump(folder: Path, name: str) -> tuple[Dump, list[Unknown]]:
    """`name` is the folder as citations call it. Never raises for bad content."""
    reader = _DumpReader(folder, name)
    raw = reader.json_object("manifest.json", _MOST_PART) or {}
    manifest = Manifest.from_record(raw)
    ranks: dict[int, RankDump] = {}
    sources: dict[str, str] = {}
    ras: dict[str, Any] = {}
    ras_after: dict[str, Any] = {}
    with reader.pickles:
        for path in sorted((folder / "nodes").glob("*.json")) if (folder / "nodes").is_dir() else ():
            file = f"nodes/{path.name}"
            part = NodePart.from_record(reader.json_object(file, _MOST_PART) or {})
            items, unusable = part.ranks, 0
            for item in items:
                rank = reader.rank(item, part) if isinstance(item, dict) else None
                if rank is None:
                    unusable += 1
                elif rank.rank in ranks:
                    reader.lost(f"rank {rank.rank} in {name}/{file}", "another node's part has that rank as well")
                else:
                    ranks[rank.rank] = rank
            if unusable:
                because = f"they have no rank below {MOST_RANKS:,} or no pid"
                reader.lost(f"{unusable:,} of {len(items):,} ranks in {name}/{file}", because)
            sources |= reader.sources(part.sources)
            ras, ras_after = ras or reader.named(part.ras), ras_after or reader.named(part.ras_after)
    missing = _missing(manifest.ranks, ranks)
    world = jsonl.world_size(raw)
    if world is None and raw.get("world_size") is not None:
        said = str(raw["world_size"])[:40]
        reader.lost(f"the world size in {name}/manifest.json", f"{said} is none: a job has 1 to {MOST_RANKS:,} ranks")
    # Of chosen ranks of a job (a rehearsal) the size is their number, and the manifest has each.
    foreign = [number for number in ranks if str(number) not in manifest.ranks]
    for number in [number for number in foreign if world is not None and number >= world]:
        reader.lost(f"rank {number} of {name}", f"the world size is {world}")
        del ranks[number]
    dump = Dump(
        path=name,
        t=manifest.t or max((r.first.t for r in ranks.values()), default=0.0),
        reason=manifest.reason or "asked",
        quiet_s=jsonl.number(manifest.stalled, "quiet_s") if manifest.stalled else None,
        world_size=world,
        ranks=dict(sorted(ranks.items())),
        missing=missing,
        sources=sources,
        signatures=reader.signatures,
        communicators=read_ras(ras_after or ras),
        communicators_before=read_ras(ras if ras_after else None),
        communicators_path=f"{name}/nccl-ras{'.after' if ras_after else ''}.json" if ras else "",
    )
    return dump, reader.unknown


def _missing(said: Mapping[str, object], ranks: Mapping[int, RankDump]) -> dict[int, str]:
    found = {}
    for name, what in said.items():
        rank = jsonl.rank(name)
        if rank is None or rank in ranks:  # collected, or no rank: the manifest repeats what the nodes' parts say
            continue
        because = jsonl.text(what, "failed") or jsonl.text(what, "not_tried") if isinstance(what, dict) else ""
        found[rank] = because or "its node's part is missing"
    return found


class _DumpReader:
    """Reads one folder and notes what could not be read."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self.unknown: list[Unknown] = []
        self.signatures = Signatures()
        self.pickles = RecorderReader(self.signatures)
        self._stacks = StackTexts()
        self._recorders = RecorderTexts(self.signatures)
        #: of the rank that is read: looks that saw the same name one file
        self._threads_read: dict[str, tuple[Thread, ...]] = {}
        self._recorders_read: dict[str, RecorderLog | None] = {}

    def lost(self, what: str, because: str) -> None:
        """Evidence that is there and cannot be used."""
        self.unknown.append(Unknown(what, because, decisive=True))

    def named(self, said: object) -> dict[str, Any]:
        """What the file holds that an item names; empty where it names none."""
        file = _file_of(said)
        return self.json_object(file, _MOST_PART) or {} if file else {}

    def json_object(self, file: str, most: int) -> dict[str, Any] | None:
        value = self._read(file, most, jsonl.parse)
        return value if isinstance(value, dict) else None

    def rank(self, item: Mapping[str, Any], part: NodePart) -> RankDump | None:
        rank = jsonl.rank(item.get("rank"))
        if rank is None:
            return None
        described = RankPart.from_record(item)
        if described.pid is None:
            return None
        looks = [LookPart.from_record(look) for look in jsonl.dicts(described.looks)]
        self._threads_read.clear()
        self._recorders_read.clear()
        native = next((look.native for look in looks if look.native is not None), None)
        if native is not None and jsonl.text(native, "kind") == NoStacks.REFUSED.value:
            self.unknown.append(Unknown(f"the native frames of rank {rank}", jsonl.text(native, "failed")))
        return RankDump(
            rank=rank,
            pid=described.pid,
            node_rank=part.node_rank or 0,
            host=part.host,
            looks=tuple(self._look(look) for look in looks),
            native=self._threads(native),
            calls=self._calls(rank),
        )

    def _look(self, look: LookPart) -> Look:
        missing = {
            name: why
            for name, said in (("stacks", look.stacks), ("recorder", look.recorder))
            if (why := jsonl.text(said, "failed") or jsonl.text(said, "not_tried"))
        }
        return Look(
            t=look.t or 0.0,
            process=ProcessState.from_record(look.process),
            page=PageReading.from_record(look.page) if look.page else None,
            threads=self._threads(look.stacks),
            threads_path=self._cited(look.stacks),
            recorder=self._recorder(look.recorder),
            recorder_path=self._cited(look.recorder),
            children={
                int(pid): ProcessState.from_record(seen)
                for pid, seen in look.children.items()
                if pid.isascii() and pid.isdecimal() and len(pid) < 10 and isinstance(seen, dict)
            },
            missing=missing,
            no_stacks=_NO_STACKS.get(jsonl.text(look.stacks, "kind")),
            below=tuple(Descendant.from_record(one) for one in jsonl.dicts(look.below)),
            after=ProcessState.from_record(look.after) if isinstance(look.after, dict) else None,
            rested=look.rested,
            switched=look.switched,
            lock=LockFile.from_record(look.lock) if isinstance(look.lock, dict) else None,
        )

    def _cited(self, said: object) -> str:
        file = _file_of(said)
        return f"{self._name}/{file}" if file else ""

    def _threads(self, said: object) -> tuple[Thread, ...]:
        file = _file_of(said)
        if file and file not in self._threads_read:
            found, count = self._read(file, _MOST_STACKS, self._stacks.read) or ((), 0)
            self._threads_read[file] = found
            if lost := count - len(found):
                because = "they are not of the form that py-spy writes"
                self.lost(f"{lost:,} of {count:,} threads of {self._name}/{file}", because)
        return self._threads_read[file] if file else ()

    def _recorder(self, said: object) -> RecorderLog | None:
        file = _file_of(said)
        if file and file not in self._recorders_read:
            read = [
                self._pickled(one) if one.endswith(".pickle") else self._plain(one) for one in (file, *_beside(said))
            ]
            self._recorders_read[file] = RecorderLog.joined([log for log in read if log is not None])
        return self._recorders_read[file] if file else None

    def _plain(self, file: str) -> RecorderLog | None:
        def parse(text: str) -> RecorderLog | None:
            log = self._recorders.read(text)
            if log is None:
                self.lost(f"{self._name}/{file}", "it is no flight recorder's dump")
            return log

        return self._with_losses(file, self._read(file, _MOST_RECORDER, parse))

    def _with_losses(self, file: str, log: RecorderLog | None) -> RecorderLog | None:
        for what, because in log.losses() if log else ():
            self.lost(f"of {self._name}/{file} {what}", because)
        return log

    def _pickled(self, file: str) -> RecorderLog | None:
        path, why = self._inside(file), "it points out of its folder"
        try:
            if path is not None:
                return self._with_losses(file, self.pickles.read(Path(path)))
        except RecorderUnreadable as error:
            why = str(error)
        self.lost(f"{self._name}/{file}", why)
        return None

    def _calls(self, rank: int) -> tuple[Call, ...]:
        raw, why = read_bytes(f"{self._folder}/calls/{rank:05d}.calls", _MOST_CALLS)
        if not (raw or why):  # it is missing: most ranks have written down no call
            return ()
        sites, why_not = read_whole(f"{self._folder}/calls/{rank:05d}.sites", _MOST_CALLS)
        calls: tuple[Call, ...] = ()
        if is_binary(sites or ""):
            why_not = "most of it is not text"
        else:
            try:
                calls = tuple(read_calls(raw or b"", sites or ""))
            except ValueError as error:
                why = str(error)
        if why or why_not:
            self.lost(f"the calls of rank {rank} in {self._name}", why or why_not)
        return calls

    def sources(self, said: object) -> dict[str, str]:
        found = {}
        for file, name in said.items() if isinstance(said, dict) else ():
            path = self._inside(name)
            text, why = read_whole(path, _MOST_SOURCE) if path else (None, "it points out of its folder")
            if text is None or is_binary(text):
                self.lost(f"{self._name}/{name}", why or ("most of it is not text" if text else "it is missing"))
            else:
                found[file] = text
        return found

    def _read(self, file: str, most: int, parse: Callable[[str], Read]) -> Read | None:
        path = self._inside(file)
        text, why = read_whole(path, most) if path else (None, "it points out of its folder")
        if text is None:
            self.lost(f"{self._name}/{file}", why or "it is missing")
            return None
        try:
            return parse(text)
        except jsonl.OutOfBounds as error:
            self.lost(f"{self._name}/{file}", str(error))
        except ValueError:
            self.lost(f"{self._name}/{file}", why or "not JSON (cut short?)")
        return None

    def _inside(self, name: object) -> str | None:
        """A dump from elsewhere must not make us read other files."""
        if not isinstance(name, str) or name.startswith("/") or ".." in name.split("/"):
            return None
        return f"{self._folder}/{name}"  # no Path: for 100,000 ranks these cost seconds


def _beside(said: object) -> list[str]:
    """More files of the same item: a process has a recorder for each kind of backend."""
    names = said.get("beside") if isinstance(said, dict) else None
    return [name for name in names[:_MOST_BESIDE] if isinstance(name, str)] if isinstance(names, list) else []


def _file_of(said: object) -> str:
    return jsonl.text(said, "file") if isinstance(said, dict) else ""
