"""The process that reads foreign recorder dumps: they are pickles, and whoever wrote them may mean harm.

    python <absolute>/distdbg/collect/recorder_child.py     one path a line in, one answer a path out

An answer is evidence/recorder/packed.py's, or one line {"because": why it is none}. It can build plain containers
only and import nothing; the kernel limits its memory and CPU time (child_limits.py), and it writes no file. Whoever
asks sees its end, and starts another for the next file.

Standard library only. A dump of 2,000 entries takes about 7 ms.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # started by its path: our folder must not shadow the standard library
    sys.path[0] = sys.path[0].rsplit("/distdbg/", 1)[0]

import gc
import io
import json
from pathlib import Path

from distdbg.collect.files import child_limits, plain_pickle
from distdbg.collect.files.bounded_read import read_bytes
from distdbg.collect.files.plain_pickle import UnreadablePickle
from distdbg.evidence import jsonl
from distdbg.evidence.recorder.log import Signatures
from distdbg.evidence.recorder.packed import pack
from distdbg.evidence.recorder.reading import read_recorder

#: 2,000 entries with all their frames have 10 MiB.
MOST_BYTES = 256 << 20
#: Seconds for one file: 2,000 entries take 7 ms, a million 4 s.
MOST_CPU_S = 10


def load(path: Path) -> bytes:
    """The file's content. Raises UnreadablePickle."""
    data, why = read_bytes(path, MOST_BYTES + 1)
    if data is None:
        raise UnreadablePickle(why or "it is missing")
    if len(data) > MOST_BYTES:
        raise UnreadablePickle(f"it is longer than {MOST_BYTES >> 20} MiB")
    return data


def read(data: bytes, signatures: Signatures, sent: int) -> bytes:
    """One answer. Raises UnreadablePickle, MemoryError."""
    dump = _loaded(data)
    log = read_recorder(dump, signatures)
    if log is None:
        raise UnreadablePickle("it is no flight recorder's dump")
    return pack(log, signatures, sent)


def _loaded(data: bytes) -> object:
    try:
        if data[:1] == b"\x80":
            return plain_pickle.load(io.BufferedReader(io.BytesIO(data), 1 << 17))
        return jsonl.parse(data.decode("utf-8", "replace"))
    except jsonl.OutOfBounds as error:
        raise UnreadablePickle(str(error)) from None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(data) - 2 or "Unterminated" in error.msg
        raise UnreadablePickle("it is cut short" if cut else f"it is not JSON (from byte {error.pos} on)") from None


def main() -> int:
    limit = child_limits.limit_memory()
    gc.disable()  # it looks for circles while the containers of a dump are built: a third of the time
    signatures = Signatures()
    sent = 0
    for line in sys.stdin:
        child_limits.limit_cpu(MOST_CPU_S)
        length = 0
        try:
            data = load(Path(json.loads(line)))
            length = len(data)
            child_limits.limit_memory_of_file(limit, length, child_limits.own_bytes())
            answer = read(data, signatures, sent)
            sent = len(signatures.known)
        except UnreadablePickle as error:
            answer = json.dumps({"because": str(error)}).encode() + b"\n"
        except MemoryError:
            sys.stdout.buffer.write(json.dumps({"because": limit.exceeded(length), "last": True}).encode() + b"\n")
            return 1
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
