"""What CUDA, NCCL and NVML answer about planted faults: a process for each fault, without torch.

    python answers.py '[["0", "0", "kernel-hang", true], …]'    rank, device and kind; whether the call blocks

Prints an object for each process: what the call with the fault answered (`call`: an error's name, a result of NCCL, or
"blocked"), and what CUDA (`free`, `total`, `bus`) and NVML (`before`, `after` the call) say of its device.
"""

import ctypes
import json
import multiprocessing
import os
import sys
import threading
import time
from ctypes import byref, c_int, c_size_t, c_void_p

import pynvml

GIB = 1 << 30
#: A call that is to block has not returned by then. All others are waited for.
BLOCKED_S, MOST_S = 0.3, 60.0
#: ncclInProgress, and the numbers of an ncclFloat32 and of ncclSum
IN_PROGRESS, FLOAT32, SUM = 7, 7, 0


class Id(ctypes.Structure):
    """An ncclUniqueId."""

    _fields_ = [("bytes", ctypes.c_char * 128)]


class Dim3(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in "xyz"]


def ask(function, *arguments):
    """NVML's answer, or the number of its error."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        return f"error {error.value}"


def nvml_says(device, events):
    memory = ask(pynvml.nvmlDeviceGetMemoryInfo, device)
    processes = ask(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, device)
    event = ask(pynvml.nvmlEventSetWait_v2, events, 20)
    return {
        "memory": memory if isinstance(memory, str) else [memory.free, memory.total],
        "processes": processes if isinstance(processes, str) else {p.pid: p.usedGpuMemory for p in processes},
        "ecc": ask(pynvml.nvmlDeviceGetTotalEccErrors, device, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, 0),
        "clock": ask(pynvml.nvmlDeviceGetClockInfo, device, pynvml.NVML_CLOCK_GRAPHICS),
        "slowed": ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, device),
        "xid": None if isinstance(event, str) else event.eventData,
    }


def launch(box):
    """A kernel, and the wait for it: the error, and the seconds until each call had returned."""
    kernel = c_int()
    box.__cudaRegisterFunction(None, byref(kernel), None, b"kernel", 0)
    begun = time.monotonic()
    box.cudaLaunchKernel(byref(kernel), Dim3(1, 1, 1), Dim3(1, 1, 1), None, c_size_t(0), None)
    launched = time.monotonic() - begun
    error = box.cudaGetErrorName(box.cudaDeviceSynchronize()).decode()
    return error, [launched, time.monotonic() - begun]


def query(box):
    event = c_void_p()
    box.cudaEventCreateWithFlags(byref(event), 0)
    return box.cudaGetErrorName(box.cudaEventQuery(event)).decode()


def reduce(box, name, rank, ranks, count, data):
    """A communicator, an all-reduce, and the asynchronous error, unless the set-up has one."""
    comm, error = c_void_p(), c_int()
    made = box.ncclCommInitRank(byref(comm), ranks, Id(name.encode()), rank)
    if made:
        return made
    library = ctypes.CDLL("libnccl.so.2")  # its functions of operations are stubs that call libgpubox.so
    library.ncclAllReduce(data, data, c_size_t(count), FLOAT32, SUM, comm, None)
    while not error.value and box.cudaStreamQuery(None):
        time.sleep(0.01)
        box.ncclCommGetAsyncError(comm, byref(error))
    return error.value


def answer(rank, number, kind, blocks, barrier):
    os.environ["RANK"] = rank
    box = ctypes.CDLL("libgpubox.so")
    box.cudaGetErrorName.restype = ctypes.c_char_p
    pynvml.nvmlInit()
    device, events = pynvml.nvmlDeviceGetHandleByIndex(number), pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(device, pynvml.nvmlEventTypeXidCriticalError, events)
    data, free, total, bus = c_void_p(), c_size_t(), c_size_t(), ctypes.create_string_buffer(16)
    box.cudaSetDevice(number)
    box.cudaMalloc(byref(data), c_size_t(GIB))
    barrier.wait(MOST_S)
    box.cudaMemGetInfo(byref(free), byref(total))
    box.cudaDeviceGetPCIBusId(bus, 16, number)
    said = {"rank": int(rank), "kind": kind, "free": free.value, "total": total.value, "bus": bus.value.decode()}
    said |= {"before": nvml_says(device, events), "pid": os.getpid(), "call": "blocked"}
    said["nvml_bus"] = pynvml.nvmlDeviceGetPciInfo(device).busId
    barrier.wait(MOST_S)

    def call():
        box.cudaSetDevice(number)  # of this thread
        if kind == "other-process":  # of a device that another process loses
            while not isinstance(ask(pynvml.nvmlDeviceGetMemoryInfo, device), str):
                time.sleep(0.01)
        if kind == "driver-blocked":
            said["call"] = query(box)
        elif kind == "nccl-mismatch":  # of two ranks: the second has another count
            said["call"] = reduce(box, f"comm-{int(rank) // 2}", int(rank) % 2, 2, 10 + int(rank) % 2, data)
        elif kind.startswith(("nccl-", "comm-")):
            said["call"] = reduce(box, f"comm-{kind}", 0, 1, 10, data)
        else:
            said["call"], said["seconds"] = launch(box)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(BLOCKED_S if blocks else MOST_S)
    said["after"] = nvml_says(device, events)
    print(json.dumps(said) + "\n", end="", flush=True)
    barrier.wait(MOST_S)  # a process that ends would change what NVML says
    os._exit(0)


if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    wanted = json.loads(sys.argv[1])
    barrier = fork.Barrier(len(wanted))
    children = [fork.Process(target=answer, args=(rank, int(n), *more, barrier)) for rank, n, *more in wanted]
    for child in children:
        child.start()
    for child in children:
        child.join()
