// The types of CUDA's runtime and driver that this box needs, written by hand from the public reference:
// docs.nvidia.com/cuda/cuda-runtime-api ("Data types used by CUDA Runtime") and docs.nvidia.com/cuda/cuda-driver-api
// ("Data types used by CUDA driver"). Numbers, and cudaDeviceProp, are in tables.py. BOX_CUDA_VERSION is the wheel's.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tables.h"

using namespace cuda;
using cudaError_t = int;  // cudaError and CUresult have the same numbers where both name an error
using Handle = void*;     // streams, events, graphs, functions, contexts: opaque to the caller
struct Dim3 { unsigned x, y, z; };  // dim3
// cudaLaunchConfig_t
struct LaunchConfig { Dim3 grid, block; size_t shared; Handle stream; void* attributes; unsigned count; };
// CUlaunchConfig
struct DriverLaunchConfig { unsigned grid[3], block[3], shared; Handle stream; void* attributes; unsigned count; };
// cudaPointerAttributes; type: cudaMemoryTypeUnregistered 0, Host 1, Device 2
struct PointerAttributes { int type, device; void *device_pointer, *host_pointer; };
// cudaFuncAttributes, as far as torch reads it
struct FuncAttributes {
  size_t shared, constant, local;
  int max_threads, registers, ptx_version, binary_version, cache_mode, max_dynamic_shared;
};
struct IpcHandle { char name[64]; };  // cudaIpcMemHandle_t, cudaIpcEventHandle_t

// Driver: virtual memory management, named in "Virtual Memory Management" of the driver reference
struct MemLocation { int type, id; };
struct MemAllocationProp {  // CUmemAllocationProp
  int type, handle_types;   // handle types: POSIX file descriptor 1, fabric 8
  MemLocation location;
  void* win32;
  unsigned char compression, rdma;
  unsigned short usage;
  unsigned char reserved[4];
};
