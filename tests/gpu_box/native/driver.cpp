// The CUDA driver (libcuda): what torch asks for by name. Virtual memory for expandable segments; modules of NVRTC and
// Triton, whose kernels do nothing.
#include "cuda_api.h"
#include "box.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

using namespace box;
void launch(const char* name, Work (*body)(void**), void** args, Stream* s, uint32_t correlation);  // kernels.cpp
extern "C" cudaError_t cudaDeviceGetAttribute(int* v, int attribute, int d);                         // runtime.cpp
using Address = unsigned long long;                                                                  // CUdeviceptr

// ---- devices and contexts: a context is the device's number plus one
API int cuInit(unsigned) { return settings().visible.empty() ? kNoDevice : kSuccess; }
API int cuDriverGetVersion(int* v) { return *v = BOX_CUDA_VERSION, kSuccess; }
API int cuDeviceGetCount(int* n) { return *n = int(settings().visible.size()), kSuccess; }
API int cuDeviceGet(int* d, int n) { return *d = n, n < int(settings().visible.size()) ? kSuccess : kInvalidDevice; }
API int cuDeviceGetName(char* s, int n, int) { return snprintf(s, n, "%s", settings().name.c_str()), kSuccess; }
API int cuDeviceGetUuid(char* out, int d) { return uuid(physical(d), (unsigned char*)out), kSuccess; }
API int cuDeviceGetAttribute(int* v, int attribute, int d) { return cudaDeviceGetAttribute(v, attribute, d); }
API int cuDeviceTotalMem(size_t* n, int) { return *n = settings().memory, kSuccess; }
// torch asks, so that it does not make a context on GPU 0 in every process
API int cuDevicePrimaryCtxGetState(int d, unsigned* flags, int* active) { return *flags = 0, *active = touched(d), kSuccess; }
API int cuDevicePrimaryCtxRetain(Handle* c, int d) {
  return *c = Handle(uintptr_t(d + 1)), touch(d) ? kSuccess : kOutOfMemory;
}
API int cuCtxGetCurrent(Handle* c) { return *c = Handle(uintptr_t(current_device() + 1)), kSuccess; }
API int cuCtxSetCurrent(Handle c) {
  if (c) current_device() = int(uintptr_t(c)) - 1;
  return kSuccess;
}
API int cuCtxPopCurrent(Handle* c) { return cuCtxGetCurrent(c); }
API int cuCtxGetDevice(int* d) { return *d = current_device(), kSuccess; }
API int cuPointerGetAttribute(void* out, int attribute, Address p) {
  uintptr_t base;
  Block b;
  if (!lookup((void*)p, &base, &b)) return kInvalidValue;
  switch (attribute) {  // CU_POINTER_ATTRIBUTE_…
    case 1: return *(uintptr_t*)out = b.device + 1, kSuccess;                 // CONTEXT
    case 2: return *(unsigned*)out = on_device((void*)p) ? 2 : 1, kSuccess;   // MEMORY_TYPE
    case 3: case 4: return *(Address*)out = p, kSuccess;                      // DEVICE_POINTER, HOST_POINTER
    case 7: case 11: return *(uint64_t*)out = base, kSuccess;                 // BUFFER_ID, RANGE_START_ADDR
    case 9: return *(int*)out = b.device, kSuccess;                           // DEVICE_ORDINAL
    case 12: return *(size_t*)out = b.size, kSuccess;                         // RANGE_SIZE
  }
  return kNotSupported;
}
API int cuMemGetAddressRange(Address* base, size_t* size, Address p) {
  uintptr_t at;
  Block b;
  if (!lookup((void*)p, &at, &b)) return kInvalidValue;
  if (base) *base = at;
  if (size) *size = b.size;
  return kSuccess;
}
API int cuMemGetAddressRange_v2(Address* base, size_t* size, Address p) { return cuMemGetAddressRange(base, size, p); }

// ---- virtual memory: an address range is pages without access, a handle an amount of a device's memory
struct Physical { size_t size; int device; int references; };
static std::mutex mapped_m;
static std::map<Address, Physical*>& mapped() {
  static auto* all = new std::map<Address, Physical*>();
  return *all;
}
static void release_reference(Physical* p) {  // with mapped_m held
  if (--p->references) return;
  give(p->device, p->size);
  delete p;
}
static void* reserve(void* at, size_t n) {
  return mmap(at, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);
}
API int cuMemGetAllocationGranularity(size_t* n, const MemAllocationProp*, int) { return *n = 2 << 20, kSuccess; }
API int cuMemAddressReserve(Address* p, size_t n, size_t, Address, unsigned long long) {
  void* at = reserve(nullptr, n);
  return *p = Address(at), at == MAP_FAILED ? kOutOfMemory : kSuccess;
}
API int cuMemAddressFree(Address p, size_t n) { return munmap((void*)p, n) ? kInvalidValue : kSuccess; }
API int cuMemCreate(Handle* h, size_t n, const MemAllocationProp* prop, unsigned long long) {
  if (prop->handle_types & 8) return kNotSupported;  // fabric handles
  if (!touch(prop->location.id) || !take(prop->location.id, n)) return kOutOfMemory;
  return *h = new Physical{n, prop->location.id, 1}, kSuccess;
}
API int cuMemRelease(Handle h) {
  std::lock_guard<std::mutex> lock(mapped_m);
  return release_reference(static_cast<Physical*>(h)), kSuccess;
}
API int cuMemRetainAllocationHandle(Handle* h, void* p) {
  std::lock_guard<std::mutex> lock(mapped_m);
  auto i = mapped().find(Address(p));
  if (i == mapped().end()) return kInvalidValue;
  i->second->references++;
  return *h = i->second, kSuccess;
}
API int cuMemMap(Address at, size_t n, size_t, Handle h, unsigned long long) {
  std::lock_guard<std::mutex> lock(mapped_m);
  auto* p = static_cast<Physical*>(h);
  p->references++;
  mapped()[at] = p;
  return note((void*)at, {n, p->device, Kind::kMapped, ""}), kSuccess;
}
API int cuMemSetAccess(Address at, size_t n, const void*, size_t) {
  return mprotect((void*)at, n, PROT_READ | PROT_WRITE) ? kInvalidValue : kSuccess;
}
API int cuMemUnmap(Address at, size_t n) {
  reserve((void*)at, n);  // in its place, which returns the pages to the host
  std::lock_guard<std::mutex> lock(mapped_m);
  for (auto i = mapped().lower_bound(at); i != mapped().end() && i->first < at + n; i = mapped().erase(i)) {
    Block b;
    forget((void*)i->first, &b);
    release_reference(i->second);
  }
  return kSuccess;
}

// For CUTLASS' grouped products of experts, which print 14 lines where it fails. A CUtensorMap has 128 bytes.
API int cuTensorMapEncodeTiled(void* map, ...) { return memset(map, 0, 128), kSuccess; }

// ---- modules and their kernels
API int cuModuleGetFunction(Handle* f, Handle, const char* name) { return *f = strdup(name), kSuccess; }
API int cuFuncGetAttribute(int* v, int attribute, Handle) { return *v = attribute == 0 ? 1024 : attribute == 4 ? 32 : 0, kSuccess; }
API int cuLaunchKernel(Handle f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle s, void** args, void**) {
  if (int e = error_of_context()) return e;
  Call call(211);
  return launch(static_cast<const char*>(f), nullptr, args, stream_of(s), call.correlation), kSuccess;
}
API int cuLaunchKernelEx(const void* config, Handle f, void** args, void** extra) {
  struct { unsigned sizes[7]; Handle stream; } c;  // CUlaunchConfig begins with grid, block and shared bytes
  memcpy(&c, config, sizeof c);
  return cuLaunchKernel(f, 0, 0, 0, 0, 0, 0, 0, c.stream, args, extra);
}
API int cuLaunchCooperativeKernel(Handle f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle s, void** args) {
  return cuLaunchKernel(f, 0, 0, 0, 0, 0, 0, 0, s, args, nullptr);
}
API int cuMemsetD32Async(Address p, unsigned v, size_t n, Handle s) {
  if (computes(n * sizeof v)) submit(stream_of(s), [=] { std::fill_n((unsigned*)p, n, v); });
  return kSuccess;
}
