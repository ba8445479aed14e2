"""The process that reads foreign recorder dumps: they are pickles, and whoever wrote them may mean harm.

    python <absolute>/distdbg/collect/recorder_child.py     one path a line in, one answer a path out

An answer is evidence/recorder_packed.py's, or one line {"because": why it is none}. It can build plain containers
only and import nothing; its memory, its CPU time a file and what it may write are bounded by the kernel. Whoever
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

from distdbg.collect import plain_pickle
from distdbg.collect.bounded_read import read_bytes
from distdbg.collect.plain_pickle import Unreadable
from distdbg.evidence.recorder import Signatures, read_recorder
from distdbg.evidence.recorder_packed import pack

MOST_BYTES = 256 << 20
#: Ten times what 2,000 entries with all their frames take.
MOST_MEMORY = 2 << 30
MOST_CPU_S = 10


def read(path: Path, signatures: Signatures, sent: int) -> bytes:
    """One answer. Raises Unreadable, MemoryError."""
    data, why = read_bytes(path, MOST_BYTES + 1)
    if data is None:
        raise Unreadable(why or "it is missing")
    if len(data) > MOST_BYTES:
        raise Unreadable(f"it is longer than {MOST_BYTES >> 20} MiB")
    dump = _loaded(data)
    del data
    log = read_recorder(dump, signatures)
    if log is None:
        raise Unreadable("it is no flight recorder's dump")
    return pack(log, signatures, sent)


def _loaded(data: bytes) -> object:
    try:
        if data[:1] == b"\x80":
            return plain_pickle.load(io.BufferedReader(io.BytesIO(data), 1 << 17))
        return json.loads(data)
    except Unreadable:
        raise
    except RecursionError:
        raise Unreadable("it is nested deeper than any recorder nests") from None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(data) - 2 or "Unterminated" in error.msg
        raise Unreadable("it is cut short" if cut else f"it is not JSON: {error.msg} at byte {error.pos}") from None
    except MemoryError:
        raise
    except Exception as error:  # opcodes that mean nothing end in any exception that Python has
        raise Unreadable(f"it is no pickle that a recorder writes: {type(error).__name__}") from None


def main() -> int:
    plain_pickle.bound(MOST_MEMORY)
    gc.disable()  # it looks for circles while the containers of a dump are built: a third of the time
    signatures = Signatures()
    sent = 0
    for line in sys.stdin:
        plain_pickle.bound_cpu(MOST_CPU_S)
        try:
            answer = read(Path(json.loads(line)), signatures, sent)
            sent = len(signatures.known)
        except Unreadable as error:
            answer = json.dumps({"because": str(error)}).encode() + b"\n"
        except MemoryError:
            because = f"reading it takes more than {MOST_MEMORY >> 30} GiB: it is broken, or meant to harm"
            sys.stdout.buffer.write(json.dumps({"because": because, "last": True}).encode() + b"\n")
            return 1
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
