"""Stacks that a debugger took of single processes: native waits are what they wait for, and no Python code."""

from pathlib import Path

import pytest

from distdbg.collect.runs.explaining import load
from distdbg.diagnosis.timeline.standing import Doing
from distdbg.diagnosis.verdict import build_report
from distdbg.diagnosis.waits.hang import hang_of

ITEM = """#0  0x00007fd27fb0bf33 in ?? () from /usr/lib64/libcuda.so.1
#1  0x00007f3712ed7c3d in ?? () from /usr/lib64/libcudart.so.12
#2  0x00007f59cabcc7dc in cudaMemcpyAsync () from /usr/lib64/libcudart.so.12
#3  0x00007ff65dd64177 in at::native::_local_scalar_dense_cuda(at::Tensor const&)::{lambda()#1}::operator()() const ()
   from /opt/venv/lib/python3.10/site-packages/torch/lib/libtorch_cuda.so
"""
ABORT = """Thread 7 (Thread 0x7f3b92ffd700 (LWP 907)):
#0  0x00007f2e5f2a2521 in ?? () from /usr/lib64/libcuda.so.1
#1  0x00007f710e0f48a0 in cudaStreamSynchronize () from /usr/lib64/libcudart.so.12
#2  0x00007f3f90efc5c3 in ncclCommAbort (comm=0x55d01862fc6d) at init.cc:1823

Thread 1 (Thread 0x7f40a11fe740 (LWP 901))
#0  0x00007fabdf674a8e in ?? () from /usr/lib64/libcuda.so.1
"""
TOKENIZER = """#0  0x00007fabdf674a8e in futex_wait () from /lib64/libc.so.6
#1  0x00007fabdf674a8f in rayon_core::join () from /opt/venv/lib/python3.10/site-packages/tokenizers/tokenizers.so
"""
SLEEP = """#0  0x00007fabdf674a8e in clock_nanosleep () from /lib64/libc.so.6
#1  0x00000000005f1a0e in time_sleep () from /usr/bin/python3.10
#2  Frame 0x55d0, for file /work/me/train.py, line 88, in step (n=3)
"""


def judged(folder, **texts):
    for name, text in texts.items():
        (folder / f"stack_{name}.txt").write_text(text)
    evidence = load(sorted(folder.iterdir()))
    report = build_report(evidence)
    return [(f.id, f.ranks) for f in report.verdict if f.severity == "error"], hang_of(evidence).standings


@pytest.mark.parametrize(
    ("text", "call"), [(ITEM, ".item()"), (ABORT, "libcuda.so.1")], ids=["item in a bare bt", "abort of a communicator"]
)
def test_wait_for_the_device_is_native(tmp_path, text, call):
    verdict, standings = judged(tmp_path, rank0=text)
    assert verdict == [("stuck-in-native", (0,))]
    assert standings[0].native_call == call


def test_thread_that_aborts_a_communicator_is_named(tmp_path):
    _, standings = judged(tmp_path, rank0=ABORT)
    assert "thread 907" in standings[0].phrase


def test_rank_at_its_device_waits_for_a_rank_elsewhere(tmp_path):
    verdict, _ = judged(tmp_path, rank0=ITEM, rank1=SLEEP)
    assert verdict == [("stuck-in-python", (1,))]


def test_ranks_that_all_wait_for_devices_have_no_culprit(tmp_path):
    verdict, _ = judged(tmp_path, rank0=ITEM, rank1=ABORT)
    assert verdict == [("stuck-in-native", (0, 1))]


def test_library_of_native_code_is_named_and_libc_is_not(tmp_path):
    verdict, standings = judged(tmp_path, rank0=TOKENIZER)
    assert verdict == [("stuck-in-native", (0,))] and "tokenizers.so" in standings[0].phrase


def test_sleep_stays_in_python(tmp_path):
    assert judged(tmp_path, rank0=SLEEP)[0] == [("stuck-in-python", (0,))]


@pytest.fixture
def report_of(tmp_path, monkeypatch):
    """Makes the report on a file whose path names no rank."""
    monkeypatch.chdir(tmp_path)

    def read(text):
        Path("gdb.txt").write_text(text)
        return build_report(load([Path("gdb.txt")]))

    return read


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        (
            ABORT,
            "process 901 (its rank is not known) waits probably for its device in libcuda.so.1, while its thread 907",
        ),
        (ITEM, "the process of this stack (its rank is not known) waits for its device in .item()"),
    ],
    ids=["abort", "bare bt"],
)
def test_device_wait_without_rank_is_a_possible_warning(report_of, text, summary):
    report = report_of(text)
    (finding,) = report.findings
    assert (finding.id, finding.severity, finding.confidence) == ("stuck-in-native", "warning", "possible")
    assert finding.ranks == () and finding.summary.startswith(summary)
    assert finding.evidence[0].path.endswith("gdb.txt") and "libcuda.so.1" in finding.evidence[0].quote
    assert report.outcome == "unknown" and report.undecided


#: The main thread of a script that waits for its loader's workers, as gdb prints it with Python's debug symbols.
POLL = """Thread 1 (Thread 0x7f40a11fe740 (LWP 4242) "python"):
#0  0x00007f3d2e1a0a35 in __GI___poll (fds=0x7f, nfds=1, timeout=5000) at ../sysdeps/unix/sysv/linux/poll.c:29
#1  0x00007f3d2e1a0b35 in select_poll_poll_impl (self=0x7f) at ./Modules/selectmodule.c:654
#2  0x00007f3d2e1a0c35 in select_poll_poll () from /usr/lib/python3.10/lib-dynload/select.cpython-310.so
#3  0x000055d0fa356085 in _PyEval_EvalFrameDefault () from /usr/bin/python3.10
"""
EPOLL = POLL.replace("__GI___poll", "epoll_wait")
RECEIVES = POLL.replace("__GI___poll", "__libc_recv").replace("select", "_socket")
LOCK = """#0  0x00007f3d2e8a0a35 in futex_wait_cancelable () at ../sysdeps/nptl/futex-internal.h:183
#1  0x000055d0fa356084 in take_gil (tstate=0x55d0) at ./Python/ceval_gil.h:246
"""
ITS_EVENT_LOOP = EPOLL + "#4  Frame 0x55d0, for file /work/me/serve.py, line 8, in run (n=3)\n"


@pytest.mark.parametrize("text", [POLL, EPOLL, RECEIVES, LOCK], ids=["poll", "epoll", "recv", "lock"])
def test_idle_process_without_rank_has_no_finding(report_of, text):
    report = report_of(text)
    assert report.findings == () and report.undecided


@pytest.mark.parametrize("text", [POLL, EPOLL, RECEIVES], ids=["poll", "epoll", "recv"])
def test_idle_rank_without_python_frames_is_unknown(tmp_path, text):
    verdict, standings = judged(tmp_path, rank0=text)
    assert (verdict, standings[0].doing) == ([], Doing.UNKNOWN)
    unknown = build_report(load(sorted(tmp_path.iterdir()))).unknown
    assert [u.what for u in unknown if u.decisive] == ["whether the job stands still"]


def test_poll_in_the_users_code_is_io(tmp_path):
    verdict, standings = judged(tmp_path, rank0=ITS_EVENT_LOOP)
    assert verdict == [("stuck-on-io", (0,))] and standings[0].frame.line == 8


def test_one_idle_process_of_two_excludes_the_device_finding(report_of):
    report = report_of(ABORT + POLL)
    assert report.findings == ()


def test_process_without_a_rank_is_described(tmp_path):
    (tmp_path / "gdb.txt").write_text(ABORT)
    unknown = " ".join(u.what for u in load([tmp_path / "gdb.txt"]).unknown)
    assert "process 901" in unknown and "ncclCommAbort" not in unknown and "libcuda.so.1" in unknown
