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

static const auto& entry_of(int code) {
  for (auto& e : kCudaErrors)
    if (e.code == code) return e;
  return kCudaErrors[std::size(kCudaErrors) - 1];
}
API const char* cudaGetErrorName(cudaError_t e) { return entry_of(e).name; }
API const char* cudaGetErrorString(cudaError_t e) { return entry_of(e).text; }
API cudaError_t cudaPeekAtLastError() { return error_of_context() ? error_of_context() : last_error; }
API cudaError_t cudaGetLastError() {
  return error_of_context() ? error_of_context() : std::exchange(last_error, kSuccess);
}

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
API cudaError_t cudaDeviceSynchronize() {
  CONTEXT;
  Call call(165);
  run_and_report(stream_of(nullptr), call.correlation, kWait, [] { drain_device(current_device()); });
  ALIVE;
  return kSuccess;
}
API cudaError_t cudaGetDeviceProperties(DeviceProp* p, int d) {
  CHECK_DEVICE(d);
  memset(p, 0, sizeof *p);
  set_properties(p);
  snprintf(p->name, sizeof p->name, "%s", settings().name.c_str());
  uuid(physical(d), (unsigned char*)p->uuid);
  p->total_memory = settings().memory, p->pci_bus = physical(d) + 1;
  return kSuccess;
}
API cudaError_t cudaDeviceGetAttribute(int* v, int attribute, int d) {
  CHECK_DEVICE(d);
  *v = attribute == 33 ? physical(d) + 1 : attribute_of(attribute);  // 33: the bus
  return kSuccess;
}
API cudaError_t cudaDeviceGetPCIBusId(char* s, int n, int d) {
  CHECK_DEVICE(d);
  return snprintf(s, n, "0000:%02X:00.0", physical(d) + 1), kSuccess;
}
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

// ---- streams
API cudaError_t cudaStreamCreateWithPriority(Handle* s, unsigned, int priority) {
  CONTEXT;
  return *s = new_stream(current_device(), priority), kSuccess;
}
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
API cudaError_t cudaGraphInstantiateWithFlags(Handle* out, Handle graph, unsigned long long) {
  return *out = new Graph(*static_cast<Graph*>(graph)), kSuccess;
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
// The program's objects, each with the function that ends it: a graph keeps those that were given to it.
using UserObject = std::shared_ptr<void>;
API cudaError_t cudaUserObjectCreate(Handle* out, void* p, void (*end)(void*), unsigned, unsigned) {
  return *out = new UserObject(p, end), kSuccess;
}
API cudaError_t cudaUserObjectRelease(Handle object, unsigned) {
  return delete static_cast<UserObject*>(object), kSuccess;
}
API cudaError_t cudaGraphRetainUserObject(Handle graph, Handle object, unsigned, unsigned flags) {
  static_cast<Graph*>(graph)->objects.push_back(*static_cast<UserObject*>(object));
  return flags & 1 ? cudaUserObjectRelease(object, 1) : kSuccess;  // 1: the reference itself moves to the graph
}
API cudaError_t cudaGraphDestroy(Handle graph) { return delete static_cast<Graph*>(graph), kSuccess; }

// ---- the way to the driver: a function that is modelled or a stub, else one that says "not supported"
static int unsupported() {
  trace("a driver call that is not modelled");
  return kNotSupported;
}
API cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** f, unsigned, unsigned long long,
                                                 int* status) {
  static void* driver = dlopen("libcuda.so.1", RTLD_LAZY);  // its stubs, and through it this library
  *f = dlsym(driver ? driver : RTLD_DEFAULT, symbol);
  if (!*f) trace("%s is not modelled", symbol), *f = (void*)unsupported;
  if (status) *status = 0;
  return kSuccess;
}
