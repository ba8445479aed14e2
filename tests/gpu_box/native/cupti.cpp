// CUPTI (libcupti): records of runtime calls and of device activities, for kineto and so for torch.profiler.
//
// What a record says of time is measured: kernels do next to nothing, so each activity lasts at least kShortestNs.
// Not modelled: callbacks (kineto then leaves CUPTI loaded), driver calls, records of events, metrics.
#include "cupti_api.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "box.h"

using namespace cupti;
namespace box {

constexpr int64_t kShortestNs = 2000;  // a short kernel on a real device takes about as long
constexpr uint64_t kModelled = 1ull << kMemcpy | 1ull << kMemset | 1ull << kRuntime | 1ull << kKernel |
                               1ull << kSynchronization | 1ull << kExternal;

std::atomic<bool> profiling{false};
static std::atomic<uint64_t> enabled{0};     // a bit for each kind of activity
static std::atomic<uint32_t> correlations{0};
static thread_local const Call* outermost = nullptr;
static thread_local std::vector<uint64_t> externals[6];  // a stack for each CUpti_ExternalCorrelationKind

static bool wanted(int kind) { return kind >= 0 && kind < 64 && enabled.load(std::memory_order_relaxed) >> kind & 1; }

// ---- time: CLOCK_REALTIME, or the units of kineto's callback (the processor's time stamp counter)
static std::atomic<Timestamp> timestamp{nullptr};
static std::atomic<double> units_per_ns{1};
static int64_t clock_now() {
  Timestamp f = timestamp.load(std::memory_order_acquire);
  return f ? int64_t(f()) : now_ns();
}
static double measure(Timestamp f) {
  if (!f) return 1;
  uint64_t begin = f();
  int64_t begin_ns = now_ns(), end_ns = begin_ns;
  while (end_ns - begin_ns >= 0 && end_ns - begin_ns < 200000) end_ns = now_ns();
  return std::max(double(f() - begin) / double(std::max<int64_t>(end_ns - begin_ns, 1)), 1e-3);
}

// ---- buffers: the reader gives one when it is asked for, and gets it back when it is full or at a flush
static std::mutex buffer_m;
static BufferRequested requested = nullptr;
static BufferCompleted completed = nullptr;
static uint8_t* buffer = nullptr;
static size_t buffer_size = 0, buffer_used = 0, records_left = 0;
static std::atomic<size_t> dropped{0};

static void complete() {
  if (buffer && completed) completed(nullptr, 0, buffer, buffer_size, buffer_used);
  buffer = nullptr;
}
template <class Record> static void put(const Record& record) {
  static_assert(sizeof(Record) % 8 == 0, "records follow each other without gaps");
  if (!wanted(record.kind)) return;
  std::lock_guard<std::mutex> lock(buffer_m);
  if (buffer && (buffer_size - buffer_used < sizeof record || !records_left)) complete();
  if (!buffer && requested) {
    size_t most = 0;
    buffer_size = buffer_used = 0;
    requested(&buffer, &buffer_size, &most);
    records_left = most ? most : SIZE_MAX;
  }
  if (!buffer || buffer_size - buffer_used < sizeof record) {
    dropped++;
    return;
  }
  *reinterpret_cast<Record*>(buffer + buffer_used) = record;
  buffer_used += sizeof record;
  records_left--;
}

// ---- what the other libraries report
Call::Call(int cupti_id) : id(cupti_id) {
  if (!profiling.load(std::memory_order_relaxed)) return;
  if (outermost) {  // a call that the library makes itself belongs to the call of the program
    correlation = outermost->correlation;
    return;
  }
  outermost = this;
  correlation = ++correlations;
  begin_ns = clock_now();
  for (int kind = 0; kind < 6; kind++)
    if (!externals[kind].empty()) put(ExternalRecord{kExternal, kind, externals[kind].back(), correlation, 0});
}
Call::~Call() {
  if (outermost != this) return;
  outermost = nullptr;
  put(CallRecord{kRuntime, uint32_t(id), uint64_t(begin_ns), uint64_t(clock_now()), uint32_t(getpid()),
                 uint32_t(pthread_self()), correlation, 0});
}
uint32_t correlation_of_call() { return outermost ? outermost->correlation : 0; }

static uint32_t number_of(Stream* s) {  // the default stream is number 7 in real profiles
  return s == stream_of(nullptr, s->device) ? 7 : uint32_t(8 + s->id);
}
static void report_wait(Stream* s, uint32_t correlation, int64_t begin, int64_t end) {
  int call = outermost ? outermost->id : 0;
  int type = call == 137 ? 1 : call == 147 ? 2 : call == 131 ? 3 : call == 165 ? 4 : 0;
  uint32_t stream = type == 2 || type == 3 ? number_of(s) : kNoStream;
  put(SyncRecord{kSynchronization, type, uint64_t(begin), uint64_t(end), correlation, uint32_t(s->device + 1), stream, 0});
}
void run_and_report(Stream* s, uint32_t correlation, const Done& what, const Work& work) {
  if (!correlation || !profiling.load(std::memory_order_relaxed)) return work();
  int64_t begin = clock_now();
  if (what.activity == Activity::kSync) {
    work();
    return report_wait(s, correlation, begin, clock_now());
  }
  int64_t shortest = int64_t(double(kShortestNs) * units_per_ns);
  if (s->last_end_ns - begin < shortest) begin = std::max(begin, s->last_end_ns);  // else it is of another clock
  work();
  int64_t end = clock_now();
  while (end - begin < shortest) end = clock_now();  // not only in the record: what waits for it must end later
  s->last_end_ns = end;

  uint32_t device = uint32_t(s->device), context = device + 1, stream = number_of(s);
  if (what.activity == Activity::kKernel) {
    KernelRecord r{};
    r.kind = kKernel, r.start = uint64_t(begin), r.end = r.completed = uint64_t(end), r.name = what.name ? what.name : "";
    r.device = device, r.context = context, r.stream = stream, r.correlation = correlation;
    r.grid_id = correlation, r.registers = 32, r.priority = s->priority;
    std::fill_n(r.grid, 3, 1);
    std::fill_n(r.block, 3, 1);
    put(r);
  } else if (what.activity == Activity::kCopy) {
    MemcpyRecord r{};
    r.kind = kMemcpy, r.copy_kind = uint8_t(what.copy_kind), r.bytes = what.bytes;
    r.from_kind = what.copy_kind == 1 ? kPageable : kDeviceMemory;
    r.to_kind = what.copy_kind == 2 ? kPageable : kDeviceMemory;
    r.start = uint64_t(begin), r.end = uint64_t(end);
    r.device = device, r.context = context, r.stream = stream, r.correlation = r.runtime_correlation = correlation;
    put(r);
  } else {
    MemsetRecord r{};
    r.kind = kMemset, r.bytes = what.bytes, r.memory_kind = kDeviceMemory;
    r.start = uint64_t(begin), r.end = uint64_t(end);
    r.device = device, r.context = context, r.stream = stream, r.correlation = correlation;
    put(r);
  }
}

}  // namespace box
using namespace box;

// ---- the interface: docs.nvidia.com/cupti/api, "Activity API" and "Callback API"
static int enable(int kind, bool on) {
  if (kind < 0 || kind > 63) return kInvalidParameter;
  uint64_t bit = 1ull << kind, now = on ? enabled |= bit : enabled &= ~bit;
  profiling = now & kModelled;
  return kSuccess;
}
API int cuptiActivityEnable(int kind) { return enable(kind, true); }
API int cuptiActivityDisable(int kind) { return enable(kind, false); }
API int cuptiFinalize() { return enabled = 0, profiling = false, kSuccess; }
API int cuptiActivityRegisterCallbacks(BufferRequested request, BufferCompleted complete) {
  if (!request || !complete) return kInvalidParameter;
  std::lock_guard<std::mutex> lock(buffer_m);
  requested = request;
  completed = complete;
  return kSuccess;
}
API int cuptiActivityRegisterTimestampCallback(Timestamp f) {
  if (f != timestamp) units_per_ns = measure(f);
  return timestamp = f, kSuccess;
}
API int cuptiActivityFlushAll(uint32_t) {
  std::lock_guard<std::mutex> lock(buffer_m);
  return complete(), kSuccess;
}
API int cuptiActivityGetNextRecord(uint8_t* begin, size_t valid, uint8_t** record) {
  if (!begin || !record) return kInvalidParameter;
  uint8_t* next = begin;
  if (*record) switch (*reinterpret_cast<int*>(*record)) {
    case kKernel: next = *record + sizeof(KernelRecord); break;
    case kMemcpy: next = *record + sizeof(MemcpyRecord); break;
    case kMemset: next = *record + sizeof(MemsetRecord); break;
    case kRuntime: next = *record + sizeof(CallRecord); break;
    case kSynchronization: next = *record + sizeof(SyncRecord); break;
    case kExternal: next = *record + sizeof(ExternalRecord); break;
    default: return kInvalidParameter;
  }
  if (next >= begin + valid) return kMaxLimitReached;
  return *record = next, kSuccess;
}
API int cuptiActivityPushExternalCorrelationId(int kind, uint64_t id) {
  if (kind < 1 || kind > 5) return kInvalidParameter;
  return externals[kind].push_back(id), kSuccess;
}
API int cuptiActivityPopExternalCorrelationId(int kind, uint64_t* id) {
  if (kind < 1 || kind > 5) return kInvalidParameter;
  if (externals[kind].empty()) return kQueueEmpty;
  if (id) *id = externals[kind].back();
  return externals[kind].pop_back(), kSuccess;
}
API int cuptiGetCallbackName(int domain, uint32_t id, const char** name) {  // CUPTI_RUNTIME_TRACE_CBID_*
  static const std::map<uint32_t, const char*> names = {
      {15, "cudaFuncGetAttributes_v3020"}, {20, "cudaMalloc_v3020"}, {22, "cudaFree_v3020"}, {26, "cudaFreeHost_v3020"},
      {27, "cudaHostAlloc_v3020"}, {31, "cudaMemcpy_v3020"}, {41, "cudaMemcpyAsync_v3020"}, {44, "cudaMemcpy2DAsync_v3020"},
      {49, "cudaMemset_v3020"}, {51, "cudaMemsetAsync_v3020"}, {131, "cudaStreamSynchronize_v3020"},
      {132, "cudaStreamQuery_v3020"}, {134, "cudaEventCreateWithFlags_v3020"}, {135, "cudaEventRecord_v3020"},
      {136, "cudaEventDestroy_v3020"}, {137, "cudaEventSynchronize_v3020"}, {138, "cudaEventQuery_v3020"},
      {139, "cudaEventElapsedTime_v3020"}, {147, "cudaStreamWaitEvent_v3020"}, {151, "cudaPointerGetAttributes_v4000"},
      {152, "cudaHostRegister_v4000"}, {161, "cudaMemcpyPeerAsync_v4000"}, {165, "cudaDeviceSynchronize_v3020"},
      {202, "cudaStreamCreateWithPriority_v5050"}, {211, "cudaLaunchKernel_v7000"},
      {269, "cudaLaunchCooperativeKernel_v9000"}, {284, "cudaLaunchHostFunc_v10000"}, {311, "cudaGraphLaunch_v10000"},
      {317, "cudaStreamIsCapturing_v10000"}, {370, "cudaEventRecordWithFlags_v11010"},
      {430, "cudaLaunchKernelExC_v11060"}};
  auto i = names.find(domain == kRuntimeDomain ? id : 0);
  return i != names.end() && name ? (*name = i->second, kSuccess) : kInvalidParameter;
}
API int cuptiGetResultString(int result, const char** text) {
  *text = result == kSuccess           ? "CUPTI_SUCCESS"
          : result == kInvalidParameter ? "CUPTI_ERROR_INVALID_PARAMETER"
          : result == kMaxLimitReached  ? "CUPTI_ERROR_MAX_LIMIT_REACHED"
          : result == kQueueEmpty       ? "CUPTI_ERROR_QUEUE_EMPTY"
          : result == kNotSupported     ? "CUPTI_ERROR_NOT_SUPPORTED"
                                        : "CUPTI_ERROR_UNKNOWN";
  return kSuccess;
}
// Until CUDA 12 a number of its own (release notes of CUPTI 12.8), then that of the toolkit.
API int cuptiGetVersion(uint32_t* v) { return *v = BOX_CUDA_VERSION < 13000 ? 26 : BOX_CUDA_VERSION * 10, kSuccess; }
