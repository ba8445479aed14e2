"""What NCCL writes on the box: the texts of tables.py against lines of public issues, and what a job really writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distdbg.evidence.logs.nccl import rank_in_nccl_log, read_nccl_log
from gpu_box.tables import INFO, WARN

#: (issue, line)
REAL = [
    tuple(line.split("\t"))
    for line in (Path(__file__).with_name("nccl_lines.txt")).read_text().splitlines()
    if line[:1] not in ("#", "")
]
#: Lines whose text changed in later versions than public logs show: its place in NCCL 2.29.7, and what an older version
#: has in place of it, if a log has that (a part of the line).
NEWER_THAN_LOGS = {
    "init-start": ("init.cc:1699", "ncclCommInitRank comm"),
    "split-start": ("init.cc:1675", "ncclCommSplit comm"),
    "split-complete": ("init.cc:1722", "ncclCommSplit comm"),
    "abort-start": ("init.cc:2704", ""),
    "system": ("os/linux.cc:289", "socketProgressOpt: Call to"),
    "file": ("misc/shmutils.cc:88", "Error: failed to extend"),
    "internal": ("transport/net_socket.cc:270", ""),
    "completion": ("transport/net_ib/p2p.cc:651", "Got completion from peer"),
    "mismatch": ("transport/net_socket.cc:569", "message truncated : receiving 1048576 bytes instead of"),
    "group": ("group.cc:747", ""),
    "root": ("misc/argcheck.cc:156", ""),
    "rank": ("init.cc:2184", ""),
}
#: What stands in the braces; any other word is a number.
WORDS = {
    **dict.fromkeys(("comm", "parent", "id"), r"0x[0-9a-f]+"),
    **dict.fromkeys(("send", "recv", "stream"), r"(0x[0-9a-f]+|\(nil\))"),
    **dict.fromkeys(("issued", "bus"), "[0-9a-f]+"),
    **dict.fromkeys(("address", "peer"), r"[\w.-]+<\d+>"),
    "own": r"\w+:[\d.]+<0>", "hcas": r"( \[\d+\]\w+:\d+/(IB|RoCE))+", "version": r"\d+\.\d+\.\d+\+cuda\d+\.\d+",
    "network": r"(IB|Socket)", "function": r"ncclComm\w+", "name": r"\w+", "failed": "(failed to establish a )?",
    "file": r"\S+", "error": r"[\w ]+",
}  # fmt: skip
_INFO_LINE = r"[\w.-]+:\d+:\d+ \[\d+\] NCCL INFO "
_WARN_LINE = r"(\[[\d-]+ [\d:]+\] )?[\w.-]+:\d+:\d+ \[\d+\] [\w/]+\.(cc|c|h):\d+ NCCL WARN "


def form(text: str) -> str:
    """A regular expression of a text with words in braces."""
    parts = re.split(r"\{(\w+)\}", text)
    return "".join(WORDS.get(part, r"-?\d+") if n % 2 else re.escape(part) for n, part in enumerate(parts))


FORMS = {id: re.compile(_INFO_LINE + form(text)) for id, (_, text) in INFO.items()}
FORMS |= {id: re.compile(_WARN_LINE + form(text)) for id, (_, text) in WARN.items()}


def ids_of(lines: list[str]) -> set[str]:
    """Of the texts; a line that has none is an error."""
    found = {line: {id for id, form in FORMS.items() if form.fullmatch(line)} for line in lines}
    assert all(found.values()), [line for line, ids in found.items() if not ids]
    return set().union(*found.values())


@pytest.mark.parametrize("id", FORMS)
def test_each_line_has_the_form_of_a_line_in_a_public_issue(id):
    real = [line for _, line in REAL if FORMS[id].fullmatch(line)]
    assert bool(real) != (id in NEWER_THAN_LOGS), real
    older = NEWER_THAN_LOGS.get(id, ("", ""))[1]
    assert not older or any(older in line for _, line in REAL)


def test_the_reader_knows_each_real_line():
    for issue, line in REAL:
        read = read_nccl_log(line)
        assert read is not None and read.host == re.match(r"(?:\[.*?\] )?([\w-]+):", line)[1], (issue, line)
    told = read_nccl_log("\n".join(line for _, line in REAL))
    (fault,) = told.faults
    assert (told.version, told.network, fault.status, fault.peer) == ("2.25.1", "Socket", 12, "10.1.0.14")
    assert {rank_in_nccl_log(line) for _, line in REAL if "Init" in line or "COMPLETE" in line} == {0, 1}


@pytest.mark.gpu
@pytest.mark.slow
def test_a_job_writes_lines_of_these_forms(run, tmp_path: Path):
    """All its collectives, two splits of the communicator, and its end."""
    env = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "ALL", "NCCL_DEBUG_FILE": str(tmp_path / "nccl.%p")}
    done = run("ranks.py", "--eager", ranks=4, env=env)
    assert done.code == 0 and "rank 3 a_graph_replays_a_collective" in done.out, done
    logs = [path.read_text() for path in tmp_path.glob("nccl.*")]
    whole = {"bootstrap", "driver", "version", "ib", "network", "ras", "init-start", "init-complete", "operation"}
    for log in logs:
        assert whole | {"split-start", "split-complete"} <= ids_of(log.splitlines()), log
    assert sorted(rank_in_nccl_log(log.partition("ncclCommSplit")[0]) for log in logs) == [0, 1, 2, 3]
    # In a part of the job a rank has another number: then the reader does not say whose log it is.
    own = [int(re.search(r"\[Rank (\d)\]", log)[1]) for log in logs]
    assert all(rank_in_nccl_log(log) in (None, rank) for log, rank in zip(logs, own, strict=True))
    read = [read_nccl_log(log) for log in logs]
    assert all(one.host and one.version == "2.29.7" and one.network == "IB" for one in read), read
