// The types and numbers of CUPTI that kineto reads, written by hand from the public reference: docs.nvidia.com/cupti/api,
// one page for each struct that a comment names. They only ever grow at the end, so one layout serves CUDA 12 and 13.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cupti {

enum Result : int {  // CUptiResult
  kSuccess = 0, kInvalidParameter = 1, kMaxLimitReached = 12, kQueueEmpty = 18, kNotSupported = 27,
};
enum Kind : int {    // CUpti_ActivityKind
  kMemcpy = 1, kMemset = 2, kRuntime = 5, kKernel = 10, kSynchronization = 38, kExternal = 39,
};
constexpr uint32_t kRuntimeDomain = 2, kNoStream = ~0u;  // CUpti_CallbackDomain; CUPTI_SYNCHRONIZATION_INVALID_VALUE
constexpr uint8_t kPageable = 1, kDeviceMemory = 3;          // CUpti_ActivityMemoryKind

struct KernelRecord {    // CUpti_ActivityKernel11, of which CUpti_ActivityKernel9 is the beginning
  int kind;
  uint8_t cache, shared_config;
  uint16_t registers;
  int partitioned_cache[2];
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3], shared_static, shared_dynamic;
  uint32_t local_per_thread, local_total, correlation;
  int64_t grid_id;
  const char* name;
  void* reserved;
  uint64_t queued, submitted;
  uint8_t launch_type, carveout[2], padding;
  uint32_t shared_executed;
  uint64_t graph_node;
  int shared_limit;
  uint32_t graph;
  void* access_policy;
  uint32_t channel;
  int channel_type;
  uint32_t cluster[3], cluster_policy;
  uint64_t local_total_v2;
  uint32_t cluster_max[2];
  uint8_t device_launched, padding3[7];
  int32_t priority;
  uint32_t padding4;
};
struct MemcpyRecord {    // CUpti_ActivityMemcpy5
  int kind;
  uint8_t copy_kind, from_kind, to_kind, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation, runtime_correlation, padding;
  void* reserved;
  uint64_t graph_node;
  uint32_t graph, channel;
  int channel_type;
  uint32_t padding2;
};
struct MemsetRecord {    // CUpti_ActivityMemset4
  int kind;
  uint32_t value;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
  uint16_t flags, memory_kind;
  uint32_t padding;
  void* reserved;
  uint64_t graph_node;
  uint32_t graph, channel;
  int channel_type;
  uint32_t padding2;
};
struct CallRecord {      // CUpti_ActivityAPI
  int kind;
  uint32_t id;
  uint64_t start, end;
  uint32_t process, thread, correlation, result;
};
struct SyncRecord {      // CUpti_ActivitySynchronization
  int kind, type;        // type: event 1, stream waits for event 2, stream 3, context 4
  uint64_t start, end;
  uint32_t correlation, context, stream, event;
};
struct ExternalRecord {  // CUpti_ActivityExternalCorrelation
  int kind, external_kind;
  uint64_t external;
  uint32_t correlation, reserved;
};
// CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc, CUpti_TimestampCallbackFunc
using BufferRequested = void (*)(uint8_t** buffer, size_t* size, size_t* max_records);
using BufferCompleted = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid);
using Timestamp = uint64_t (*)();

}  // namespace cupti
