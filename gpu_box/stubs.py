"""Write C stubs for every function of NVIDIA's libraries that torch links and native/ does not model.

The list is read from torch's own libraries: their undefined symbols, with the version that says which library each is
expected in, and the libraries that they need. A stub returns a constant: success for mathematics (cuBLAS, cuDNN, …:
nothing is computed), "not supported" for the runtime, and what BODIES says where a caller would break on that; or it
is another name of a function that is modelled (OTHER_NAMES).
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from gpu_box.tables import NCCL_VERSION, OPERATIONS

#: Libraries of NVIDIA's that torch may need, by the beginning of their names.
NVIDIA = re.compile(r"lib(cu|nccl|nvrtc|nvshmem|nvidia|nvJitLink|nvToolsExt)")
#: Where a symbol without a version belongs, by its beginning; the first that fits counts.
HOMES = {"cuFile": "libcufile", "cusparseLt": "libcusparseLt", "nvshmem": "libnvshmem_host", "nccl": "libnccl"}
#: What a stub returns, by its library. 801: cudaErrorNotSupported; 3: ncclInternalError, NVML_ERROR_NOT_SUPPORTED.
RETURNS = defaultdict(int, {"libcudart": 801, "libcuda": 801, "libnccl": 3, "libnvidia-ml": 3})
RETURNS |= dict.fromkeys(("libcufile", "libcusparseLt", "libnvshmem_host"), 1)
#: Functions that have nothing to do here, and succeed.
SUCCEED = """
cudaDeviceEnablePeerAccess cudaProfilerStart cudaProfilerStop cudaMemPoolSetAttribute cudaMemPoolSetAccess
cudaMemPoolTrimTo cudaStreamDestroy cudaThreadExchangeStreamCaptureMode cudaFuncSetAttribute cudaGraphDebugDotPrint
cudaStreamUpdateCaptureDependencies cuDevicePrimaryCtxRelease cuCtxPushCurrent cuModuleUnload cuFuncSetAttribute
cuFuncSetCacheConfig cuCtxSetLimit cuTensorMapEncodeTiled ncclCommDeregister ncclCommWindowDeregister
""".split()  # noqa: SIM905
_HANDLE = "{ *(void**)a = calloc(1, 4096); return 0; }"
_TWO = "{ *(int*)a = 2; return 0; }"
_THIRD_IS_TWO = "{ *(int*)c = 2; return 0; }"
_VERSION = "{ *(int*)a = VERSION; return 0; }"
_NCCL_VERSION = int("{:d}{:02d}{:02d}".format(*map(int, NCCL_VERSION.split("."))))  # ncclGetVersion: 22907
#: More than a function has arguments does not matter on x86-64 and arm64: a to j are what it may have.
BODIES = {
    "cublasCreate_v2": _HANDLE, "cusparseCreate": _HANDLE, "cusolverDnCreate": _HANDLE, "cudnnCreate": _HANDLE,
    "cublasLtMatmulDescCreate": _HANDLE, "cublasLtMatrixLayoutCreate": _HANDLE, "cublasLtCreate": _HANDLE,
    "cublasLtMatmulPreferenceCreate": _HANDLE, "nvrtcCreateProgram": _HANDLE,
    "cuModuleLoad": _HANDLE, "cuModuleLoadData": _HANDLE, "cuModuleLoadDataEx": _HANDLE,
    "cublasLtMatmulAlgoGetHeuristic": "{ *(int*)j = 1; return 0; }",  # one algorithm, without a workspace
    "cublasGetVersion_v2": "{ *(int*)b = 130101; return 0; }", "cublasLtGetVersion": "{ return 130101; }",
    "cudnnGetVersion": "{ return 92000; }", "cudnnGetCudartVersion": "{ return 13000; }",
    "cudnnGetProperty": "{ static const int v[] = {9, 20, 0, 0}; *(int*)b = v[(long)a & 3]; return 0; }",
    "cublasGetStatusString": '{ return (long)"gpu box"; }', "cudnnGetErrorString": '{ return (long)"gpu box"; }',
    "nvrtcGetErrorString": '{ return (long)"gpu box"; }',
    "nvrtcVersion": "{ *(int*)a = 13; *(int*)b = 0; return 0; }",
    "nvrtcGetPTXSize": "{ *(long*)b = 1; return 0; }", "nvrtcGetCUBINSize": "{ *(long*)b = 1; return 0; }",
    "nvrtcGetPTX": "{ *(char*)b = 0; return 0; }", "nvrtcGetCUBIN": "{ *(char*)b = 0; return 0; }",
    "nvrtcGetProgramLogSize": "{ *(long*)b = 1; return 0; }", "nvrtcGetProgramLog": "{ *(char*)b = 0; return 0; }",
    "nvrtcGetLoweredName": '{ *(const char**)c = "kernel"; return 0; }',
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": _TWO, "cuOccupancyMaxActiveBlocksPerMultiprocessor": _TWO,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": _TWO, "cuOccupancyMaxActiveClusters": _TWO,
    # 0: most threads of a block, 4: registers of a thread; no shared or local memory
    "cuFuncGetAttribute": "{ *(int*)a = (long)b == 0 ? 1024 : (long)b == 4 ? 32 : 0; return 0; }",
    "cuPointerGetAttribute": "{ return (long)b == 3 ? *(void**)a = c, 0 : 801; }",  # 3: the address for the device
    "cuCtxGetLimit": "{ *(long*)a = 0; return 0; }",
    "nvmlDeviceGetNvLinkRemoteDeviceType": _THIRD_IS_TWO,  # NVML_NVLINK_DEVICE_TYPE_SWITCH
    "cudaDriverGetVersion": _VERSION, "cudaRuntimeGetVersion": _VERSION, "cuDriverGetVersion": _VERSION,
    "cuptiGetVersion": "{ *(int*)a = VERSION < 13000 ? 26 : VERSION * 10; return 0; }",  # since CUDA 13 the toolkit's
    "cuptiGetResultString": '{ *(const char**)b = a ? "CUPTI_ERROR" : "CUPTI_SUCCESS"; return 0; }',
    "cudaDeviceCanAccessPeer": "{ *(int*)a = (int)(long)b != (int)(long)c; return 0; }",
    "cudaDeviceGetStreamPriorityRange": "{ if (a) *(int*)a = 0; if (b) *(int*)b = -5; return 0; }",
    "nvmlDeviceGetMaxMigDeviceCount": "{ *(int*)b = 7; return 0; }",
    "__cudaGetKernel": "{ *(void**)a = b; return 0; }",
    "cuModuleGetFunction": "{ *(void**)a = strdup((char*)c); return 0; }",
    "cuGetErrorName": "{ void* cudaGetErrorName(); *(void**)b = cudaGetErrorName(a); return 0; }",
    "cuGetErrorString": "{ void* cudaGetErrorString(); *(void**)b = cudaGetErrorString(a); return 0; }",
    "ncclGetVersion": f"{{ *(int*)a = {_NCCL_VERSION}; return 0; }}",
    "cuInit": "{ int n, cudaGetDeviceCount(); return cudaGetDeviceCount(&n); }",
    "cuMemGetAllocationGranularity": "{ *(long*)a = 2 << 20; return 0; }",
    # Kernels, and the variables of devices: the host has one of the same size, which is used for both.
    "__cudaRegisterFatBinary": "{ static void* handle; return (long)&handle; }",
    "cudaGetSymbolAddress": "{ *(void**)a = b; return 0; }",
    "cudaMemcpyToSymbol": "{ memcpy((char*)a + (long)d, b, (long)c); return 0; }",
    # A buffer that is registered with NCCL, for a window or not: its address is its handle.
    "ncclCommRegister": "{ *(void**)d = b; return 0; }", "ncclCommWindowRegister": "{ *(void**)d = b; return 0; }",
    # Zeros: there is no fabric. The first field is the version, which holds the size.
    "nvmlDeviceGetGpuFabricInfoV": "{ unsigned* v = b; memset(v + 1, 0, (*v & 0xffffff) - 4); return 0; }",
    **dict.fromkeys(SUCCEED, "{ return 0; }"),
}  # fmt: skip
#: Function -> the modelled one, and the arguments with which it is called: ours by their letters, numbers, a version.
OTHER_NAMES = {
    "cudaGetDeviceProperties_v2": "cudaGetDeviceProperties a b",
    "cudaMemset": "cudaMemsetAsync a b c 0",
    "cudaMallocHost": "cudaHostAlloc a b 0",
    "cudaMemcpyPeerAsync": "cudaMemcpyAsync a c e 4 f",
    "cudaStreamCreate": "cudaStreamCreateWithPriority a 0 0",
    "cudaStreamCreateWithFlags": "cudaStreamCreateWithPriority a 0 0",
    "cudaStreamGetCaptureInfo_v2": "cudaStreamGetCaptureInfo a b c d e f 0",
    "cudaEventCreate": "cudaEventCreateWithFlags a 0",
    "cudaEventRecord": "cudaEventRecordWithFlags a b 0",
    "cudaEventElapsedTime_v2": "cudaEventElapsedTime a b c",
    # An event of another process is complete as soon as there is a handle of it.
    "cudaIpcGetEventHandle": "cudaEventSynchronize b",
    "cudaIpcOpenEventHandle": "cudaEventCreateWithFlags a 0",
    "cudaGraphInstantiate": "cudaGraphInstantiateWithFlags a b 0",
    "cudaGraphExecDestroy": "cudaGraphDestroy a",
    "cudaIpcCloseMemHandle": "cudaFreeHost a",
    "cudaStreamIsCapturing": "cudaStreamGetCaptureInfo a b 0 0 0 0 0",
    "cudaLaunchCooperativeKernel": "cudaLaunchKernel a b c d e f g h",
    "__cudaLaunchKernel": "cudaLaunchKernel a b c d e f g h",
    "cudaGetDriverEntryPoint": "cudaGetDriverEntryPointByVersion a b VERSION c d",
    "cuDeviceGetCount": "cudaGetDeviceCount a",
    "cuDeviceGetAttribute": "cudaDeviceGetAttribute a b c",
    "nvmlInit": "nvmlInitWithFlags 0",
    "nvmlInit_v2": "nvmlInitWithFlags 0",
    "nvmlDeviceGetCurrentClocksThrottleReasons": "nvmlDeviceGetCurrentClocksEventReasons a b",
    "ncclMemAlloc": "cudaMalloc a b",
    "ncclMemFree": "cudaFree a",
    # op, send, recv, count, type, reduction, root or peer, communicator, stream
    "ncclAllReduce": "box_nccl AllReduce a b c d e 0 f g",
    "ncclReduce": "box_nccl Reduce a b c d e f g h",
    "ncclReduceScatter": "box_nccl ReduceScatter a b c d e 0 f g",
    "ncclBroadcast": "box_nccl Broadcast a b c d 0 e f g",
    "ncclBcast": "box_nccl Broadcast a a b c 0 d e f",
    "ncclAllGather": "box_nccl AllGather a b c d 0 0 e f",
    "ncclAlltoAll": "box_nccl AlltoAll a b c d 0 0 e f",
    "ncclSend": "box_nccl Send a 0 b c 0 d e f",
    "ncclRecv": "box_nccl Recv 0 a b c 0 d e f",
}
#: Asked for by name while the process runs, so that no library's list of symbols has them.
BY_NAME = {
    "libcuda": [name for name in (*BODIES, *OTHER_NAMES) if re.match("cu[A-Z]", name)],
    "libnvidia-ml": [
        "nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetP2PStatus", "nvmlDeviceGetMaxMigDeviceCount",
        *(name for name in OTHER_NAMES if name.startswith("nvml")),
    ],
}  # fmt: skip


@dataclass
class Library:
    """One of NVIDIA's libraries as torch sees it: `symbols` without those that the box models."""

    soname: str
    symbols: set[str] = field(default_factory=set)
    version: str = ""  #: of its symbols; "" where torch asks for none

    @property
    def stem(self) -> str:
        return self.soname.partition(".so")[0]

    def source(self) -> str:
        """The stubs in C."""
        names = sorted(self.symbols | set(BY_NAME.get(self.stem, ())))
        lines = ["#include <stdlib.h>", "#include <string.h>"]
        lines += [f"int {target}();" for target in sorted({told.split()[0] for told in OTHER_NAMES.values()})]
        arguments = ", ".join(f"void* {letter}" for letter in "abcdefghij")
        lines += [f"long {name}({arguments}) {self._body(name)}" for name in names]
        return "\n".join(lines) + "\n"

    def _body(self, name: str) -> str:
        if name in OTHER_NAMES:
            target, *words = OTHER_NAMES[name].split()
            words = [str(OPERATIONS.index(word)) if word in OPERATIONS else word for word in words]
            given = ", ".join(word if len(word) == 1 and word.isalpha() else f"(void*)({word})" for word in words)
            return f"{{ return {target}({given}); }}"
        return BODIES.get(name, f"{{ return {RETURNS[self.stem]}; }}")


def libraries_of(torch_lib: Path, modelled: set[str]) -> list[Library]:
    """What the libraries in `torch_lib` need of NVIDIA's, without the functions in `modelled`."""
    found: dict[str, Library] = {}
    mine = sorted(torch_lib.glob("*.so"))
    for path in mine:
        dynamic = _output("readelf", "--dynamic", "--wide", path)
        for soname in re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic):
            if NVIDIA.match(soname) and not (torch_lib / soname).exists():
                found.setdefault(soname, Library(soname))
    by_stem = {library.stem: library for library in found.values()}
    for path in mine:
        for line in _output("nm", "--dynamic", "--undefined-only", "--with-symbol-versions", path).splitlines():
            name, _, version = line.split()[-1].partition("@")
            # Most of NVIDIA's libraries call the version of their symbols by their soname.
            library = found.get(version) or by_stem.get(_home(name) or "")
            if library is not None:
                library.version = version or library.version
                if name not in modelled:
                    library.symbols.add(name)
    return sorted(found.values(), key=lambda library: library.soname)


def _home(symbol: str) -> str | None:
    """The library of a symbol whose version does not tell it."""
    driver = "libcuda" if re.match("cu[A-Z]", symbol) else None
    return next((stem for prefix, stem in HOMES.items() if symbol.startswith(prefix)), driver)


def _output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
