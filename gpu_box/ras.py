"""Answer one client of NCCL's RAS on standard input and output: native/nccl_voice.cpp starts it for each connection.

The protocol and the JSON are those of NCCL 2.29.7, src/ras/client_support.cc; the text form is not modelled. What is
told stands in the files of the communicators, in GPU_BOX_DIR.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from tables import NCCL_VERSION, OPERATIONS  # type: ignore[import-not-found]

#: RAS takes a process for dead after so long without an answer.
DEAD_AFTER_S = 60
COUNTED = OPERATIONS[:5]


class Member(ctypes.Structure):
    """nccl::Member of native/comm.h, which asserts the size."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("pid", "finalized", "aborted", "left", "state", "error")),
        *((name, ctypes.c_int) for name in ("node", "device", "physical", "color", "key")),
        ("launched", ctypes.c_uint64 * len(COUNTED)),
        ("rest", ctypes.c_uint64 * 9),
    ]


class Shared(ctypes.Structure):
    """The beginning of nccl::Shared; its members follow."""

    _fields_ = [
        ("meetings", ctypes.c_uint32 * 4),
        ("n", ctypes.c_int),
        ("broken", ctypes.c_int),
        ("id", ctypes.c_uint64),
    ]


def dead_for_s(pid: int, folder: Path) -> float | None:
    """Since a client was first told that the process has ended; None: it lives."""
    if Path("/proc", str(pid)).exists():
        return None
    note = folder / f"ended-{pid}"
    note.touch(exist_ok=True)
    return time.time() - note.stat().st_ctime


def rank_of(member: Member, rank: int, folder: Path) -> tuple[bool, dict[str, object]]:
    """Whether it is missing, and what RAS tells of it."""
    dead = dead_for_s(member.pid, folder)
    missing = bool(member.left) or dead is not None
    told: dict[str, object] = {"rank": rank, "host": f"10.0.{(member.node + 1) // 256}.{(member.node + 1) % 256}"}
    told |= {"pid": member.pid, "cuda_dev": member.device, "nvml_dev": member.physical}
    if missing:
        return True, told | {
            "status": {"unresponsive": dead is not None, "considered_dead": (dead or 0) > DEAD_AFTER_S}
        }
    status = {"init_state": member.state, "async_error": member.error, "finalize_called": bool(member.finalized)}
    status |= {"destroy_flag": False, "abort_flag": bool(member.aborted)}
    return False, told | {"status": status, "collective_counts": dict(zip(COUNTED, member.launched, strict=True))}


def communicator(data: bytes, folder: Path) -> dict[str, object] | None:
    """None: a leftover, or a set-up that RAS does not know yet."""
    shared = Shared.from_buffer_copy(data)
    first, size = ctypes.sizeof(Shared), ctypes.sizeof(Member)
    members = [Member.from_buffer_copy(data, first + rank * size) for rank in range(shared.n)]
    told = [rank_of(member, rank, folder) for rank, member in enumerate(members) if member.pid]
    present, gone = ([one for missing, one in told if missing is wanted] for wanted in (False, True))
    if not present or len(told) < shared.n:
        return None
    hashes = {"hash": f"{shared.id:#x}", "secondary_hash": f"{shared.id >> 16:#x}:{shared.id >> 32:#x}"}
    counts = {"size": shared.n, "ranks_count": len(present), "missing_ranks_count": len(gone)}
    return hashes | counts | {"ranks": present, "missing_ranks": gone}


def status(folder: Path, cuda: int) -> str:
    """What `ncclras -f json` prints."""
    found = []
    for path in folder.glob("comm-*"):
        try:
            with path.open("rb") as file:
                one = communicator(file.read(1 << 20), folder)
        except (OSError, ValueError):
            continue  # it ended, or is being made
        found += [one] if one else []
    head = {"nccl_version": NCCL_VERSION, "cuda_runtime_version": cuda, "cuda_driver_version": cuda}
    head |= {"timestamp": time.strftime("%Y-%m-%d %H:%M:%S"), "communicators_count": len(found)}
    return json.dumps({**head, "communicators": found, "ras": {"collection_time_sec": 0.001, "timeouts_count": 0}})


def main() -> None:
    as_json = False
    for line in sys.stdin:
        said = line.strip().lower()
        answer = "OK"
        if said in ("status", "verbose status"):
            text = f"NCCL version {NCCL_VERSION}\nThe box models the JSON format only"
            print(status(Path(os.environ["GPU_BOX_DIR"]), int(sys.argv[1])) if as_json else text, flush=True)
            return
        if said.startswith("client protocol "):
            answer = "SERVER PROTOCOL 2"
        elif said.startswith("set format "):
            as_json = said.split()[-1] == "json"
        elif not said.startswith("timeout "):
            answer = f"ERROR: Unknown command {line.strip()}"
        print(answer, flush=True)


if __name__ == "__main__":
    main()
