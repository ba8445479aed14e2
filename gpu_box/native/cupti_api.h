// The types and numbers of CUPTI that kineto reads, by hand from its public reference, docs.nvidia.com/cupti/api:
// a page for each struct that a comment names. Structs only grow at the end: CUDA 12 and 13 read the same layout.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tables.h"

namespace cupti {

enum : int { kSuccess = 0, kInvalidParameter = 1, kMaxLimitReached = 12, kQueueEmpty = 18 };       // CUptiResult
enum : int { kMemcpy = 1, kMemset = 2, kRuntime = 5, kKernel = 10, kSync = 38, kExternal = 39 };   // CUpti_ActivityKind
constexpr int kRuntimeDomain = 2;     // CUpti_CallbackDomain
constexpr uint32_t kNoStream = ~0u;   // CUPTI_SYNCHRONIZATION_INVALID_VALUE
constexpr uint8_t kPageable = 1, kPinned = 2, kDeviceMemory = 3;  // CUpti_ActivityMemoryKind

struct KernelRecord {    // CUpti_ActivityKernel11, of which CUpti_ActivityKernel9 is the beginning
  int kind;
  uint8_t cache, shared_config;
  uint16_t registers;
  int partitioned_cache[2];
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3], shared_memory[2];
  uint32_t local_memory[2], correlation;
  int64_t grid_id;
  const char* name;
  uint64_t reserved, queued, submitted;
  uint8_t launch[4];
  uint32_t shared_executed;
  uint64_t graph_node;
  int shared_limit;
  uint32_t graph;
  uint64_t access_policy, channel_to_cluster[6];
  int32_t priority, padding;
};
struct TransferRecord {  // CUpti_ActivityMemcpy5 and CUpti_ActivityMemset4, which differ in two fields
  int kind;
  uint8_t copy_kind, from, to, flags;                   // Memset4: value
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
  uint16_t set_flags, memory_kind;                      // Memcpy5: correlation of the runtime, which it does not use
  uint32_t padding;
  uint64_t reserved, graph_node;
  uint32_t graph, channel, channel_type, padding2;
};
struct CallRecord {      // CUpti_ActivityAPI
  int kind, id;
  uint64_t start, end;
  uint32_t process, thread, correlation, result;
};
struct SyncRecord {      // CUpti_ActivitySynchronization; type: event 1, stream waits for event 2, stream 3, context 4
  int kind, type;
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
