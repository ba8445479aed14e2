"""Stacks that a debugger took of single processes: native waits are what they wait for, and no Python code."""

import pytest

from distdbg.collect.runs.explaining import load
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


def test_process_without_a_rank_is_described(tmp_path):
    (tmp_path / "gdb.txt").write_text(ABORT)
    unknown = " ".join(u.what for u in load([tmp_path / "gdb.txt"]).unknown)
    assert "process 901" in unknown and "ncclCommAbort" not in unknown and "libcuda.so.1" in unknown
