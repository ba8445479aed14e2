// Memory, contexts, streams and events of the devices.
#include "box.h"
#include "tables.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace box {

// ---- memory: host pages come when they are first written, so a device may be larger than the host
static std::mutex blocks_m;
static std::map<uintptr_t, Block>& blocks() {
  static auto* all = new std::map<uintptr_t, Block>();
  return *all;
}
void note(void* p, Block b) {
  std::lock_guard<std::mutex> lock(blocks_m);
  blocks()[uintptr_t(p)] = std::move(b);
}
std::optional<Block> forget(void* p) {
  std::lock_guard<std::mutex> lock(blocks_m);
  auto node = blocks().extract(uintptr_t(p));
  return node ? std::optional(std::move(node.mapped())) : std::nullopt;
}
std::optional<Block> block_of(const void* p) {
  std::lock_guard<std::mutex> lock(blocks_m);
  auto i = blocks().upper_bound(uintptr_t(p));
  if (i == blocks().begin() || uintptr_t(p) >= (--i)->first + std::max<size_t>(i->second.size, 1)) return {};
  return i->second;
}
bool on_device(const void* p) {
  auto b = block_of(p);
  return b && b->kind != Kind::kPinned && b->kind != Kind::kRegistered;
}
void* allocate(int device, size_t size, Kind kind) {
  size_t step = kind == Kind::kDevice ? 2 << 20 : 4096;  // devices hand out memory in steps of 2 MiB
  size_t room = std::max((size + step - 1) / step * step, step);
  if (kind == Kind::kDevice && !take(device, room)) return nullptr;
  // Aligned to the step: torch's expandable segments and cudaMalloc of real devices are.
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  char* p = (char*)mmap(nullptr, room + step, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (p == MAP_FAILED) {
    if (kind == Kind::kDevice) give(device, room);
    return nullptr;
  }
  char* aligned = (char*)((uintptr_t(p) + step - 1) / step * step);
  if (aligned > p) munmap(p, aligned - p);
  if (p + step > aligned) munmap(aligned + room, p + step - aligned);
  note(aligned, {room, device, kind});
  return aligned;
}
bool release(void* p) {
  auto b = forget(p);
  if (!b) return false;
  munmap(p, b->size);
  if (b->kind == Kind::kDevice) give(b->device, b->size);
  if (!b->file.empty()) unlink(b->file.c_str());
  return true;
}
void zero(void* p, size_t n) {
  uintptr_t from = (uintptr_t(p) + 4095) & ~4095ul, to = (uintptr_t(p) + n) & ~4095ul;
  auto b = n >= (1 << 20) ? block_of(p) : std::nullopt;
  bool pages = b && b->file.empty() && (b->kind == Kind::kDevice || b->kind == Kind::kMapped);
  if (!pages || madvise((void*)from, to - from, MADV_DONTNEED)) return void(memset(p, 0, n));
  memset(p, 0, from - uintptr_t(p));
  memset((void*)to, 0, uintptr_t(p) + n - to);
}

// ---- contexts
static std::atomic<int> sticky{0};
static std::atomic<bool> made[kMaxDevices];
int& current_device() {
  static thread_local int device = 0;
  return device;
}
bool touched(int device) { return made[device]; }
// cuDNN is not modelled: torch is told not to use it, as torch.backends.cudnn.enabled and enable_cudnn_sdp() would.
static void switch_cudnn_off() {
  void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  auto context = torch ? (void* (*)())dlsym(torch, "_ZN2at13globalContextEv") : nullptr;  // at::globalContext()
  for (const char* setter : {"_ZN2at7Context19setUserEnabledCuDNNEb", "_ZN2at7Context14setSDPUseCuDNNEb"})
    if (auto set = context ? (void (*)(void*, bool))dlsym(torch, setter) : nullptr) set(context(), false);
}
// As CUDA's context keeps /dev/nvidia-uvm open: by that others see that a process uses CUDA.
static void open_driver() {
  static const int fd = open((settings().folder + "/nvidia-uvm").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  (void)fd;
}
bool touch(int device) {
  if (made[device]) return true;
  static std::once_flag once;
  std::call_once(once, [] { switch_cudnn_off(); open_driver(); });
  if (made[device].exchange(true) || take(device, settings().context)) return true;
  made[device] = false;
  return false;
}
int error_of_context() {
  for (int d = 0; !sticky && d < int(settings().visible.size()); d++)  // another process may have lost the device
    if (made[d] && node()->devices[physical(d)].health == Health::kLost) sticky = cuda::kUnknown;
  return sticky;
}
void break_context(int error) {
  sticky = error;
  for (Stream* s : all_streams()) {
    std::lock_guard<std::mutex> lock(s->m);
    s->cv.notify_all();
  }
}

// ---- streams. They are never freed: their threads may still wait when the process exits.
static std::mutex streams_m;
static std::vector<Stream*>& streams() {
  static auto* all = new std::vector<Stream*>();
  return *all;
}
std::vector<Stream*> all_streams() {
  std::lock_guard<std::mutex> lock(streams_m);
  return streams();
}
Stream* new_stream(int device, int priority) {
  auto* s = new Stream();
  s->device = device, s->priority = priority;
  std::lock_guard<std::mutex> lock(streams_m);
  s->id = streams().size();
  streams().push_back(s);
  return s;
}
Stream* stream_of(void* handle, int device) {
  if (uintptr_t(handle) > 2) return static_cast<Stream*>(handle);
  static std::mutex m;
  static Stream* defaults[kMaxDevices];
  std::lock_guard<std::mutex> lock(m);
  Stream*& s = defaults[device < 0 ? current_device() : device];
  if (!s) s = new_stream(device < 0 ? current_device() : device, 0);
  return s;
}
static void run_queue(Stream* s) {
  current_device() = s->device;
  std::unique_lock<std::mutex> lock(s->m);
  for (;;) {
    s->cv.wait(lock, [&] { return !s->queue.empty(); });
    Work work = std::move(s->queue.front());
    s->queue.pop_front();
    s->busy = true;
    lock.unlock();
    if (!error_of_context()) work();  // a broken context does no more work
    lock.lock();
    s->busy = false;
    s->cv.notify_all();
  }
}
bool capture(Stream* s, std::function<void(Stream*)> again) {
  std::lock_guard<std::mutex> lock(s->m);
  if (s->capturing) s->capturing->nodes.push_back(std::move(again));
  return s->capturing;
}
void submit(Stream* s, Work work, bool may_block) {
  constexpr size_t kQueueDepth = 1024;  // as in the real launch queue, a full one blocks the host
  if (s->capturing && capture(s, [work, may_block](Stream* on) { submit(on, work, may_block); })) return;
  std::unique_lock<std::mutex> lock(s->m);
  if (!may_block && s->queue.empty() && !s->busy) return work();
  s->cv.wait(lock, [&] { return s->queue.size() < kQueueDepth || error_of_context(); });
  if (!s->started) std::thread(run_queue, s).detach();
  s->started = true;
  s->queue.push_back(std::move(work));
  s->cv.notify_all();
}
bool idle(Stream* s) {
  std::lock_guard<std::mutex> lock(s->m);
  return s->queue.empty() && !s->busy;
}
void drain(Stream* s) {
  std::unique_lock<std::mutex> lock(s->m);
  s->cv.wait(lock, [&] { return (s->queue.empty() && !s->busy) || error_of_context(); });
}
void drain_device(int device) {
  for (Stream* s : all_streams())
    if (s->device == device) drain(s);
}

}  // namespace box
