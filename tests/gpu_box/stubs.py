"""Write C stubs for every function of NVIDIA's libraries that torch links and the box does not model.

The list is read from torch's own libraries: their undefined symbols, with the version that says which library each is
expected in, and the libraries that they need. A stub returns a constant: success for mathematics (cuBLAS, cuDNN, …:
nothing is computed), "not supported" for the runtime, and what BODIES says where a caller would break on that.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

#: Libraries of NVIDIA's that torch may need, by the beginning of their names.
NVIDIA = re.compile(r"lib(cu|nccl|nvrtc|nvshmem|nvidia|nvJitLink|nvToolsExt)")
#: Where a symbol without a version belongs, by its beginning; the first that fits counts.
HOMES = {"cuFile": "libcufile", "cusparseLt": "libcusparseLt", "nvshmem": "libnvshmem_host", "nccl": "libnccl"}
#: What a stub returns, by its library. 801: cudaErrorNotSupported; 3: ncclInternalError, NVML_ERROR_NOT_SUPPORTED.
RETURNS = defaultdict(int, {"libcudart": 801, "libcuda": 801, "libnccl": 3, "libnvidia-ml": 3})
RETURNS |= dict.fromkeys(("libcufile", "libcusparseLt", "libnvshmem_host"), 1)
#: Functions of the runtime and the driver that have nothing to do here, and succeed.
SUCCEED = """
cudaDeviceEnablePeerAccess cudaProfilerStart cudaProfilerStop cudaMemPoolSetAttribute cudaMemPoolSetAccess
cudaMemPoolTrimTo cudaStreamDestroy cudaThreadExchangeStreamCaptureMode cudaFuncSetAttribute cudaGraphDebugDotPrint
cudaStreamUpdateCaptureDependencies cuDevicePrimaryCtxRelease cuCtxPushCurrent cuModuleUnload cuFuncSetAttribute
cuFuncSetCacheConfig cuCtxSetLimit cuTensorMapEncodeTiled
""".split()
_HANDLE = "{ *(void**)a = calloc(1, 4096); return 0; }"
_TWO = "{ *(int*)a = 2; return 0; }"
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
    "cuFuncGetAttribute": "{ *(int*)a = (int)(long)b ? 32 : 1024; return 0; }",  # 0: most threads of a block
    # Zeros: there is no fabric. The first field is the version, which holds the size.
    "nvmlDeviceGetGpuFabricInfoV": "{ unsigned* v = b; memset(v + 1, 0, (*v & 0xffffff) - 4); return 0; }",
    **dict.fromkeys(SUCCEED, "{ return 0; }"),
}  # fmt: skip
#: Asked for by name while the process runs, so that no library's list of symbols has them.
BY_NAME = {
    "libcuda": [name for name in BODIES if re.match("cu[A-Z]", name)],
    "libnvidia-ml": ["nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetP2PStatus"],
}


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
        names = self.symbols | set(BY_NAME.get(self.stem, ()))
        bodies = {name: BODIES.get(name, f"{{ return {RETURNS[self.stem]}; }}") for name in sorted(names)}
        arguments = ", ".join(f"void* {letter}" for letter in "abcdefghij")
        return (
            "\n".join(
                [
                    "#include <stdlib.h>\n#include <string.h>",
                    *(f"long {n}({arguments}) {body}" for n, body in bodies.items()),
                ]
            )
            + "\n"
        )

    def version_script(self) -> str:
        return f"{self.version} {{ global: *; }};\n"


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
            library = found.get(version) or by_stem.get(_home(name))
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
