"""Numbers and texts of NVIDIA's public references, as tables; `header` writes them as tables.h for native/.

Sources: docs.nvidia.com/cuda/cuda-runtime-api ("Data types used by CUDA Runtime", "cudaDeviceProp"),
docs.nvidia.com/deploy/nvml-api ("Device Enumerators"), docs.nvidia.com/cupti/api ("CUpti_runtime_api_trace_cbid"),
docs.nvidia.com/deeplearning/nccl (user guide, api/types.html), github.com/NVIDIA/nccl at v2.29.7 for what NCCL writes.
"""

from __future__ import annotations

import re

#: cudaError_t: number -> our constant, name, text. CUresult has the same numbers where both name an error.
CUDA_ERRORS = {
    0: ("Success", "cudaSuccess", "no error"),
    1: ("InvalidValue", "cudaErrorInvalidValue", "invalid argument"),
    2: ("OutOfMemory", "cudaErrorMemoryAllocation", "out of memory"),
    98: ("InvalidDeviceFunction", "cudaErrorInvalidDeviceFunction", "invalid device function"),
    100: ("NoDevice", "cudaErrorNoDevice", "no CUDA-capable device is detected"),
    101: ("InvalidDevice", "cudaErrorInvalidDevice", "invalid device ordinal"),
    214: ("EccUncorrectable", "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"),
    400: ("InvalidHandle", "cudaErrorInvalidResourceHandle", "invalid resource handle"),
    600: ("NotReady", "cudaErrorNotReady", "device not ready"),
    700: ("IllegalAddress", "cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    710: ("Assert", "cudaErrorAssert", "device-side assert triggered"),
    719: ("LaunchFailure", "cudaErrorLaunchFailure", "unspecified launch failure"),
    801: ("NotSupported", "cudaErrorNotSupported", "operation not supported"),
    901: (
        "CaptureInvalidated", "cudaErrorStreamCaptureInvalidated", "operation failed due to an error during capture",
    ),
    999: ("Unknown", "cudaErrorUnknown", "unknown error"),
}  # fmt: skip
#: nvmlReturn_t: number -> our constant, text
NVML_ERRORS = {
    0: ("Success", "Success"),
    1: ("Uninitialized", "Uninitialized"),
    2: ("Invalid", "Invalid Argument"),
    3: ("NotSupported", "Not Supported"),
    6: ("NotFound", "Not Found"),
    7: ("Small", "Insufficient Size"),
    10: ("Timeout", "Timeout"),
    15: ("Lost", "GPU is lost"),
}
#: ncclResult_t: constant, text of ncclGetErrorString
NCCL_RESULTS = (
    ("ncclSuccess", "no error"),
    ("ncclUnhandledCudaError", "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"),
    ("ncclSystemError", "unhandled system error (run with NCCL_DEBUG=INFO for details)"),
    ("ncclInternalError", "internal error - please report this issue to the NCCL developers"),
    ("ncclInvalidArgument", "invalid argument (run with NCCL_DEBUG=WARN for details)"),
    ("ncclInvalidUsage", "invalid usage (run with NCCL_DEBUG=WARN for details)"),
    ("ncclRemoteError", "remote process exited or there was a network error"),
    ("ncclInProgress", "NCCL operation in progress"),
)
NCCL_VERSION = "2.29.7"
#: What NCCL calls the operations; it counts the first five.
OPERATIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "AlltoAll", "Send", "Recv")
#: CUPTI_RUNTIME_TRACE_CBID_*: number of a call of the runtime -> its name
CUPTI_CALLS = {
    20: "cudaMalloc_v3020", 22: "cudaFree_v3020", 27: "cudaHostAlloc_v3020", 31: "cudaMemcpy_v3020",
    41: "cudaMemcpyAsync_v3020", 51: "cudaMemsetAsync_v3020", 131: "cudaStreamSynchronize_v3020",
    135: "cudaEventRecord_v3020", 137: "cudaEventSynchronize_v3020", 147: "cudaStreamWaitEvent_v3020",
    165: "cudaDeviceSynchronize_v3020", 211: "cudaLaunchKernel_v7000", 311: "cudaGraphLaunch_v10000",
}  # fmt: skip
#: cudaDeviceAttr and CUdevice_attribute, which have the same numbers -> value of an H100 SXM. The others are 0: no
#: fabric handles, no multicast, no memory pools, no GPUDirect. 102: virtual memory management.
ATTRIBUTES = {
    1: 1024, 2: 1024, 3: 1024, 4: 64, 5: 2147483647, 6: 65535, 7: 65535, 8: 49152, 10: 32, 12: 65536, 13: 1980000,
    16: 132, 19: 1, 31: 1, 36: 2619000, 38: 50 << 20, 39: 2048, 41: 1, 75: 9, 81: 233472, 82: 65536, 95: 1, 97: 232448,
    102: 1,
}  # fmt: skip
#: cudaDeviceProp: type, name (with a length), and what an H100 SXM has; `12 only` is left out of CUDA 13. Limits of
#: textures and surfaces are left out: `limits` has their room. `@75` is the attribute of that number.
DEVICE_PROPERTIES = """
char name[256]
char uuid[16]
char luid[8]
unsigned luid_mask
size_t total_memory
size_t shared_per_block = 49152
int registers_per_block = 65536
int warp_size = 32
size_t pitch = 2147483647
int max_threads_per_block = 1024
int max_threads_dim[3] = 1024, 1024, 64
int max_grid[3] = 2147483647, 65535, 65535
int clock_rate                      12 only
size_t constant_memory = 65536
int major = @75
int minor = @76
size_t texture_alignment = 512
size_t texture_pitch_alignment
int device_overlap                  12 only
int multi_processors = @16
int exec_timeout                    12 only
int integrated
int can_map_host = 1
int compute_mode                    12 only
int limit                           12 only
int limits[39]
size_t surface_alignment
int concurrent_kernels = 1
int ecc = 1
int pci_bus
int pci_device
int pci_domain
int tcc
int async_engines = 3
int unified_addressing = 1
int memory_clock_rate               12 only
int memory_bus_width = 5120
int l2_bytes = @38
int l2_persisting
int max_threads_per_processor = @39
int stream_priorities = 1
int l1_global = 1
int l1_local = 1
size_t shared_per_processor = @81
int registers_per_processor = 65536
int managed_memory = 1
int multi_gpu_board
int multi_gpu_board_group
int native_atomics
int double_ratio                    12 only
int pageable_access
int concurrent_managed
int preemption
int host_pointer_registered
int cooperative_launch = 1
int cooperative_multi_device        12 only
size_t shared_per_block_optin = @97
int host_page_tables
int direct_managed
int max_blocks_per_processor = 32
int access_policy_window
size_t reserved_shared = 1024
int host_register = 1
int rest[70]
"""
#: The INFO lines of NCCL: id -> subsystems, text. A word in braces is filled in by native/nccl_voice.cpp.
INFO = {
    "bootstrap": ("BOOTSTRAP", "Bootstrap: Using {own}"),
    "driver": ("INIT", "cudaDriverVersion {cuda}"),
    "version": ("ALL", "NCCL version {version}"),
    "ib": ("INIT NET", "NET/IB : Using{hcas} [RO]; OOB {own}"),
    "socket": ("INIT NET", "NET/Socket : Using [0]{own}"),
    "network": ("INIT", "Using network {network}"),
    "ras": ("INIT RAS", "RAS {failed}client listening socket at {address}"),
    "init-start": (
        "INIT",
        "[Rank {rank}] {function} comm {comm} rank {rank} nranks {n} cudaDev {device} nvmlDev {nvml} busId {bus} "
        "commId {id} - Init START",
    ),
    "init-complete": (
        "INIT",
        "{function} comm {comm} rank {rank} nranks {n} cudaDev {device} nvmlDev {nvml} busId {bus} commId {id} "
        "- Init COMPLETE",
    ),
    "split-start": (
        "INIT",
        "{function} comm {comm} rank {rank} nranks {n} cudaDev {device} nvmlDev {nvml} busId {bus} parent {parent} "
        "childCount {number} color {color} key {key}- Init START",
    ),
    "split-complete": (
        "INIT",
        "{function} comm {comm} rank {rank} nranks {n} cudaDev {device} nvmlDev {nvml} busId {bus} parent {parent} "
        "childCount {number} color {color} key {key} - Init COMPLETE",
    ),
    "abort-start": ("INIT", "comm {comm} rank {rank} nRanks {n} cudaDev {device} busId {bus} - Abort START"),
    "abort-complete": ("INIT", "comm {comm} rank {rank} nranks {n} cudaDev {device} busId {bus} - Abort COMPLETE"),
    "destroy-complete": ("INIT", "comm {comm} rank {rank} nranks {n} cudaDev {device} busId {bus} - Destroy COMPLETE"),
    "operation": (
        "COLL",
        "{name}: opCount {issued} sendbuff {send} recvbuff {recv} count {count} datatype {type} op {op} root {root} "
        "comm {comm} [nranks={n}] stream {stream}",
    ),
}
#: The WARN lines: id -> the place in NCCL's source, text
WARN = {
    "cuda": ("enqueue.cc:1600", "Cuda failure '{error}'"),
    "system": ("os/linux.cc:289", "ncclOsSocketProgressOpt: Call to recv from {peer} failed : Connection timed out"),
    "file": ("misc/shmutils.cc:88", "Error: failed to extend {file} to {bytes} bytes, error: {error} ({errno})"),
    "internal": ("transport/net_socket.cc:270", "NET/Socket : socket progress error"),
    "closed": ("misc/socket.cc:35", "socketProgress: Connection closed by remote peer {peer}"),
    "completion": (
        "transport/net_ib/p2p.cc:651",
        "NET/IB: Got completion from peer {peer} with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) "
        "vendor_err=129  hca mlx5_{nvml}",
    ),
    "mismatch": (
        "transport/net_socket.cc:569",
        "NET/Socket : peer {peer} message truncated : receiving 1048576 bytes instead of 524288. If you believe your "
        "socket network is in a healthy state, there may be a mismatch in collective sizes or environment settings "
        "(e.g. NCCL_PROTO, NCCL_ALGO) between ranks",
    ),
    "group": ("group.cc:747", "ncclGroupEnd: not in a group call."),
    "root": ("misc/argcheck.cc:156", "{name} : invalid root {root} (root should be in the 0..{n} range)"),
    "rank": ("init.cc:2184", "Invalid rank requested : {rank}/{n}"),
}


#: The attributes of the device; GPU_BOX_ATTRIBUTES (`75=8,76=0`) has those of another kind than an H100.
_ATTRIBUTE_OF = """inline int attribute_of(int number) {
  static const auto* all = [] {
    auto* known = new std::map<int, int>{%s};
    for (const char* at = getenv("GPU_BOX_ATTRIBUTES"); at && *at;) {
      char* end;
      long other = strtol(at, &end, 10);
      if (*end != '=') break;
      (*known)[int(other)] = int(strtol(end + 1, &end, 10));
      at = *end == ',' ? end + 1 : "";
    }
    return known;
  }();
  auto found = all->find(number);
  return found == all->end() ? 0 : found->second;
}"""


def header(cuda_version: int) -> str:
    """tables.h: the tables as C++, for a version as CUDA writes it (13000 for 13.0)."""
    fields, values = [], []
    for line in DEVICE_PROPERTIES.strip().splitlines():
        found = re.fullmatch(r"(\w+) (\w+)(?:\[(\d+)\])?(?: = (.*?))?( +12 only)?", line)
        assert found, line
        kind, name, length, value, only_12 = found.groups()
        if only_12 and cuda_version >= 13000:
            continue
        fields.append(f"{kind} {name}{f'[{length}]' if length else ''};")
        value = re.sub(r"@(\d+)", r"attribute_of(\1)", value or "")
        each = value.split(", ") if value and length else [value] if value else []
        values += [f"p->{name}{f'[{i}]' if length else ''} = {one};" for i, one in enumerate(each)]
    subsystems = sorted({name for names, _ in INFO.values() for name in names.split()} - {"ALL"})
    bits = {name: 1 << number for number, name in enumerate(subsystems)} | {"ALL": 0xFFFFFFFF}
    info = [(id, sum(bits[name] for name in names.split()), text) for id, (names, text) in INFO.items()]
    parts = {
        "namespace cuda { enum : int": [f"k{name} = {number}" for number, (name, *_) in CUDA_ERRORS.items()],
        "struct { int code; const char *name, *text; } const kCudaErrors[] =": [
            _row(number, name, text) for number, (_, name, text) in CUDA_ERRORS.items()
        ],
        "} namespace nccl { enum Op : int": [f"k{name}" for name in OPERATIONS],
        "const char* const kOpNames[] =": [_quoted(name) for name in OPERATIONS],
        "} enum ncclResult_t": [name for name, _ in NCCL_RESULTS],
        "const char* const kNcclResults[] =": [_quoted(text) for _, text in NCCL_RESULTS],
        "struct { const char* name; unsigned bits; } const kSubsystems[] =": [_row(*row) for row in bits.items()],
        "struct { const char* id; unsigned subsystems; const char* text; } const kInfoLines[] =": [
            _row(*row) for row in info
        ],
        "struct { const char *id, *place, *text; } const kWarnLines[] =": [
            _row(id, place, text) for id, (place, text) in WARN.items()
        ],
        "namespace nvml { enum : int": [f"k{name} = {number}" for number, (name, _) in NVML_ERRORS.items()],
        "struct { int code; const char* text; } const kErrors[] =": [
            _row(number, text) for number, (_, text) in NVML_ERRORS.items()
        ],
        "} struct { int id; const char* name; } const kCuptiCalls[] =": [_row(*row) for row in CUPTI_CALLS.items()],
    }
    return "\n".join(
        [
            "// Written by tables.py.\n#pragma once\n#include <cstddef>\n#include <cstdlib>\n#include <map>",
            f'constexpr const char* kNcclVersion = "{NCCL_VERSION}";',
            _ATTRIBUTE_OF % ", ".join(_row(*row) for row in ATTRIBUTES.items()),
            f"struct DeviceProp {{ {' '.join(fields)} }};",
            f"inline void set_properties(DeviceProp* p) {{ {' '.join(values)} }}",
            *(f"{begin} {{ {', '.join(rows)} }};" for begin, rows in parts.items()),
        ]
    )


def _row(*values: object) -> str:
    return f"{{{', '.join(_quoted(v) if isinstance(v, str) else str(v) for v in values)}}}"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
