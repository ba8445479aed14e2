"""Write snapshots of a rank's memory for the agent: torch's where CUDA is used, and always the host's.

A file is written in node-local memory under a temporary name, read back, renamed, and then sent. Names have the reason,
the step and a number, in the rank's own folder: none is written twice.
"""

from __future__ import annotations

import _thread
import os
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from distdbg.whole_file import WholeFile
from distdbg.worker.agent_files import free_bytes
from distdbg.worker.context import RankContext
from distdbg.worker.memory import figures, host

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
        #: the number of requests so far
        self.taken = 0

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
            if self.taken >= _MOST and why != "oom":
                self._report(asked, because=f"{_MOST} snapshots are enough")
                return
            self.taken += 1
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
        stem = f"{why}-step{self._context.page.steps():06d}-{self.taken:03d}"
        files = []
        device = figures.cuda()
        if device is not None and hasattr(device.memory, "_snapshot"):
            from pickle import dumps

            from distdbg.worker.memory import owners

            snapshot = device.memory._snapshot()
            workspaces = snapshot.pop("gpu_box_workspaces", ())  # simulated devices know those of cuBLAS
            try:
                snapshot[owners.KEY] = owners.owners(workspaces=workspaces)
            except Exception as error:  # a file without names is better than none
                snapshot[owners.KEY] = {"because": repr(error)}
            files.append(self._write(f"{stem}.pickle.gz", dumps(snapshot)))
        from json import dumps as json

        content = host.snapshot(self._context.model.newest())
        content |= {"rank": self._context.rank, "step": self._context.page.steps(), "why": why,
                    "missing": self._missing()}  # fmt: skip
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
    from gzip import GzipFile

    with GzipFile(fileobj=file, mode="wb", compresslevel=1) as packed:
        for at in range(0, len(data), _PIECE):
            if free_bytes(folder) < _PIECE:
                raise OSError(f"{folder} has no room to spare for it")
            packed.write(data[at : at + _PIECE])
    file.flush()


def _check(path: str, length: int) -> None:
    """Unpack it once, piece by piece: gzip compares the checksum at the end."""
    import gzip
    import zlib

    try:
        with gzip.open(path) as file:
            found = sum(map(len, iter(lambda: file.read(_PIECE), b"")))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is not readable as it was written: {error}") from None
    if found != length:
        raise ValueError(f"{path} has {found} of {length} bytes")


#: Events in the ring: some steps of a large model, 10 MB as a pickle and 1 MB of it packed.
ENTRIES = 100_000
#: What a mark begins with; evidence/memory/trace.py reads it.
PREFIX = "ddbg"
FORWARD, BACKWARD, OPTIMIZER = "fbo"
_WANTED: dict[str, Any] = {"context": "alloc", "stacks": "python", "max_entries": ENTRIES}


class History:
    """Start torch's record of its CUDA allocator, with a bounded ring and Python's stacks only.

    Without a bound it used up the host's memory, and C++ stacks took minutes to write. Annotations are recorded, too:
    the optimizers' names each step; and step and phase beside each event, where torch can. Where torch has an observer
    of failed requests, it takes a snapshot."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        self.recording = False
        #: torch has an observer for failed requests, and it is ours
        self.observed = False
        self._set_text: Callable[[str], None] | None = None
        self._get_text: Callable[[], str] | None = None
        self._text = ""

    def begin(self, ran_out: Callable[..., None]) -> None:
        """Now, or once the script begins to use CUDA. torch calls `ran_out` when a request for memory fails."""
        device = getattr(sys.modules.get("torch"), "cuda", None)
        if device is None or not device.is_available():
            self._context.fact("memory-history", recorded=False, because="this process has no CUDA")
            return
        device._lazy_call(lambda: self._record(device, ran_out))

    def mark(self, step: int, phase: str) -> None:
        """`phase` (a letter) of this step of the optimizer begins; steps count from 1. Never raises.

        torch keeps one text for a device, and copies it into every event (2.13 and later): up to 15 characters need no
        memory of their own. A text that the script has set stays."""
        if self._set_text is None or self._get_text is None:
            return
        try:
            if self._get_text() in ("", self._text):
                self._text = f"{PREFIX} {step} {phase}"
                self._set_text(self._text)
        except Exception:
            self._set_text = None

    def _record(self, device: Any, ran_out: Callable[..., None]) -> None:
        """Called while torch starts CUDA: an exception would be the script's error."""
        try:
            try:
                device.memory._record_memory_history(**_WANTED, global_record_annotations=True)
            except TypeError:  # an older one
                device.memory._record_memory_history(**_WANTED)
            self.recording = True
            c = sys.modules["torch"]._C
            self._set_text = getattr(c, "_cuda_setMemoryMetadata", None)
            self._get_text = getattr(c, "_cuda_getMemoryMetadata", None)
            attach = getattr(c, "_cuda_attach_out_of_memory_observer", None)
            if attach is not None:
                attach(ran_out)
                self.observed = True
        except Exception as error:
            self._context.fact("memory-history", recorded=False, because=repr(error), error=repr(error))
            return
        self._context.fact("memory-history", recorded=True, entries=ENTRIES, observed=self.observed)
