"""What native functions wait for, by the names that gdb and py-spy print."""

import pytest

from distdbg.evidence.native_frames import NativeWait, native_wait_of, outermost_wait

CUDA, CUDART = "libcuda.so.1", "libcudart.so.12"
ITEM = "at::native::_local_scalar_dense_cuda"
GLOO = "gloo::transport::tcp::Pair::recv"


@pytest.mark.parametrize(
    ("frames", "wait", "call"),
    [
        ([("??", CUDA), ("cudaMemcpyAsync", CUDART), (ITEM, "libtorch_cuda.so")], "COPY", ".item()"),
        ([("??", CUDA), ("cudaStreamSynchronize", CUDART), ("ncclCommAbort", "")], "GROUP_END", "ncclCommAbort"),
        ([("??", CUDA), ("hipDeviceSynchronize", "libamdhip64.so.6")], "DEVICE", "hipDeviceSynchronize"),
        ([("??", CUDA), ("??", CUDA)], "DRIVER", CUDA),
        ([("accept4", "libc.so.6"), ("bootstrapInit", ""), ("ncclCommInitRankConfig", "")], "GROUP_SETUP",
         "ncclCommInitRankConfig"),
        ([("futex", ""), (GLOO, ""), ("c10d::Work::wait", "")], "RANKS", "c10d::Work::wait"),
        ([("recv", "libc.so.6"), ("c10d::TCPStore::doWait", "libtorch_cpu.so")], "STORE", "c10d::TCPStore::doWait"),
        ([("futex", ""), ("take_gil", "python3.11")], "GIL", "take_gil"),
    ],
)  # fmt: skip
def test_outermost_known_function_decides(frames, wait, call):
    assert outermost_wait(frames) == (NativeWait[wait], call)


def test_other_native_functions_wait_for_nothing_known():
    for function in ("clock_nanosleep", "tokenizers::encode", "RestoreFromDisk", "memcpy", "??"):
        assert native_wait_of(function, "libc.so.6") is None
