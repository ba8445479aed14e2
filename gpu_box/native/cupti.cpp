// CUPTI (libcupti): records of runtime calls and of what devices do, for kineto and so for torch.profiler. Times are
// measured; kernels do next to nothing, so each activity lasts at least kShortestNs.
#include "cupti_api.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "box.h"

using namespace cupti;
namespace box {

constexpr int64_t kShortestNs = 2000;  // a short kernel on a real device takes about as long
constexpr int kExternalKinds = 6;      // CUpti_ExternalCorrelationKind
constexpr int kPinnedHost = 16;        // beside Done::copy_kind: the host's side is pinned memory

std::atomic<bool> profiling{false};
static std::atomic<uint64_t> enabled{0};  // a bit for each kind of activity
static std::atomic<uint32_t> correlations{0};
static thread_local const Call* outermost = nullptr;
static thread_local std::vector<uint64_t> externals[kExternalKinds];

// ---- time: CLOCK_REALTIME, or the units of kineto's callback (the processor's time stamp counter)
static std::atomic<Timestamp> timestamp{nullptr};
static std::atomic<double> units_per_ns{1};
static int64_t clock_now() {
  Timestamp f = timestamp.load(std::memory_order_relaxed);
  return f ? int64_t(f()) : now_ns();
}
static double measure(Timestamp f) {
  uint64_t begin = f(), begin_ns = uint64_t(now_ns());
  usleep(1000);
  return double(f() - begin) / double(uint64_t(now_ns()) - begin_ns);
}

// ---- buffers: the reader gives one when it is asked for, and gets it back when it is full or at a flush
static std::mutex buffer_m;
static BufferRequested requested = nullptr;
static BufferCompleted completed = nullptr;
static uint8_t* buffer = nullptr;
static size_t buffer_size = 0, buffer_used = 0, records_left = 0;

static void complete() {
  if (buffer) completed(nullptr, 0, buffer, buffer_size, buffer_used);
  buffer = nullptr;
}
template <class Record> static void put(const Record& record) {
  static_assert(sizeof record % 8 == 0, "records follow each other without gaps");
  if (!(enabled.load(std::memory_order_relaxed) >> record.kind & 1)) return;
  std::lock_guard<std::mutex> lock(buffer_m);
  if (buffer && (buffer_size - buffer_used < sizeof record || !records_left)) complete();
  if (!buffer && requested) {
    buffer_size = buffer_used = records_left = 0;
    requested(&buffer, &buffer_size, &records_left);
    if (!records_left) records_left = SIZE_MAX;  // 0: as many as fit
  }
  if (!buffer || buffer_size - buffer_used < sizeof record) return;  // the reader has had enough: the record is dropped
  *reinterpret_cast<Record*>(buffer + buffer_used) = record;
  buffer_used += sizeof record;
  records_left--;
}

// ---- what the other libraries report
Call::Call(int cupti_id) : id(cupti_id) {
  if (!profiling.load(std::memory_order_relaxed)) return;
  if (outermost) {  // a call that the library itself makes belongs to the program's call
    correlation = outermost->correlation;
    return;
  }
  outermost = this, correlation = ++correlations, begin_ns = clock_now();
  for (int kind = 0; kind < kExternalKinds; kind++)
    if (!externals[kind].empty()) put(ExternalRecord{kExternal, kind, externals[kind].back(), correlation, 0});
}
Call::~Call() {
  if (!begin_ns) return;  // nobody profiles, or it is no call of the program
  outermost = nullptr;
  put(CallRecord{kRuntime, id, uint64_t(begin_ns), uint64_t(clock_now()), uint32_t(getpid()), uint32_t(pthread_self()),
                 correlation, 0});
}
uint32_t correlation_of_call() { return outermost ? outermost->correlation : 0; }

static uint32_t number_of(Stream* s) {  // in real profiles 7 is the default stream
  return s == stream_of(nullptr, s->device) ? 7 : uint32_t(8 + s->id);
}
static void put_wait(Stream* s, uint32_t correlation, uint64_t begin) {
  static const std::map<int, int> types = {{137, 1}, {147, 2}, {131, 3}, {165, 4}};  // by the id of the call
  int type = outermost ? types.at(outermost->id) : 0;
  uint32_t stream = type == 2 || type == 3 ? number_of(s) : kNoStream;
  put(SyncRecord{kSync, type, begin, uint64_t(clock_now()), correlation, uint32_t(s->device + 1), stream, 0});
}
template <class Record>
static void put_activity(Record r, Stream* s, uint32_t correlation, int64_t begin, int64_t end) {
  r.start = uint64_t(begin), r.end = uint64_t(end), r.correlation = correlation;
  r.device = uint32_t(s->device), r.context = r.device + 1, r.stream = number_of(s);
  put(r);
}
void run_and_report(Stream* s, uint32_t correlation, const Done& what, const Work& work) {
  if (!profiling.load(std::memory_order_relaxed)) return work();
  if (outermost) correlation = outermost->correlation;  // a graph's work belongs to the launch, not to the capture
  if (!correlation) return work();
  int64_t begin = clock_now(), shortest = int64_t(double(kShortestNs) * units_per_ns);
  if (what.activity == Activity::kSync) return work(), put_wait(s, correlation, uint64_t(begin));
  if (s->last_end_ns - begin < shortest) begin = std::max(begin, s->last_end_ns);  // else it is of another clock
  work();
  int64_t end = clock_now();
  while (end - begin < shortest) end = clock_now();  // the work itself takes longer: what waits for it ends later, too
  s->last_end_ns = end;
  if (what.activity == Activity::kKernel) {
    KernelRecord r{};
    r.kind = kKernel, r.name = what.name ? what.name : "", r.completed = uint64_t(end), r.grid_id = correlation;
    r.registers = 32, r.priority = s->priority;
    for (int i = 0; i < 3; i++) r.grid[i] = r.block[i] = 1;
    put_activity(r, s, correlation, begin, end);
  } else {
    TransferRecord r{};
    r.kind = what.activity == Activity::kFill ? kMemset : kMemcpy, r.bytes = what.bytes;
    if (r.kind == kMemcpy) {
      uint8_t host = what.copy_kind & kPinnedHost ? kPinned : kPageable;
      r.copy_kind = uint8_t(what.copy_kind & ~kPinnedHost);
      r.from = r.copy_kind == 1 ? host : kDeviceMemory;
      r.to = r.copy_kind == 2 ? host : kDeviceMemory;
    } else {
      r.memory_kind = kDeviceMemory;
    }
    put_activity(r, s, correlation, begin, end);
  }
}

}  // namespace box
using namespace box;

// ---- the interface: docs.nvidia.com/cupti/api, "Activity API" and "Callback API". Callbacks are not modelled.
static int enable(int kind, bool on) {
  constexpr uint64_t modelled = 1ull << kMemcpy | 1ull << kMemset | 1ull << kRuntime | 1ull << kKernel | 1ull << kSync;
  if (kind < 0 || kind > 63) return kInvalidParameter;
  profiling = (on ? enabled |= 1ull << kind : enabled &= ~(1ull << kind)) & modelled;
  return kSuccess;
}
API int cuptiActivityEnable(int kind) { return enable(kind, true); }
API int cuptiActivityDisable(int kind) { return enable(kind, false); }
API int cuptiFinalize() { return profiling = false, enabled = 0, kSuccess; }
API int cuptiActivityRegisterCallbacks(BufferRequested request, BufferCompleted complete) {
  if (!request || !complete) return kInvalidParameter;
  std::lock_guard<std::mutex> lock(buffer_m);
  return requested = request, completed = complete, kSuccess;
}
API int cuptiActivityRegisterTimestampCallback(Timestamp f) {
  if (f != timestamp) units_per_ns = f ? measure(f) : 1;
  return timestamp = f, kSuccess;
}
API int cuptiActivityFlushAll(uint32_t) {
  std::lock_guard<std::mutex> lock(buffer_m);
  return complete(), kSuccess;
}
API int cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, uint8_t** record) {
  static const std::map<int, size_t> sizes = {
      {kKernel, sizeof(KernelRecord)}, {kMemcpy, sizeof(TransferRecord)}, {kMemset, sizeof(TransferRecord)},
      {kRuntime, sizeof(CallRecord)}, {kSync, sizeof(SyncRecord)}, {kExternal, sizeof(ExternalRecord)}};
  uint8_t* next = *record ? *record + sizes.at(*reinterpret_cast<int*>(*record)) : buffer;
  if (next >= buffer + valid) return kMaxLimitReached;
  return *record = next, kSuccess;
}
API int cuptiActivityPushExternalCorrelationId(int kind, uint64_t id) {
  if (kind < 1 || kind >= kExternalKinds) return kInvalidParameter;
  return externals[kind].push_back(id), kSuccess;
}
API int cuptiActivityPopExternalCorrelationId(int kind, uint64_t* id) {
  if (kind < 1 || kind >= kExternalKinds) return kInvalidParameter;
  if (externals[kind].empty()) return kQueueEmpty;
  if (id) *id = externals[kind].back();
  return externals[kind].pop_back(), kSuccess;
}
API int cuptiGetCallbackName(int domain, int id, const char** name) {
  for (auto& call : kCuptiCalls)
    if (domain == kRuntimeDomain && call.id == id) return *name = call.name, kSuccess;
  return kInvalidParameter;
}
