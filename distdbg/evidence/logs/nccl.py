"""What NCCL writes with NCCL_DEBUG=WARN or INFO: its version, the network it chose, and what its HCAs complained of.

The forms of NCCL 2.18 to 2.30 are known (src/init.cc, src/transport/net_ib, src/transport/net_socket.cc):

    host:123:456 [0] NCCL INFO Using network IB
    host:123:456 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
    host:123:456 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
    host:123:456 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'
    host:123:456 [0] NCCL INFO ncclCommInitRankConfig comm 0x55a8 rank 3 nranks 8 cudaDev 0 ... - Init COMPLETE
    host:123:456 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<5678> with status=12 opcode=0 len=0 vendor err
    129 (Recv) localGid fe80::1 remoteGids fe80::2 hca mlx5_0
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from distdbg.model import MOST_RANKS

# From 2.27 on a WARN line begins with the time: NCCL_DEBUG_TIMESTAMP_LEVELS
_LINE = re.compile(
    r"^(?:\[[\d-]+[ T][\d:.]+\] )?(?P<host>[\w.-]+):\d+:\d+ \[-?\d+\] .*?NCCL (?P<level>INFO|WARN) (?P<text>.*)$"
)
#: Wherever it stands in a line, with the pid.
_PROCESS = re.compile(r"(?P<host>[A-Za-z][\w.-]*):(?P<pid>\d{1,9}):\d{1,9} \[-?\d+\] .*?NCCL (?:INFO|WARN)")
_BARE = re.compile(r"NCCL (?P<level>INFO|WARN) (?P<text>.*)$")
_VERSION = re.compile(r"NCCL version (\d+\.\d+(?:\.\d+)?)")
_NETWORK = re.compile(r"^(?:\[Rank \d+\] )?Using (?:non-device net plugin version \d+|network (?P<name>.+?))\s*$")
_USING = re.compile(r"^NET/(?P<net>IB|Socket) ?: Using ?(?P<devices>.*)$")
_DEVICE = re.compile(r"\[\d+\](?P<name>[^:\s]+):(?P<rest>\S+)")
_DIRECT = re.compile(r"^NET/\S+ : GPU Direct RDMA (?P<what>Enabled|Disabled) for HCA \d+ '(?P<hca>[^']+)'")
_COMPLETION = re.compile(
    r"Got completion from peer (?P<peer>\S+?)<\d+> with (?:status=|error )(?:(?P<name>[^(\d][^(]*)\()?(?P<status>\d+)"
)
_VENDOR = re.compile(r"vendor[ _]err[ =]?(\d+)")
_HCA = re.compile(r"\bhca (\S+)")
_WAY = re.compile(r"\((Send|Recv)\)")
_ASYNC = re.compile(
    r"^NET/IB ?: (?P<hca>[^:\s]+):\d+ (?:Got )?(?:async fatal event[^:]*|non-fatal async event): (?P<what>.+)$"
)
_ADDRESS = re.compile(r"(?:OOB |Bootstrap ?: Using )[^:\s]*:(?P<address>\S+?)<\d+>")
_MISMATCHED = re.compile(r"Mismatched NCCL version detected : rank (\d+) version (\d+) rank (\d+) version (\d+)")
#: What stands in brackets before it is a device, and no rank.
_MEMBER = re.compile(r"\brank (\d{1,7}) n[Rr]anks \d{1,7}\b")
#: ibv_wc_status: what each says about the link (rdma-core, libibverbs/verbs.h)
STATUS = {
    1: "local length error", 2: "local QP operation error", 4: "local protection error: memory was not registered",
    5: "flushed: the connection was in error before", 6: "memory window bind error", 8: "local access error",
    9: "remote invalid request", 10: "remote access error", 11: "remote operation error",
    12: "retries exceeded: the peer's port did not answer", 13: "receiver not ready: the peer is stuck",
    22: "general error",
}  # fmt: skip
#: what only follows from an earlier error of the same connection
_CONSEQUENCES = {5}
_MOST_LINES = 200_000


@dataclass(frozen=True)
class Fault:
    """A completion with an error, or an event of a port. `peer` is an address, empty for an event; `hca` may be empty
    where this NCCL does not tell it. `line` is 1-based."""

    line: int
    text: str
    what: str
    hca: str = ""
    peer: str = ""
    status: int | None = None


@dataclass(frozen=True)
class NcclLog:
    """One rank's. Empty fields were not written: WARN tells no networks."""

    host: str = ""
    #: by which its peers know this host
    address: str = ""
    version: str = ""
    network: str = ""
    #: devices of the chosen network as NCCL lists them: mlx5_0:1/IB, eth0
    devices: tuple[str, ...] = ()
    #: HCAs with GPU Direct RDMA, and those without
    direct: tuple[str, ...] = ()
    indirect: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    #: (rank, version, rank, version) of a mismatch that NCCL noticed itself, and its line
    mismatched: tuple[int, str, int, str, int] | None = None


def read_nccl_log(text: str, first_line: int = 1) -> NcclLog | None:
    """None where nothing of NCCL's stands in it."""
    lines = list(_lines(text, first_line))
    if not lines:
        return None
    network = _last(m["name"] for _, _, said in lines if (m := _NETWORK.match(said)) and m["name"])
    direct = {m["hca"]: m["what"] == "Enabled" for _, _, said in lines if (m := _DIRECT.match(said))}
    return NcclLog(
        host=next((host for _, host, _ in lines if host), ""),
        address=_last(m["address"] for _, _, said in lines if (m := _ADDRESS.search(said))),
        version=_last(m[1] for _, _, said in lines if (m := _VERSION.search(said))),
        network=network,
        devices=_devices(lines, network),
        direct=tuple(hca for hca, works in direct.items() if works),
        indirect=tuple(hca for hca, works in direct.items() if not works),
        faults=tuple(_faults(lines)),
        mismatched=next(_mismatches(lines), None),
    )


def rank_in_nccl_log(text: str) -> int | None:
    """Whose it is, where it has one rank in all communicators that it tells of; of several, one may be a part's."""
    found = {int(m[1]) for _, _, said in _lines(text, 1) for m in _MEMBER.finditer(said)}
    return found.pop() if len(found) == 1 and max(found) <= MOST_RANKS else None


def process_in_nccl_line(line: str) -> tuple[str, int] | None:
    """(host, pid) of the process that wrote it; None for a line that is not NCCL's."""
    found = _PROCESS.search(line) if "NCCL" in line else None
    return (found["host"], int(found["pid"])) if found else None


def all_of_nccl(text: str) -> bool:
    """As NCCL_DEBUG_FILE has it: what the rank itself printed is elsewhere."""
    return all(" NCCL " in line or line.startswith("NCCL version") for line in text.split("\n") if line.strip())


_Lines = list[tuple[int, str, str]]


def _lines(text: str, first: int) -> Iterator[tuple[int, str, str]]:
    """(line, host, what NCCL says there)."""
    for number, line in enumerate(text.split("\n")[:_MOST_LINES], first):
        if "NCCL" not in line:
            continue
        if found := _LINE.match(line):
            yield number, found["host"], found["text"]
        elif found := _BARE.search(line):
            yield number, "", found["text"]
        elif _VERSION.search(line):
            yield number, "", line


def _last(found: Iterator[str]) -> str:
    return next(reversed(list(found)), "")


def _devices(lines: _Lines, network: str) -> tuple[str, ...]:
    for _, _, said in reversed(lines):
        using = _USING.match(said)
        if using and network in ("", using["net"]):
            found = _DEVICE.finditer(using["devices"].partition(";")[0])
            return tuple(m["name"] if using["net"] == "Socket" else f"{m['name']}:{m['rest']}" for m in found)
    return ()


def _faults(lines: _Lines) -> Iterator[Fault]:
    for number, _, said in lines:
        if found := _COMPLETION.search(said):
            status = int(found["status"])
            if status in _CONSEQUENCES:
                continue
            vendor, hca, way = _VENDOR.search(said), _HCA.search(said), _WAY.search(said)
            what = STATUS.get(status, found["name"] or f"status {status}")
            what += f", vendor error {vendor[1]}" if vendor else ""
            what += f" ({'sending' if way[1] == 'Send' else 'receiving'})" if way else ""
            yield Fault(number, said, what, hca[1] if hca else "", found["peer"], status)
        elif found := _ASYNC.match(said):
            yield Fault(number, said, found["what"].strip(), found["hca"])


def _mismatches(lines: _Lines) -> Iterator[tuple[int, str, int, str, int]]:
    for number, _, said in lines:
        if found := _MISMATCHED.search(said):
            yield int(found[1]), _version(found[2]), int(found[3]), _version(found[4]), number


def _version(code: str) -> str:
    """22105 is 2.21.5; up to 2.8 it was written 2804."""
    number = int(code)
    if number < 10_000:
        return f"{number // 1000}.{number // 100 % 10}.{number % 100}"
    return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"
