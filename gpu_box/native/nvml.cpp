// NVML (libnvidia-ml): the devices of the node, as all its processes use them. It makes no CUDA context.
#include "nvml_api.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "box.h"

using namespace nvml;
using box::Fault, box::print;

static std::atomic<int> users{0};  // nvmlInit less nvmlShutdown

// ---- what is known of a device
static long slices(int d) {  // MIG instances; 0: MIG is off
  Fault* f = box::planted("mig", d);
  return f ? std::clamp(f->number("instances", 2), 1l, 7l) : 0;
}
static std::string uuid(int d, int m) {
  unsigned char u[16];
  box::uuid(d, u);
  u[14] = (unsigned char)(m + 1);
  std::string text = m < 0 ? "GPU" : "MIG";
  for (int i = 0; i < 16; i++) text += print(i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", u[i]);
  return text;
}
static std::string name(int d, int m) {  // the profiles are those of an H100 of 80 GB
  static const char* profiles[] = {"", "7g.80gb", "3g.40gb", "2g.20gb", "1g.20gb", "1g.10gb", "1g.10gb", "1g.10gb"};
  return box::settings().name + (m < 0 ? "" : std::string(" MIG ") + profiles[slices(d)]);
}
static std::vector<ProcessInfo> processes(int d) {
  std::vector<ProcessInfo> found;
  for (box::Process& p : box::node()->processes)
    if (box::alive(p.pid) && p.used[d] > 0) found.push_back({uint(p.pid), ull(p.used[d]), ~0u, ~0u});
  Fault* f = box::planted("memory-taken", d);
  if (f) found.push_back({uint(f->number("pid", 1)), ull(f->number("bytes", 0)), ~0u, ~0u});
  return found;
}
static bool in_use(int d) { return !processes(d).empty(); }
static Memory memory(int d, int m) {  // an instance has an equal part of all
  ull part = m < 0 ? 1 : ull(slices(d)), total = ull(box::settings().memory) / part, used = ull(box::used_on(d)) / part;
  return {total, total - std::min(used, total), used};
}
static ull throttle_reasons(int d) {  // nvmlClocksEventReasons; 8, "hardware slowdown", goes with its reason
  static const std::map<std::string, ull> bits = {
      {"sw-power", 4}, {"hw-slowdown", 8}, {"sw-thermal", 0x20}, {"hw-thermal", 0x48}, {"hw-power-brake", 0x88}};
  Fault* f = box::planted("throttled", d);
  auto found = f ? bits.find(f->text("reason")) : bits.end();
  return f ? (found == bits.end() ? 8 : found->second) : in_use(d) ? 0 : 1;  // 1: idle
}
static uint clock_now(int d, int kind) {  // nvmlClockType_t: 2 is memory
  Fault* f = box::planted("throttled", d);
  return kind == 2 ? 2619 : f ? uint(f->number("clock", 345)) : 1980;
}
static uint links_up(int d) {  // of 18 NVLinks to a switch
  Fault* f = box::planted("nvlink-down", d);
  return f ? 18 - uint(std::clamp(f->number("links", 18), 0l, 18l)) : 18;
}

// ---- what the functions have in common
static Handle handle(int d, int m = -1) { return Handle(uintptr_t(100 * (d + 1) + m + 1)); }
static int find(Handle h, int* d, int* m) {
  if (!users) return kUninitialized;
  *d = int(uintptr_t(h) / 100) - 1, *m = int(uintptr_t(h) % 100) - 1;
  if (*d < 0 || *d >= box::settings().devices || *m >= slices(*d)) return kInvalid;
  return box::node()->devices[*d].health == box::Health::kLost ? kLost : kSuccess;
}
static int write(char* out, uint size, const std::string& text) {
  return !out ? kInvalid : text.size() >= size ? kSmall : (memcpy(out, text.c_str(), text.size() + 1), kSuccess);
}
// A function about the library, and one about a device `d` and its MIG instance `m` (-1: the whole device). An argument
// that is not `valid` is an error; else `...` gives the result.
#define LIBRARY(function, arguments, valid, ...) \
  API int function arguments { return !users ? kUninitialized : !(valid) ? kInvalid : (__VA_ARGS__, kSuccess); }
#define DEVICE(function, arguments, valid, ...) \
  API int function arguments { \
    int d, m, error = find(h, &d, &m); \
    return error ? error : !(valid) ? kInvalid : (__VA_ARGS__); \
  }
#define GET(function, type, value) DEVICE(function, (Handle h, type* out), out, *out = value, kSuccess)

// ---- library and node
API int nvmlInitWithFlags(uint) { return users++, kSuccess; }
API int nvmlShutdown() { return users ? (users--, kSuccess) : kUninitialized; }
API const char* nvmlErrorString(int code) {
  for (auto& e : kErrors)
    if (e.code == code) return e.text;
  return "Unknown Error";
}
API int nvmlSystemGetDriverVersion(char* s, uint n) { return users ? write(s, n, "580.65.06") : kUninitialized; }
LIBRARY(nvmlSystemGetCudaDriverVersion_v2, (int* v), v, *v = BOX_CUDA_VERSION)
LIBRARY(nvmlDeviceGetCount_v2, (uint* n), n, *n = uint(box::settings().devices))
API int nvmlDeviceGetHandleByIndex_v2(uint i, Handle* out) {
  int d, m, error = find(handle(int(std::min(i, 99u))), &d, &m);
  return error ? error : out ? (*out = handle(d), kSuccess) : kInvalid;
}
API int nvmlDeviceGetHandleByPciBusId_v2(const char* s, Handle* out) {  // a domain of 8 or of 4 digits
  uint domain, bus;
  if (!users || !s || !out) return users ? kInvalid : kUninitialized;
  bool known = sscanf(s, "%x:%x:00.0", &domain, &bus) == 2 && !domain && bus && bus <= uint(box::settings().devices);
  return known ? nvmlDeviceGetHandleByIndex_v2(bus - 1, out) : kNotFound;
}

// ---- devices
GET(nvmlDeviceGetMemoryInfo, Memory, memory(d, m))
GET(nvmlDeviceGetPowerUsage, uint, in_use(d) ? 350000 : 70000)
GET(nvmlDeviceGetCurrentClocksEventReasons, ull, throttle_reasons(d))
DEVICE(nvmlDeviceGetName, (Handle h, char* s, uint n), s, write(s, n, name(d, m)))
DEVICE(nvmlDeviceGetUUID, (Handle h, char* s, uint n), s, write(s, n, uuid(d, m)))
DEVICE(nvmlDeviceGetPciInfo_v3, (Handle h, PciInfo* p), p, *p = {{}, 0, uint(d + 1), 0, 0x233010de, 0x16c110de, {}},
       write(p->legacy, sizeof p->legacy, print("0000:%02X:00.0", uint(d + 1))),
       write(p->bus_id, sizeof p->bus_id, print("00000000:%02X:00.0", uint(d + 1))))
DEVICE(nvmlDeviceGetUtilizationRates, (Handle h, Utilization* u), u,  // a device with MIG has none
       slices(d) ? kNotSupported : (*u = {in_use(d) ? 100u : 0u, 0}, kSuccess))
DEVICE(nvmlDeviceGetTemperature, (Handle h, int sensor, uint* t), t && !sensor,
       *t = throttle_reasons(d) & 0x60 ? 91 : in_use(d) ? 58 : 34, kSuccess)
DEVICE(nvmlDeviceGetClockInfo, (Handle h, int kind, uint* mhz), mhz && uint(kind) < 4,
       *mhz = clock_now(d, kind), kSuccess)
DEVICE(nvmlDeviceGetTotalEccErrors, (Handle h, int uncorrected, int, ull* n), n,
       *n = uncorrected ? ull(box::node()->devices[d].ecc_errors) : 0, kSuccess)
DEVICE(nvmlDeviceGetMigMode, (Handle h, uint* now, uint* pending), now && pending,
       *now = *pending = slices(d) > 0, kSuccess)
DEVICE(nvmlDeviceGetMigDeviceHandleByIndex, (Handle h, uint index, Handle* out), out && m < 0 && index < 7,
       index < slices(d) ? (*out = handle(d, int(index)), kSuccess) : kNotFound)
DEVICE(nvmlDeviceGetNvLinkState, (Handle h, uint i, uint* up), up && i < 18, *up = i < links_up(d), kSuccess)
static int list(int d, uint* n, void* out, size_t size) {
  std::vector<ProcessInfo> found = processes(d);
  uint room = *n;
  *n = uint(found.size());
  if (found.size() > room) return kSmall;
  for (size_t i = 0; i < found.size(); i++) memcpy(static_cast<char*>(out) + i * size, &found[i], size);
  return kSuccess;
}
// The first form, which torch asks for, knows no instances of MIG.
DEVICE(nvmlDeviceGetComputeRunningProcesses, (Handle h, uint* n, void* p), n && (p || !*n),
       list(d, n, p, offsetof(ProcessInfo, gpu_instance)))
DEVICE(nvmlDeviceGetComputeRunningProcesses_v3, (Handle h, uint* n, void* p), n && (p || !*n),
       list(d, n, p, sizeof(ProcessInfo)))

// ---- events: Xids that come after their device was registered
struct EventSet { bool registered[box::kMaxDevices]; int seen[box::kMaxDevices]; };
LIBRARY(nvmlEventSetCreate, (EventSet** set), set, *set = new EventSet())
DEVICE(nvmlDeviceRegisterEvents, (Handle h, ull, EventSet* set), set, set->registered[d] = true,
       set->seen[d] = box::node()->devices[d].xid, kSuccess)
API int nvmlEventSetWait_v2(EventSet* set, EventData* out, uint milliseconds) {
  if (!users || !set || !out) return users ? kInvalid : kUninitialized;
  for (uint waited = 0;; waited += 10) {
    for (int d = 0; d < box::settings().devices; d++) {
      int xid = box::node()->devices[d].xid;
      if (!set->registered[d] || !xid || xid == set->seen[d]) continue;
      set->seen[d] = xid;
      return *out = {handle(d), 8, ull(xid), ~0u, ~0u}, kSuccess;  // 8: nvmlEventTypeXidCriticalError
    }
    if (waited >= milliseconds) return kTimeout;
    usleep(10000);
  }
}
