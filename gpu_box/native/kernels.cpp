// Kernels: their registration, their launch, and the faults that are planted in them. A kernel does nothing, except for
// fills (zeros, ones, full) and torch.cuda._sleep.
#include "cuda_api.h"
#include "box.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

using namespace box;
cudaError_t result(cudaError_t e);  // runtime.cpp

using Body = Work (*)(void** args);  // reads the arguments of a launch, gives what the kernel does
static std::mutex kernels_m;
// address of the host's stub -> name of the kernel
static std::unordered_map<const void*, const char*>& kernels() {
  static auto* all = new std::unordered_map<const void*, const char*>();
  return *all;
}

// torch's FillFunctor: vectorized_elementwise_kernel<…, FillFunctor<T>, std::array<char*, 1>>(int n, T value, char* data)
template <class T> static Work fill(void** args) {
  int n = *static_cast<int*>(args[0]);
  T value = *static_cast<T*>(args[1]), *data = *static_cast<T**>(args[2]);
  if (!computes(n * sizeof(T))) return nullptr;
  return [=] { value ? (void)std::fill_n(data, n, value) : zero(data, n * sizeof(T)); };
}
// torch.cuda._sleep(cycles), at 1.98 GHz
static Work spin(void** args) {
  int64_t cycles = *static_cast<int64_t*>(args[0]);
  return [=] { usleep(useconds_t(cycles / 1980)); };
}
static Body body_of(const char* name) {
  if (strstr(name, "11spin_kernel")) return spin;
  const char* functor = strstr(name, "29vectorized_elementwise_kernel");
  functor = functor ? strstr(functor, "11FillFunctorI") : nullptr;
  if (!functor || !strstr(functor, "St5arrayIPcLm1E")) return nullptr;
  const char* type = functor + strlen("11FillFunctorI");
  if (strchr("fij", *type)) return fill<uint32_t>;
  if (strchr("dlm", *type)) return fill<uint64_t>;
  if (strchr("ahb", *type)) return fill<uint8_t>;
  if (strchr("st", *type)) return fill<uint16_t>;
  return strstr(type, "4HalfE") == type + 5 || strstr(type, "8BFloat16E") == type + 5 ? fill<uint16_t> : nullptr;
}

// ---- registration: nvcc's code calls these when a library is loaded
API void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, ...) {
  std::lock_guard<std::mutex> lock(kernels_m);
  kernels()[host] = name;
}

// ---- launches
static const struct { const char* kind; int error, xid; Health health; } kKernelFaults[] = {
    {"kernel-hang", 0, 0, Health::kGood},
    {"illegal-address", kIllegalAddress, 31, Health::kGood},
    {"device-assert", kAssert, 0, Health::kGood},
    {"ecc-error", kEccUncorrectable, 48, Health::kEccError},
    {"device-lost", kUnknown, 79, Health::kLost},
};
static Work planted_in(const char* name, int device) {
  for (auto& f : kKernelFaults) {
    Fault* fault = planted(f.kind, device);
    if (!fault || !strstr(name, fault->text("kernel").c_str()) || !fault->due()) continue;
    trace("%s in %s", f.kind, name);
    if (!f.error) return [] { block_forever(); };
    return [=] { break_device(device, f.health, f.xid, f.error); };
  }
  return nullptr;
}
// `body`: what the kernel does, or nullptr.
void launch(const char* name, Body body, void** args, Stream* s, uint32_t correlation) {
  int device = physical(s->device);
  trace("device %d stream %lu kernel %s", device, (unsigned long)s->id, name);
  if (Work fault = planted_in(name, device)) return submit(s, fault, true);
  static Fault* slow = planted("slow-device");
  Work work = args && body ? body(args) : nullptr;
  int us = slow && slow->number("device", device) == device ? int(slow->number("us", 0)) : 0;
  if (!work && !us && !correlation && !s->capturing && idle(s)) return;
  submit(s, [=] {
    run_and_report(s, correlation, {Activity::kKernel, name, 0, 0}, [&] {
      if (us) usleep(us);
      if (work) work();
    });
  }, us || body == spin);
}
API cudaError_t cudaLaunchKernel(const void* host, Dim3, Dim3, void** args, size_t, Handle stream) {
  if (int e = error_of_context()) return result(e);
  if (!touch(current_device())) return result(kOutOfMemory);
  Call call(211);
  std::unique_lock<std::mutex> lock(kernels_m);
  auto i = kernels().find(host);
  if (i == kernels().end()) return result(kInvalidDeviceFunction);
  const char* name = i->second;
  lock.unlock();
  return launch(name, body_of(name), args, stream_of(stream), call.correlation), kSuccess;
}
API cudaError_t cudaLaunchKernelExC(const LaunchConfig* c, const void* host, void** args) {
  return cudaLaunchKernel(host, c->grid, c->block, args, c->shared, c->stream);
}
// `kernel<<<…>>>(…)` pushes a configuration and then calls the kernel's stub, which pops it: there is one at a time.
static thread_local LaunchConfig configuration;
API unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, Handle s) {
  return configuration = {grid, block, shared, s, nullptr, 0}, 0;
}
API cudaError_t __cudaPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared, Handle* s) {
  *grid = configuration.grid, *block = configuration.block, *shared = configuration.shared, *s = configuration.stream;
  return kSuccess;
}
API cudaError_t cudaFuncGetAttributes(FuncAttributes* a, const void*) {
  return *a = {0, 0, 0, 1024, 32, 90, 90, 0, 232448}, kSuccess;
}

// ---- cuBLAS computes nothing. torch allocates its workspaces, and gives one to each handle, or to each product.
static std::mutex workspaces_m;
static std::unordered_set<void*> workspaces[2];  // of handles, of products
static int note_workspace(int of_product, void* p) {
  std::lock_guard<std::mutex> lock(workspaces_m);
  return workspaces[of_product].insert(p), 0;
}
API int cublasSetWorkspace_v2(Handle, void* p, size_t) { return note_workspace(0, p); }
API int cublasLtMatmul(Handle, Handle, void*, void*, Handle, void*, Handle, void*, void*, Handle, void*, Handle, void*,
                       void* p, size_t, Handle) {
  return note_workspace(1, p);
}
API int gpuBoxIsWorkspace(int of_product, void* p) {  // for snapshots of memory
  std::lock_guard<std::mutex> lock(workspaces_m);
  return int(workspaces[of_product].count(p));
}
