"""Write snapshots of a rank's memory for the agent: torch's where CUDA is used, and always the host's.

A file is written in node-local memory under a temporary name, read back, renamed, and then sent. Names have the reason,
the step and a number, in the rank's own folder: none is written twice.
"""

from __future__ import annotations

import _thread
import os
from typing import Any, BinaryIO

from distdbg.whole_file import WholeFile
from distdbg.worker.agent_files import free_bytes
from distdbg.worker.context import RankContext
from distdbg.worker.memory import figures, host
from distdbg.worker.memory.history import History

#: A script that tries smaller batches until one fits runs out of memory again and again. The one that ends it is apart.
_MOST_FAILURES = 3
_MOST = 200
_PIECE = 1 << 20


class SnapshotWriter:
    """`history` is None where `--memory` was not asked for: then the snapshot has a state and no history."""

    def __init__(self, context: RankContext, history: History | None) -> None:
        self._context = context
        self._history = history
        self._lock = _thread.allocate_lock()
        self._failures = 0
        #: the newest failed request has its snapshot
        self._shown = False
        self._taken = 0

    def ran_out(self, *_about: object) -> None:
        """torch's observer: a request has failed, and all memory is still in use."""
        self._shown = self._failures < _MOST_FAILURES
        if self._shown:
            self._failures += 1
            self.take("oom")

    def failed(self, error: BaseException) -> None:
        """The script ends with `error`: where it has no snapshot, this is the last moment, however many were caught.

        The allocator's record still holds the failed request.
        """
        name = type(error).__name__
        if name == "MemoryError" or (name == "OutOfMemoryError" and not self._shown):
            self.take("oom")

    def take(self, why: str, asked: object = None) -> None:
        """Write the files and report them. Never raises; a request during another one is refused."""
        if not self._lock.acquire(blocking=False):
            self._report(asked, because="another snapshot is being written")
            return
        try:
            if self._taken >= _MOST and why != "oom":
                self._report(asked, because=f"{_MOST} snapshots are enough")
                return
            self._taken += 1
            with figures.own_device():
                files = self._files(why)
            step = self._context.page.steps()
            self._report(asked, files=files, why=why, step=step, missing=self._missing())
        except Exception as error:
            self._report(asked, because=repr(error), error=repr(error))
        finally:
            self._lock.release()

    def _report(self, asked: object, **fields: object) -> None:
        self._context.link.send("snapshot", {"id": asked, **fields}, last_words=True)

    def _files(self, why: str) -> list[dict[str, str]]:
        stem = f"{why}-step{self._context.page.steps():06d}-{self._taken:03d}"
        files = []
        device = figures.cuda()
        if device is not None and hasattr(device.memory, "_snapshot"):
            from pickle import dumps

            files.append(self._write(f"{stem}.pickle.gz", dumps(_named(device.memory._snapshot()))))
        from json import dumps as json

        content = host.snapshot(self._context.model.newest())
        content |= {
            "rank": self._context.rank,
            "step": self._context.page.steps(),
            "why": why,
            "missing": self._missing(),
        }
        files.append(self._write(f"{stem}.host.json.gz", json(content).encode()))
        return files

    def _missing(self) -> str:
        """What the files lack; empty where nothing is missing."""
        if figures.cuda() is None:
            return "no CUDA here: there are no allocations with their stacks, only the host's figures and live tensors"
        if self._history is None or not self._history.recording:
            return "no history: it was launched without --memory, so the file has allocations without their stacks"
        return ""

    def _write(self, name: str, data: bytes) -> dict[str, str]:
        """Packed, read back and renamed. Raises OSError, or ValueError where it reads otherwise than it was written."""
        path = f"{self._context.stem}.memory-{name}"

        whole = WholeFile(path)
        with whole as file:
            _pack(file, os.path.dirname(path), data)
            _check(whole.temporary, len(data))
        return {"file": os.path.basename(path), "name": name}


def _pack(file: BinaryIO, folder: str, data: bytes) -> None:
    """Stops where the folder's other users would be left without room: all ranks of a node may write at once."""
    import zlib

    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    for at in range(0, len(data), _PIECE):
        if free_bytes(folder) < _PIECE:
            raise OSError(f"{folder} has no room to spare for it")
        file.write(packer.compress(data[at : at + _PIECE]))
    file.write(packer.flush())
    file.flush()


def _named(snapshot: dict[str, object]) -> dict[str, object]:
    """With whose memory it is. A file without names is better than none."""
    from distdbg.worker.memory import owners

    try:
        snapshot[owners.KEY] = owners.owners()
    except Exception as error:
        snapshot[owners.KEY] = {"because": repr(error)}
    return snapshot


def _check(path: str, length: int) -> None:
    """Unpack it once, piece by piece: zlib compares the checksum at the end."""
    import zlib

    unpacker: Any = zlib.decompressobj(31)
    found = 0
    try:
        with open(path, "rb") as file:
            while piece := file.read(_PIECE):
                found += len(unpacker.decompress(piece))
        found += len(unpacker.flush())
    except zlib.error as error:
        raise ValueError(f"{path} is not readable as it was written: {error}") from None
    if not unpacker.eof or found != length:
        raise ValueError(f"{path} has {found} of {length} bytes")
