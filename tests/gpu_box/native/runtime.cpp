// The CUDA runtime (libcudart): devices, memory, streams, events, graphs. Kernels are in kernels.cpp.
#include "cuda_api.h"
#include "box.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

using namespace box;

// ---- errors
static thread_local cudaError_t last_error = kSuccess;
cudaError_t result(cudaError_t e) {
  if (e != kSuccess && e != kNotReady) last_error = e;
  return e;
}
// Each call that touches a device returns the sticky error of a broken context.
#define ALIVE do { if (int e_ = error_of_context()) return result(e_); } while (0)
#define CHECK_DEVICE(d) \
  do { if ((d) < 0 || (d) >= int(settings().visible.size())) return result(kInvalidDevice); } while (0)
#define CONTEXT do { ALIVE; if (!touch(current_device())) return result(kOutOfMemory); } while (0)

static const struct { int code; const char *name, *text; } kErrors[] = {
    {kSuccess, "cudaSuccess", "no error"},
    {kInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {kOutOfMemory, "cudaErrorMemoryAllocation", "out of memory"},
    {kInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {kNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {kInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {kEccUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {kInvalidHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {kNotReady, "cudaErrorNotReady", "device not ready"},
    {kIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {kAssert, "cudaErrorAssert", "device-side assert triggered"},
    {kLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {kNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {kCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "operation failed due to an error during capture"},
    {kUnknown, "cudaErrorUnknown", "unknown error"},
};
static const auto& entry_of(int code) {
  for (auto& e : kErrors)
    if (e.code == code) return e;
  return kErrors[std::size(kErrors) - 1];
}
API const char* cudaGetErrorName(cudaError_t e) { return entry_of(e).name; }
API const char* cudaGetErrorString(cudaError_t e) { return entry_of(e).text; }
API cudaError_t cudaPeekAtLastError() { return error_of_context() ? error_of_context() : last_error; }
API cudaError_t cudaGetLastError() {
  return error_of_context() ? error_of_context() : std::exchange(last_error, kSuccess);
}
API int cuGetErrorName(int e, const char** s) { return *s = entry_of(e).name, kSuccess; }
API int cuGetErrorString(int e, const char** s) { return *s = entry_of(e).text, kSuccess; }

// ---- devices
API cudaError_t cudaGetDeviceCount(int* n) {
  return (*n = int(settings().visible.size())) ? kSuccess : result(kNoDevice);
}
API cudaError_t cudaGetDevice(int* d) { return *d = current_device(), kSuccess; }
API cudaError_t cudaSetDevice(int d) {
  CHECK_DEVICE(d);
  current_device() = d;
  CONTEXT;
  return kSuccess;
}
constexpr Done kWait = {Activity::kSync, nullptr, 0, 0};
API cudaError_t cudaDriverGetVersion(int* v) { return *v = BOX_CUDA_VERSION, kSuccess; }
API cudaError_t cudaRuntimeGetVersion(int* v) { return *v = BOX_CUDA_VERSION, kSuccess; }
API cudaError_t cudaDeviceSynchronize() {
  CONTEXT;
  Call call(165);
  run_and_report(stream_of(nullptr), call.correlation, kWait, [] { drain_device(current_device()); });
  ALIVE;
  return kSuccess;
}
API cudaError_t cudaGetDeviceProperties(DeviceProp* p, int d) {  // figures of an H100 SXM
  CHECK_DEVICE(d);
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "%s", settings().name.c_str());
  uuid(physical(d), (unsigned char*)p->uuid);
  p->total_memory = settings().memory, p->shared_per_block = 49152, p->registers_per_block = 65536, p->warp_size = 32;
  p->max_threads_per_block = p->max_threads_dim[0] = p->max_threads_dim[1] = 1024, p->max_threads_dim[2] = 64;
  p->max_grid[0] = p->pitch = 2147483647, p->max_grid[1] = p->max_grid[2] = 65535, p->constant_memory = 65536;
  p->major = 9, p->texture_alignment = 512, p->multi_processors = 132, p->can_map_host = 1, p->concurrent_kernels = 1;
  p->ecc = 1, p->pci_bus = physical(d) + 1, p->async_engines = 3, p->unified_addressing = 1, p->memory_bus_width = 5120;
  p->l2_bytes = 50 << 20, p->max_threads_per_processor = 2048, p->stream_priorities = p->l1_global = p->l1_local = 1;
  p->shared_per_processor = 233472, p->registers_per_processor = 65536, p->managed_memory = p->cooperative_launch = 1;
  p->shared_per_block_optin = 232448, p->max_blocks_per_processor = 32, p->reserved_shared = 1024, p->host_register = 1;
  return kSuccess;
}
API cudaError_t cudaGetDeviceProperties_v2(DeviceProp* p, int d) {  // CUDA 12's name
  return cudaGetDeviceProperties(p, d);
}
// cudaDeviceAttr and CUdevice_attribute have the same numbers.
API cudaError_t cudaDeviceGetAttribute(int* v, int attribute, int d) {
  static const std::map<int, int> values = {
      {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152}, {10, 32},
      {12, 65536}, {13, 1980000}, {16, 132}, {19, 1}, {31, 1}, {36, 2619000}, {38, 50 << 20}, {39, 2048}, {41, 1},
      {75, 9}, {81, 233472}, {82, 65536}, {95, 1}, {97, 232448}, {102, 1}};  // 102: virtual memory management
  CHECK_DEVICE(d);
  auto i = values.find(attribute);  // the others, 0: no fabric handles, no multicast, no memory pools, no GPUDirect
  *v = attribute == 33 ? physical(d) + 1 : i == values.end() ? 0 : i->second;
  return kSuccess;
}
API cudaError_t cudaDeviceGetPCIBusId(char* s, int n, int d) {
  CHECK_DEVICE(d);
  snprintf(s, n, "0000:%02X:00.0", physical(d) + 1);
  return kSuccess;
}
API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return kSuccess;
}
API cudaError_t cudaDeviceCanAccessPeer(int* can, int a, int b) { return *can = a != b, kSuccess; }
API cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  CONTEXT;
  *free = size_t(std::max<int64_t>(settings().memory - used_on(physical(current_device())), 0));
  *total = settings().memory;
  return kSuccess;
}

// ---- memory
API cudaError_t cudaMalloc(void** p, size_t n) {
  *p = nullptr;
  CONTEXT;
  Call call(20);
  return !n || (*p = allocate(current_device(), n, Kind::kDevice)) ? kSuccess : result(kOutOfMemory);
}
API cudaError_t cudaFree(void* p) {  // waits for the device, as the real one does: a kernel that never ends blocks it
  CONTEXT;
  auto b = block_of(p);
  if (!p) return kSuccess;
  if (!b) return result(kInvalidValue);
  Call call(22);
  drain_device(b->device);
  return release(p) ? kSuccess : result(kInvalidValue);
}
API cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) {
  CONTEXT;
  Call call(27);
  return (*p = allocate(current_device(), n, Kind::kPinned)) ? kSuccess : result(kOutOfMemory);
}
API cudaError_t cudaFreeHost(void* p) { return !p || release(p) ? kSuccess : result(kInvalidValue); }
API cudaError_t cudaHostRegister(void* p, size_t n, unsigned) {
  return note(p, {n, current_device(), Kind::kRegistered}), kSuccess;
}
API cudaError_t cudaHostUnregister(void* p) { return forget(p) ? kSuccess : result(kInvalidValue); }
API cudaError_t cudaPointerGetAttributes(PointerAttributes* a, const void* p) {
  auto b = block_of(p);
  bool device = on_device(p);
  *a = {device ? 2 : b ? 1 : 0, b ? b->device : -2, b ? (void*)p : nullptr, device ? nullptr : (void*)p};
  return kSuccess;
}
static bool pageable(const void* p) { return !block_of(p); }
// What the profiler shows: host to device 1, device to host 2, between devices 8; + 16 where the host's side is pinned.
static int copy_kind(const void* to, const void* from) {
  if (on_device(to) && on_device(from)) return 8;
  return on_device(to) ? (pageable(from) ? 1 : 17) : (pageable(to) ? 2 : 18);
}

static cudaError_t copy(void* to, const void* from, size_t n, Stream* s, uint32_t correlation) {
  if (!n) return kSuccess;
  bool moves = computes(n) || !on_device(to) || !on_device(from);
  Done what{Activity::kCopy, nullptr, copy_kind(to, from), n};
  auto work = [=](const void* source) {
    run_and_report(s, correlation, what, [=] { if (moves) memmove(to, source, n); });
  };
  if (pageable(from) && !idle(s)) {  // the real one copies pageable memory to a buffer of its own before it returns
    auto buffer = std::make_shared<std::vector<char>>((const char*)from, (const char*)from + n);
    submit(s, [=] { work(buffer->data()); });
  } else {
    submit(s, [=] { work(from); });
    if (pageable(to)) drain(s);  // … and waits where it copies to pageable memory
  }
  return kSuccess;
}
API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, int, Handle handle) {
  CONTEXT;
  Call call(41);
  copy(to, from, n, stream_of(handle), call.correlation);
  ALIVE;
  return kSuccess;
}
API cudaError_t cudaMemcpy(void* to, const void* from, size_t n, int) {
  CONTEXT;
  Call call(31);
  copy(to, from, n, stream_of(nullptr), call.correlation);
  drain(stream_of(nullptr));
  ALIVE;
  return kSuccess;
}
API cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t n, Handle s) {
  return cudaMemcpyAsync(to, from, n, 4, s);
}
API cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                  size_t height, int, Handle s) {
  for (size_t i = 0; i < height; i++)
    if (int e = cudaMemcpyAsync((char*)to + i * to_pitch, (const char*)from + i * from_pitch, width, 4, s)) return e;
  return kSuccess;
}
API cudaError_t cudaMemsetAsync(void* p, int value, size_t n, Handle handle) {
  CONTEXT;
  Call call(51);
  Stream* s = stream_of(handle);
  Done what{Activity::kFill, nullptr, 0, n};
  submit(s, [=, correlation = call.correlation] {
    run_and_report(s, correlation, what, [=] {
      if (computes(n)) value ? (void)memset(p, value, n) : zero(p, n);
    });
  });
  return kSuccess;
}
API cudaError_t cudaMemset(void* p, int v, size_t n) { return cudaMemsetAsync(p, v, n, nullptr); }

// ---- memory and events of other processes: an exported block becomes a file of the cluster's folder
API cudaError_t cudaIpcGetMemHandle(IpcHandle* handle, void* p) {
  ALIVE;
  drain_device(current_device());
  auto b = forget(p);
  if (!b) return result(kInvalidValue);
  if (b->file.empty()) {
    static std::atomic<int> count{0};
    std::string path = settings().folder + print("/memory-%d-%d", getpid(), count++);
    void* copy = map_file(path, b->size);  // then it takes the place of the block
    constexpr int kPlace = MREMAP_MAYMOVE | MREMAP_FIXED;
    if (copy && memcpy(copy, p, b->size) && mremap(copy, b->size, b->size, kPlace, p) == p) b->file = path;
  }
  snprintf(handle->name, sizeof handle->name, "%s", b->file.substr(b->file.rfind('/') + 1).c_str());
  bool shared = !b->file.empty();
  note(p, std::move(*b));
  return shared ? kSuccess : result(kOutOfMemory);
}
API cudaError_t cudaIpcOpenMemHandle(void** p, IpcHandle handle, unsigned) {
  CONTEXT;
  int fd = open((settings().folder + "/" + handle.name).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return result(kInvalidHandle);
  size_t size = size_t(lseek(fd, 0, SEEK_END));
  *p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (*p == MAP_FAILED) return result(kOutOfMemory);
  note(*p, {size, current_device(), Kind::kShared});
  return kSuccess;
}
API cudaError_t cudaIpcCloseMemHandle(void* p) { return release(p) ? kSuccess : result(kInvalidValue); }

// ---- streams
API cudaError_t cudaStreamCreateWithPriority(Handle* s, unsigned, int priority) {
  CONTEXT;
  return *s = new_stream(current_device(), priority), kSuccess;
}
API cudaError_t cudaStreamCreateWithFlags(Handle* s, unsigned) { return cudaStreamCreateWithPriority(s, 0, 0); }
API cudaError_t cudaStreamCreate(Handle* s) { return cudaStreamCreateWithPriority(s, 0, 0); }
API cudaError_t cudaStreamGetPriority(Handle s, int* p) { return *p = stream_of(s)->priority, kSuccess; }
API cudaError_t cudaStreamQuery(Handle s) {
  ALIVE;
  return idle(stream_of(s)) ? kSuccess : kNotReady;
}
API cudaError_t cudaStreamSynchronize(Handle handle) {
  ALIVE;
  Call call(131);
  Stream* s = stream_of(handle);
  run_and_report(s, call.correlation, kWait, [s] { drain(s); });
  ALIVE;
  return kSuccess;
}
API cudaError_t cudaLaunchHostFunc(Handle s, void (*f)(void*), void* data) {
  return submit(stream_of(s), [=] { f(data); }, true), kSuccess;
}
API cudaError_t cudaStreamAddCallback(Handle s, void (*f)(Handle, cudaError_t, void*), void* data, unsigned) {
  return submit(stream_of(s), [=] { f(s, kSuccess, data); }, true), kSuccess;
}

// ---- events
using EventPointer = std::shared_ptr<Event>;  // a handle points to one: queued work may outlive cudaEventDestroy
static EventPointer& event(Handle e) { return *static_cast<EventPointer*>(e); }
API cudaError_t cudaEventCreateWithFlags(Handle* e, unsigned flags) {
  CONTEXT;
  auto made = std::make_shared<Event>();
  made->timing = !(flags & 2);  // cudaEventDisableTiming
  return *e = new EventPointer(made), kSuccess;
}
API cudaError_t cudaEventCreate(Handle* e) { return cudaEventCreateWithFlags(e, 0); }
API cudaError_t cudaEventDestroy(Handle e) { return delete static_cast<EventPointer*>(e), kSuccess; }
API cudaError_t cudaEventRecordWithFlags(Handle handle, Handle stream, unsigned) {
  ALIVE;
  Call call(135);
  EventPointer e = event(handle);
  Stream* s = stream_of(stream);
  uint64_t n;
  {
    std::lock_guard<std::mutex> lock(e->m);
    n = ++e->recorded;
    if ((e->graph = s->capturing)) e->completed = n;
  }
  submit(s, [e, n] {
    std::lock_guard<std::mutex> lock(e->m);
    e->completed = std::max(e->completed, n);
    e->ns = now_ns();
    e->cv.notify_all();
  });
  return kSuccess;
}
API cudaError_t cudaEventRecord(Handle e, Handle s) { return cudaEventRecordWithFlags(e, s, 0); }
API cudaError_t cudaEventQuery(Handle handle) {
  ALIVE;
  static Fault* blocked = planted("driver-blocked");  // a driver that holds its lock and does not return
  if (blocked && blocked->due()) block_forever();
  EventPointer e = event(handle);
  std::lock_guard<std::mutex> lock(e->m);
  return e->completed == e->recorded ? kSuccess : kNotReady;
}
static void wait_for(Event& e, uint64_t n) {  // ends early where the context breaks: nobody notifies an event then
  std::unique_lock<std::mutex> lock(e.m);
  while (e.completed < n && !error_of_context()) e.cv.wait_for(lock, std::chrono::milliseconds(50));
}
API cudaError_t cudaEventSynchronize(Handle handle) {
  ALIVE;
  Call call(137);
  EventPointer e = event(handle);
  run_and_report(stream_of(nullptr), call.correlation, kWait, [&] { wait_for(*e, e->recorded); });
  ALIVE;
  return kSuccess;
}
API cudaError_t cudaEventElapsedTime(float* ms, Handle a, Handle b) {
  ALIVE;
  EventPointer from = event(a), to = event(b);
  if (!from->timing || !to->timing || !from->recorded || !to->recorded) return result(kInvalidHandle);
  if (from->completed != from->recorded || to->completed != to->recorded) return kNotReady;
  *ms = float(to->ns - from->ns) / 1e6f;
  return kSuccess;
}
API cudaError_t cudaEventElapsedTime_v2(float* ms, Handle a, Handle b) { return cudaEventElapsedTime(ms, a, b); }
API cudaError_t cudaStreamWaitEvent(Handle stream, Handle handle, unsigned) {
  ALIVE;
  Call call(147);
  EventPointer e = event(handle);
  Stream* s = stream_of(stream);
  uint64_t n;
  bool complete;
  {
    std::lock_guard<std::mutex> lock(e->m);
    n = e->recorded;
    complete = e->completed >= n;
    if (e->graph) s->capturing = e->graph;  // the stream joins the capture
  }
  run_and_report(s, call.correlation, kWait, [&] {
    if (!complete) submit(s, [e, n] { wait_for(*e, n); }, true);
  });
  return kSuccess;
}
// An event of another process: it is complete as soon as there is a handle of it.
API cudaError_t cudaIpcGetEventHandle(IpcHandle* handle, Handle e) {
  return memset(handle, 0, sizeof *handle), cudaEventSynchronize(e);
}
API cudaError_t cudaIpcOpenEventHandle(Handle* e, IpcHandle) { return cudaEventCreate(e); }

// ---- graphs: the list of what was submitted to the streams of a capture, in the order of submission
API cudaError_t cudaStreamBeginCapture(Handle stream, int) {
  ALIVE;
  return stream_of(stream)->capturing = new Graph(), kSuccess;
}
API cudaError_t cudaStreamEndCapture(Handle stream, Handle* out) {
  ALIVE;
  Graph* graph = stream_of(stream)->capturing;
  *out = graph;
  for (Stream* s : all_streams())
    if (s->capturing == graph) s->capturing = nullptr;
  return graph ? kSuccess : result(kCaptureInvalidated);
}
API cudaError_t cudaStreamIsCapturing(Handle s, int* status) {
  return *status = stream_of(s)->capturing ? 1 : 0, kSuccess;
}
API cudaError_t cudaStreamGetCaptureInfo(Handle handle, int* status, unsigned long long* id, Handle* graph,
                                         void** nodes, void** edges, size_t* count) {
  Stream* s = stream_of(handle);
  *status = s->capturing ? 1 : 0;
  if (id) *id = uintptr_t(s->capturing);
  if (graph) *graph = s->capturing;
  if (nodes) *nodes = nullptr;
#if BOX_CUDA_VERSION < 13000  // without edges: (…, nodes, count)
  if (edges) *(size_t*)edges = 0;
  (void)count;
#else
  if (edges) *edges = nullptr;
  if (count) *count = 0;
#endif
  return kSuccess;
}
API cudaError_t cudaStreamGetCaptureInfo_v2(Handle s, int* status, unsigned long long* id, Handle* graph,
                                            void** nodes, size_t* n) {  // CUDA 12's name
  return cudaStreamGetCaptureInfo(s, status, id, graph, nodes, (void**)n, nullptr);
}
API cudaError_t cudaGraphInstantiateWithFlags(Handle* out, Handle graph, unsigned long long) {
  return *out = new Graph(*static_cast<Graph*>(graph)), kSuccess;
}
API cudaError_t cudaGraphInstantiate(Handle* out, Handle graph, unsigned long long) {
  return cudaGraphInstantiateWithFlags(out, graph, 0);
}
API cudaError_t cudaGraphGetNodes(Handle graph, Handle*, size_t* n) {
  return *n = static_cast<Graph*>(graph)->nodes.size(), kSuccess;
}
API cudaError_t cudaGraphLaunch(Handle graph, Handle s) {
  CONTEXT;
  Call call(311);
  for (auto& again : static_cast<Graph*>(graph)->nodes) again(stream_of(s));
  return kSuccess;
}
API cudaError_t cudaGraphDestroy(Handle graph) { return delete static_cast<Graph*>(graph), kSuccess; }
API cudaError_t cudaGraphExecDestroy(Handle graph) { return cudaGraphDestroy(graph); }

// ---- the way to the driver: a function of this library, else one that says "not supported"
static int unsupported() {
  trace("a driver call that is not modelled");
  return kNotSupported;
}
API cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** f, unsigned, unsigned long long,
                                                 int* status) {
  *f = dlsym(RTLD_DEFAULT, symbol);
  if (!*f) trace("%s is not modelled", symbol), *f = (void*)unsupported;
  if (status) *status = 0;
  return kSuccess;
}
API cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** f, unsigned long long flags, int* status) {
  return cudaGetDriverEntryPointByVersion(symbol, f, BOX_CUDA_VERSION, flags, status);
}
