// The types and numbers of CUDA's runtime and driver that this box needs, written by hand from the public reference:
// docs.nvidia.com/cuda/cuda-runtime-api (sections "Data types used by CUDA Runtime", "cudaDeviceProp") and
// docs.nvidia.com/cuda/cuda-driver-api ("Data types used by CUDA driver"). BOX_CUDA_VERSION is that of the wheel.
#pragma once
#include <cstddef>
#include <cstdint>

using cudaError_t = int;  // cudaError and CUresult have the same numbers where both name an error
using Handle = void*;     // streams, events, graphs, functions, contexts: opaque to the caller
enum : int {
  kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kInvalidDeviceFunction = 98, kNoDevice = 100, kInvalidDevice = 101,
  kEccUncorrectable = 214, kInvalidHandle = 400, kNotReady = 600, kIllegalAddress = 700, kAssert = 710,
  kLaunchFailure = 719, kNotSupported = 801, kCaptureInvalidated = 901, kUnknown = 999,
};

struct Dim3 { unsigned x, y, z; };  // dim3
// cudaLaunchConfig_t
struct LaunchConfig { Dim3 grid, block; size_t shared; Handle stream; void* attributes; unsigned count; };
// cudaPointerAttributes; type: cudaMemoryTypeUnregistered 0, Host 1, Device 2
struct PointerAttributes { int type, device; void *device_pointer, *host_pointer; };
// cudaFuncAttributes, as far as torch reads it
struct FuncAttributes {
  size_t shared, constant, local;
  int max_threads, registers, ptx_version, binary_version, cache_mode, max_dynamic_shared;
};
struct IpcHandle { char name[64]; };  // cudaIpcMemHandle_t, cudaIpcEventHandle_t

#if BOX_CUDA_VERSION < 13000
#define ONLY_12(...) __VA_ARGS__
#else
#define ONLY_12(...)
#endif
// cudaDeviceProp. Limits of textures and surfaces are left out: `limits` has their room.
struct DeviceProp {
  char name[256], uuid[16], luid[8];
  unsigned luid_mask;
  size_t total_memory, shared_per_block;
  int registers_per_block, warp_size;
  size_t pitch;
  int max_threads_per_block, max_threads_dim[3], max_grid[3];
  ONLY_12(int clock_rate;)
  size_t constant_memory;
  int major, minor;
  size_t texture_alignment, texture_pitch_alignment;
  ONLY_12(int device_overlap;)
  int multi_processors;
  ONLY_12(int exec_timeout;)
  int integrated, can_map_host;
  ONLY_12(int compute_mode, limit;)
  int limits[39];
  size_t surface_alignment;
  int concurrent_kernels, ecc, pci_bus, pci_device, pci_domain, tcc, async_engines, unified_addressing;
  ONLY_12(int memory_clock_rate;)
  int memory_bus_width, l2_bytes, l2_persisting, max_threads_per_processor, stream_priorities, l1_global, l1_local;
  size_t shared_per_processor;
  int registers_per_processor, managed_memory, multi_gpu_board, multi_gpu_board_group, native_atomics;
  ONLY_12(int double_ratio;)
  int pageable_access, concurrent_managed, preemption, host_pointer_registered, cooperative_launch;
  ONLY_12(int cooperative_multi_device;)
  size_t shared_per_block_optin;
  int host_page_tables, direct_managed, max_blocks_per_processor, access_policy_window;
  size_t reserved_shared;
  int host_register, rest[70];
};

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
