"""`distdbg explain`: the same verdict from files, wherever they come from and in whatever order they are named."""

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.collect.runs.explaining import load
from distdbg.diagnosis.verdict import build_report
from distdbg.report.json_form import as_json
from tests.evidence.logs.test_job import LOG
from tests.evidence.logs.test_watchdog import status, timed_out
from tests.evidence.recorder.test_log import dump, entry
from tests.evidence.stacks.test_stack_texts import TEXT
from tests.made_run import MadeRun

pytestmark = pytest.mark.slow  # a process for each of them

EVERYBODY = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}


def recorders(folder: Path, *, without=(), late=2):
    """Four ranks of an NCCL job; `late` never comes to number 3."""
    folder.mkdir(exist_ok=True)
    for rank in range(4):
        if rank in without:
            continue
        entries = [entry(1, state="completed", retired=True), entry(2, state="completed", retired=True)]
        entries += [entry(3)] if rank != late else []
        data = dump(*entries, groups=EVERYBODY)
        path = folder / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(data, 2) if rank % 2 else json.dumps(data).encode())
    return folder


def stack(folder, rank, *frames):
    lines = "\n".join(f"    {name} ({file}:{line})" for name, file, line in frames)
    path = folder / f"stack-rank{rank}.txt"
    head = f"Process 9{rank}: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
    path.write_text(f'{head}Thread 9{rank} (idle): "MainThread"\n{lines}\n')
    return path


def verdict(*paths):
    return build_report(load([Path(p) for p in paths]))


def test_recorders_alone_name_who_is_missing(tmp_path):
    report = verdict(recorders(tmp_path / "fr"))
    (finding,) = report.findings
    assert (finding.id, finding.ranks) == ("collective-not-joined", (2,))
    assert "ranks 0-1,3 wait in all_reduce float32[4, 4] (number 3 in the default group)" in finding.summary
    assert [c.path for c in finding.evidence] == [str(tmp_path / f"fr/nccl_trace_rank_{r}") for r in (2, 0)]


def test_with_stacks_it_is_said_where(tmp_path):
    folder = recorders(tmp_path / "fr")
    waiting = ("all_reduce", "torch/distributed/distributed_c10d.py", 3252), ("<module>", "train.py", 40)
    for rank in (0, 1, 3):
        stack(folder, rank, *waiting)
    stack(folder, 2, ("load", "train.py", 12), ("<module>", "train.py", 39))
    (finding,) = verdict(folder).findings
    assert (finding.id, finding.ranks) == ("stuck-in-python", (2,))
    assert "train.py:12 (in load)" in finding.summary


def test_the_order_of_files_changes_nothing(tmp_path):
    folder = recorders(tmp_path / "fr")
    paths = sorted(folder.iterdir())
    assert as_json(verdict(*paths)) == as_json(verdict(*reversed(paths)))


def test_a_missing_file_is_a_suspect_and_no_end(tmp_path):
    report = verdict(recorders(tmp_path / "fr", without=(2,)))
    assert [(f.id, f.confidence, f.ranks) for f in report.findings] == [("collective-not-joined", "possible", (2,))]
    assert ("the state of rank 2", "no file of it was given") in [(u.what, u.because) for u in report.unknown]


def test_what_cannot_be_used_is_named_and_the_rest_is_explained(tmp_path):
    folder = recorders(tmp_path / "fr")
    (folder / "nccl_trace_rank_7").write_bytes(b"\x80\x02}q\x00(X\x07\x00\x00\x00vers")
    (folder / "empty_8").write_bytes(b"")
    (folder / "packed_9.gz").write_bytes(b"\x1f\x8b\x08\x00")
    (folder / "notes").write_text("call the operator\n")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    shutil.copy(folder / "nccl_trace_rank_1", folder / "other_host_1")
    shutil.copy(folder / "nccl_trace_rank_1", folder / "whose")
    report = verdict(folder)
    assert [f.ranks for f in report.findings] == [(2,)]
    reasons = {u.what.rpartition("/")[2]: u.because for u in report.unknown}
    assert reasons["nccl_trace_rank_7"] == "it is cut short"
    assert reasons["empty_8"] == "it is empty"
    assert "end-of-stream" in reasons["packed_9.gz"]
    assert "no kind that distdbg knows" in reasons["picture.png"]
    assert "does not end in a rank" in reasons["whose"]
    assert "it is of rank 1" in reasons["other_host_1 adds"]


def test_logs_of_torchrun(tmp_path):
    (tmp_path / "job.log").write_text(LOG)
    report = verdict(tmp_path / "job.log")
    roots = [(f.id, f.ranks) for f in report.verdict]
    assert ("rank-exception", (1,)) in roots
    assert next(f for f in report.findings if f.ranks == (1,)).evidence[0].line == 2


def test_a_log_beside_recorders(tmp_path):
    folder = recorders(tmp_path / "fr")
    (folder / "rank2.log").write_text('Traceback (most recent call last):\n  File "t.py", line 8, in f\nKeyError: 3\n')
    report = verdict(folder)
    assert ("rank-exception", (2,)) in [(f.id, f.ranks) for f in report.findings]


def test_a_transfer_to_a_rank_of_which_no_file_was_given(tmp_path):
    waits = entry(1, "nccl:recv 0<-1", is_p2p=True, p2p_seq_id=1)
    (tmp_path / "nccl_trace_rank_0").write_text(json.dumps(dump(waits)))
    report = verdict(tmp_path / "nccl_trace_rank_0")
    assert [(f.id, f.ranks) for f in report.verdict] == [("collective-not-joined", (1,))]


def test_the_watchdogs_lines_alone_name_who_is_missing(tmp_path):
    """One log of all ranks: three waited in number 8, and rank 2 had enqueued 7 only when it was asked to dump."""
    lines = [line for rank in (0, 1, 3) for line in (timed_out(rank, 8), status(rank, 8, 8, 7))]
    (tmp_path / "job.log").write_text("\n".join([*lines, status(2, 8, 7, 7), ""]))
    (finding,) = verdict(tmp_path / "job.log").verdict
    assert (finding.id, finding.ranks, finding.side) == ("collective-not-joined", (2,), "host")
    assert finding.confidence == "likely" and "before the dump" not in finding.cause


def test_the_watchdogs_lines_name_who_came_with_another_size(tmp_path):
    for rank in range(3):
        lines = [timed_out(rank, 8, size=17 if rank == 1 else 16), status(rank, 8, 8, 7)]
        (tmp_path / f"rank{rank}.log").write_text("\n".join([*lines, ""]))
    (finding,) = verdict(*tmp_path.glob("*.log")).verdict
    assert (finding.id, finding.ranks) == ("collective-shape-mismatch", (1,))


def test_the_watchdogs_lines_of_ranks_that_all_came_name_nobody(tmp_path):
    lines = [line for rank in range(3) for line in (timed_out(rank, 8), status(rank, 8, 8, 7))]
    (tmp_path / "job.log").write_text("\n".join([*lines, ""]))
    report = verdict(tmp_path / "job.log")
    assert not report.verdict and any(unknown.decisive for unknown in report.unknown)
    assert not any("every host" in unknown.because for unknown in report.unknown), "the size of the job is not known"


NCCL = """node1:42:77 [0] NCCL INFO ncclCommInitRankConfig comm 0x5 rank 3 nranks 8 cudaDev 0 busId 1 - Init COMPLETE
node1:42:80 [0] transport/net_ib.cc:1909 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<54862> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80::1 remoteGidsfe80::2 hca mlx5_2
"""  # noqa: E501 - as NCCL writes it


def test_nccls_own_log_tells_its_rank(distdbg, tmp_path):
    (tmp_path / "nccl.node1.42.log").write_text(NCCL)
    done = distdbg("explain", "nccl.node1.42.log", "--json")
    (finding,) = json.loads(done.out)["findings"]
    assert (done.code, finding["id"], finding["ranks"]) == (10, "nic-fault", [3])
    assert finding["evidence"][0]["line"] == 2


def test_nccls_own_log_hides_no_other_of_its_rank(tmp_path):
    (tmp_path / "nccl.node1.42.log").write_text(NCCL)
    (tmp_path / "rank3.log").write_text(
        'Traceback (most recent call last):\n  File "t.py", line 8, in f\nKeyError: 3\n'
    )
    report = verdict(tmp_path)
    assert {(f.id, f.ranks) for f in report.findings} >= {("nic-fault", (3,)), ("rank-exception", (3,))}
    assert not any("another source" in unknown.because for unknown in report.unknown)


def test_nccls_own_log_of_nobody_knows_whom(distdbg, tmp_path):
    (tmp_path / "nccl.node1.42.log").write_text(NCCL.partition("\n")[2])
    done = distdbg("explain", "nccl.node1.42.log")
    assert done.code == 10 and "a process of unknown rank" in done.out and "node1" in done.out


def test_a_run_and_files_beside_it(tmp_path):
    run = MadeRun(tmp_path)
    run.raises(2, "ValueError", "boom")
    run.rest(-15, t=11.0, asked=9.5)
    run.closes()
    alone = verdict(run.dir.path)
    assert alone.verdict[0].ranks == (2,)
    assert verdict(run.dir.path, recorders(tmp_path / "fr")).verdict[0].ranks == (2,)


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda p: (p / "picture").write_bytes(b"\x89PNG\r\n\x1a\n\0\0"), 3, "of a kind that distdbg knows"),
        (lambda p: None, 3, "there is no file"),
        (lambda p: (p / "fr_0").write_bytes(b"\x80\x02}q\x00("), 5, "cut short"),
    ],
)
def test_nothing_to_explain(distdbg, tmp_path, make, code, words):
    folder = tmp_path / "given"
    folder.mkdir()
    make(folder)
    done = distdbg("explain", folder)
    assert done.code == code, done
    assert words in done.err
    assert "Traceback" not in done.err


def test_two_dumps_are_two_jobs(distdbg, tmp_path):
    for name in "ab":
        (tmp_path / name / "nodes").mkdir(parents=True)
        (tmp_path / name / "manifest.json").write_text('{"schema": "distdbg.dump/1"}')
    assert distdbg("explain", "a", "b").code == 2


def test_stacks_and_lines_longer_than_any_buffer(tmp_path):
    """40 MB of stacks, and lines that are longer than what is read of one."""
    path = tmp_path / "rank0.txt"
    thread = "".join(f"    f{n} (train.py:{n})\n" for n in range(400))
    with path.open("w") as file:
        file.write("Process 7: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n")
        for n in range(5000):
            file.write(f'Thread {n + 7} (idle): "t{n}"\n{thread}')
        file.write('Thread 6 (idle): "long"\n    ' + "g" * 2_000_000 + " (train.py:1)\n    last (train.py:9)\n")
    assert path.stat().st_size > 38 << 20
    evidence = load([path])
    threads = evidence.dump.ranks[0].last.threads
    assert (len(threads), threads[-1].frames[-1].function) == (5001, "last")
    (lost,) = [u for u in evidence.unknown if u.what.startswith("of ")]
    assert "the end of 1 line" in lost.what


def test_of_a_long_log_all_is_read(tmp_path):
    """The failure stands at its beginning, and 20 MiB of other text follow."""
    path = tmp_path / "torchrun.log"
    path.write_text(LOG + "x\n" * (10 << 20))
    assert load([path]).logs.lines == LOG.count("\n") + (10 << 20)
    assert ("rank-exception", (1,)) in [(f.id, f.ranks) for f in verdict(path).verdict]


def test_any_text_is_read_and_reported(distdbg, tmp_path):
    (tmp_path / "notes").write_text("call the operator\n")
    done = distdbg("explain", "notes", "--json")
    answer = json.loads(done.out)
    assert (done.code, answer["findings"], answer["logs"]["lines"]) == (11, [], 1)


def test_json_alone_and_a_page(distdbg, tmp_path):
    recorders(tmp_path / "fr")
    done = distdbg("explain", "fr", "--json", "--html", "page.html")
    report = json.loads(done.out)
    assert (done.code, done.err) == (10, "")
    assert (report["run"], report["outcome"], report["findings"][0]["ranks"]) == (None, None, [2])
    assert report["findings"][0]["evidence"][0]["path"] == "fr/nccl_trace_rank_2"
    assert "collective-not-joined" in (tmp_path / "page.html").read_text()


def test_it_needs_no_torch(tmp_path):
    recorders(tmp_path / "fr")
    code = "import sys; sys.modules['torch'] = None; sys.argv = ['distdbg', 'explain', 'fr']\n"
    code += "from distdbg.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 10, done.stderr


def test_pyspys_text_is_recognised_by_its_content(tmp_path):
    (tmp_path / "rank4.html").write_text(TEXT)
    evidence = load([tmp_path / "rank4.html"])
    assert evidence.dump.ranks[4].pid == 15971


PROGRAM = """
import os, pickle, time, torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace
dist.init_process_group("gloo")
rank = dist.get_rank()
for _ in range(5):
    dist.all_reduce(torch.ones(7))
if rank != 1:
    dist.all_reduce(torch.ones(9), async_op=True)
data = _dump_fr_trace(True, True, False)
while not all(e["retired"] for e in pickle.loads(data)["entries"][:5]):  # gloo says so a little later
    time.sleep(0.1)
    data = _dump_fr_trace(True, True, False)
with open(f"fr/trace_{rank}", "wb") as file:
    file.write(data)
while len(os.listdir("fr")) < 3:  # whose peer is gone has an operation that failed, and none that is open
    time.sleep(0.1)
os._exit(0)
"""


@pytest.mark.slow
def test_torchs_own_pickles(torchrun, distdbg, tmp_path):
    (tmp_path / "fr").mkdir()
    (tmp_path / "job.py").write_text(PROGRAM)
    assert torchrun("--standalone", "--nproc-per-node", "3", "job.py").code == 0
    done = distdbg("explain", "fr", "--json")
    (finding,) = (f for f in json.loads(done.out)["findings"] if f["severity"] == "error")
    assert (finding["id"], finding["ranks"]) == ("collective-not-joined", [1])
    assert "all_reduce float32[9]" in finding["summary"]


def test_standard_input_and_patterns(distdbg, tmp_path):
    (tmp_path / "a.out").write_text(LOG)
    (tmp_path / "b.out").write_text("step 1 loss 2.0\n")
    done = distdbg("explain", "*.out", "--json")
    answer = json.loads(done.out)
    assert (done.code, answer["logs"]["files"], answer["findings"][0]["ranks"]) == (10, 2, [1])
    done = distdbg("explain", "no-*.out")
    assert done.code == 2 and "no-*.out" in done.err


def test_a_log_that_does_not_decide_says_so(distdbg, tmp_path):
    (tmp_path / "job.log").write_text(LOG[LOG.index("Root Cause") :].replace("rank      : 0", "rank      : 5"))
    done = distdbg("explain", "job.log", "--json")
    answer = json.loads(done.out)
    assert (done.code, answer["findings"]) == (11, [])
    assert any("rank 5" in unknown["what"] for unknown in answer["unknown"])


def test_log_of_normal_steps_without_an_end_is_undecided(distdbg, tmp_path):
    (tmp_path / "train.log").write_text("".join(f"step {n} loss {3 - n / 100:.2f} lr 1e-4\n" for n in range(50)))
    result = distdbg("explain", "train.log", "--json")
    report = json.loads(result.out)
    assert (result.code, report["outcome"], report["findings"]) == (11, None, [])
    assert [unknown["because"] for unknown in report["unknown"]] == [
        "no line shows a sign of a failure, and none says how the job ended, so its outcome is unknown"
    ]


def test_run_of_which_every_rank_succeeded_exits_0(distdbg, tmp_path):
    run = MadeRun(tmp_path)
    run.rest()
    run.closes()
    assert distdbg("explain", run.dir.path).code == 0


def test_the_page_has_the_decisive_lines_of_all_hosts_in_time(distdbg, tmp_path):
    (tmp_path / "node1.log").write_text("2024-05-01T10:00:05Z node1 python[7]: [rank1]: KeyError: 'x'\n")
    (tmp_path / "node0.log").write_text("2024-05-01T10:00:01Z node0 python[7]: [rank0]: ValueError: first\n")
    done = distdbg("explain", "node1.log", "node0.log", "--html", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert done.code == 10 and page.index("node0.log:1") < page.index("node1.log:1")
    assert done.out.index("ValueError: first") < done.out.index("What was read")
