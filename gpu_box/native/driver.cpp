// The CUDA driver (libcuda): what torch asks for by name. Virtual memory for expandable segments; kernels of NVRTC and
// Triton, which do nothing.
#include "cuda_api.h"
#include "box.h"

#include <sys/mman.h>

using namespace box;
void launch(const char* name, Work (*body)(void**), void** args, Stream* s, uint32_t correlation);  // kernels.cpp
using Address = unsigned long long;                                                            // CUdeviceptr

// ---- devices and contexts: a context is the device's number plus one
API int cuDeviceGet(int* d, int n) { return *d = n, n < int(settings().visible.size()) ? kSuccess : kInvalidDevice; }
// torch asks, so that it does not make a context on GPU 0 in every process
API int cuDevicePrimaryCtxGetState(int d, unsigned* flags, int* active) {
  return *flags = 0, *active = touched(d), kSuccess;
}
API int cuDevicePrimaryCtxRetain(Handle* c, int d) {
  return *c = Handle(uintptr_t(d + 1)), touch(d) ? kSuccess : kOutOfMemory;
}
API int cuCtxGetCurrent(Handle* c) { return *c = Handle(uintptr_t(current_device() + 1)), kSuccess; }
API int cuCtxSetCurrent(Handle c) {
  if (c) current_device() = int(uintptr_t(c)) - 1;
  return kSuccess;
}

// ---- virtual memory: an address range is pages without access, a handle an amount of a device's memory. torch unmaps
// each piece before it releases the handle of the piece: pages that are mapped are not counted a second time.
struct Physical { size_t size; int device; };
static void* reserve(void* at, size_t n) {
  return mmap(at, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);
}
API int cuMemAddressReserve(Address* p, size_t n, size_t, Address, unsigned long long) {
  void* at = reserve(nullptr, n);
  return *p = Address(at), at == MAP_FAILED ? kOutOfMemory : kSuccess;
}
API int cuMemAddressFree(Address p, size_t n) { return munmap((void*)p, n) ? kInvalidValue : kSuccess; }
API int cuMemCreate(Handle* h, size_t n, const MemAllocationProp* prop, unsigned long long) {
  if (prop->handle_types & 8) return kNotSupported;  // fabric handles
  if (!touch(prop->location.id) || !take(prop->location.id, n)) return kOutOfMemory;
  return *h = new Physical{n, prop->location.id}, kSuccess;
}
API int cuMemRelease(Handle h) {
  auto* p = static_cast<Physical*>(h);
  return give(p->device, p->size), delete p, kSuccess;
}
API int cuMemMap(Address at, size_t n, size_t, Handle h, unsigned long long) {
  return note((void*)at, {n, static_cast<Physical*>(h)->device, Kind::kMapped}), kSuccess;
}
API int cuMemSetAccess(Address at, size_t n, const void*, size_t) {
  return mprotect((void*)at, n, PROT_READ | PROT_WRITE) ? kInvalidValue : kSuccess;
}
API int cuMemUnmap(Address at, size_t n) {
  reserve((void*)at, n);  // in its place, which returns the pages to the host
  return forget((void*)at) ? kSuccess : kInvalidValue;
}

// ---- kernels of NVRTC and Triton
API int cuLaunchKernel(Handle f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle s,
                       void** args, void**) {
  if (int e = error_of_context()) return e;
  Call call(211);
  return launch(static_cast<const char*>(f), nullptr, args, stream_of(s), call.correlation), kSuccess;
}
// Triton finds it by name.
API int cuLaunchKernelEx(const DriverLaunchConfig* c, Handle f, void** args, void** extra) {
  return cuLaunchKernel(f, 0, 0, 0, 0, 0, 0, c->shared, c->stream, args, extra);
}
