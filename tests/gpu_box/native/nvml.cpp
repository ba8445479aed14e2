// NVML (libnvidia-ml): the devices of the node as all its processes use them. It needs no CUDA context.
#include "nvml_api.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "box.h"

using namespace nvml;
using box::Health;

static std::atomic<int> users{0};  // nvmlInit less nvmlShutdown

// ---- which device
static long slices(int device) {  // MIG instances; 0: MIG is off
  box::Fault* f = box::planted("mig", device);
  return f ? std::clamp(f->number("instances", 2), 1l, 7l) : 0;
}
static int find(Handle h, int* device, int* instance) {  // *instance is -1 for a whole device
  if (!users) return kUninitialized;
  *device = int(uintptr_t(h) / 100) - 1;
  *instance = int(uintptr_t(h) % 100) - 1;
  if (*device < 0 || *device >= box::settings().devices || *instance >= slices(*device)) return kInvalid;
  return box::node()->devices[*device].health == Health::kLost ? kLost : kSuccess;
}
// What each function about a device begins with: `d` is the device, `m` its MIG instance.
#define DEVICE(h) int d, m; if (int e_ = find(h, &d, &m)) return e_; (void)m
#define NEEDS(condition, otherwise) do { if (!(condition)) return otherwise; } while (0)
static int write(char* out, uint size, const std::string& text) {
  NEEDS(out, kInvalid);
  NEEDS(text.size() < size, kInsufficientSize);
  return memcpy(out, text.c_str(), text.size() + 1), kSuccess;
}
template <class... Values> static std::string format(const char* as, Values... values) {
  char text[128];
  snprintf(text, sizeof text, as, values...);
  return text;
}
static std::string uuid(int d, int m) {
  unsigned char u[16];
  box::uuid(d, u);
  u[14] = (unsigned char)(m + 1);
  std::string text = m < 0 ? "GPU" : "MIG";
  for (int i = 0; i < 16; i++) text += format(i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", u[i]);
  return text;
}

// ---- what is measured
static std::vector<ProcessInfo> processes(int d) {
  std::vector<ProcessInfo> found;
  for (box::Process& p : box::node()->processes)
    if (box::alive(p.pid) && p.used[d] > 0) found.push_back({uint(p.pid), ull(p.used[d]), ~0u, ~0u});
  if (box::Fault* f = box::planted("memory-taken", d)) found.push_back({uint(f->number("pid", 1)), ull(f->number("bytes", 0)), ~0u, ~0u});
  return found;
}
static Memory memory(int d, int m) {
  ull part = m < 0 ? 1 : ull(slices(d)), total = ull(box::settings().memory) / part, used = ull(box::used_on(d)) / part;
  return {total, total - std::min(used, total), used};
}
static ull throttle_reasons(int d) {  // a hardware reason also sets the bit for "hardware slowdown", 8
  static const std::map<std::string, ull> bits = {
      {"sw-power", 4}, {"hw-slowdown", 8}, {"sw-thermal", 0x20}, {"hw-thermal", 0x48}, {"hw-power-brake", 0x88}};
  box::Fault* f = box::planted("throttled", d);
  auto i = f ? bits.find(f->text("reason")) : bits.end();
  return f ? (i == bits.end() ? 8 : i->second) : processes(d).empty() ? 1 : 0;  // 1: idle
}
static uint max_clock(int kind) { return kind == 2 ? 2619 : 1980; }  // nvmlClockType_t: graphics 0, SM 1, memory 2, video 3
static uint clock_now(int d, int kind) {
  box::Fault* f = kind == 2 ? nullptr : box::planted("throttled", d);
  return f ? uint(f->number("clock", 345)) : max_clock(kind);
}
static ull ecc_errors(int d) { return ull(box::node()->devices[d].ecc_errors); }
static uint links_up(int d) {
  box::Fault* f = box::planted("nvlink-down", d);
  return 18 - uint(f ? std::clamp(f->number("links", 18), 0l, 18l) : 0);
}

// ---- library and node
API int nvmlInitWithFlags(uint) { return users++, kSuccess; }
API int nvmlInit_v2() { return nvmlInitWithFlags(0); }
API int nvmlInit() { return nvmlInitWithFlags(0); }
API int nvmlShutdown() { return users ? (users--, kSuccess) : kUninitialized; }
API const char* nvmlErrorString(int e) {
  static const std::map<int, const char*> texts = {
      {kSuccess, "Success"}, {kUninitialized, "Uninitialized"}, {kInvalid, "Invalid Argument"}, {kTimeout, "Timeout"},
      {kNotSupported, "Not Supported"}, {kNotFound, "Not Found"}, {kInsufficientSize, "Insufficient Size"}, {kLost, "GPU is lost"}};
  auto i = texts.find(e);
  return i == texts.end() ? "Unknown Error" : i->second;
}
API int nvmlSystemGetDriverVersion(char* s, uint n) { return users ? write(s, n, "580.65.06") : kUninitialized; }
API int nvmlSystemGetNVMLVersion(char* s, uint n) { return users ? write(s, n, "13.580.65.06") : kUninitialized; }
API int nvmlSystemGetCudaDriverVersion_v2(int* v) { return v ? (*v = BOX_CUDA_VERSION, kSuccess) : kInvalid; }
API int nvmlSystemGetCudaDriverVersion(int* v) { return nvmlSystemGetCudaDriverVersion_v2(v); }
API int nvmlDeviceGetCount_v2(uint* n) {
  NEEDS(users, kUninitialized);
  return n ? (*n = uint(box::settings().devices), kSuccess) : kInvalid;
}
API int nvmlDeviceGetHandleByIndex_v2(uint i, Handle* h) {
  Handle made = Handle(uintptr_t(i + 1) * 100);
  NEEDS(h && i < box::kMaxDevices, users ? kInvalid : kUninitialized);
  DEVICE(made);
  return *h = made, kSuccess;
}
API int nvmlDeviceGetHandleByUUID(const char* s, Handle* h) {
  NEEDS(s && h, kInvalid);
  for (int d = 0; d < box::settings().devices; d++)
    for (int m = -1; m < slices(d); m++)
      if (int found, instance; uuid(d, m) == s) return *h = Handle(uintptr_t((d + 1) * 100 + m + 1)), find(*h, &found, &instance);
  return users ? kNotFound : kUninitialized;
}
API int nvmlDeviceGetHandleByPciBusId_v2(const char* s, Handle* h) {  // "00000000:01:00.0", or with a domain of four digits
  uint domain, bus;
  NEEDS(s && h, kInvalid);
  bool known = sscanf(s, "%x:%x:00.0", &domain, &bus) == 2 && !domain && bus && bus <= uint(box::settings().devices);
  return known ? nvmlDeviceGetHandleByIndex_v2(bus - 1, h) : users ? kNotFound : kUninitialized;
}

// ---- one device: functions with one result
#define GET(name, type, value) API int name(Handle h, type* out) { DEVICE(h); return out ? (*out = value, kSuccess) : kInvalid; }
GET(nvmlDeviceGetIndex, uint, m < 0 ? uint(d) : uint(m))
GET(nvmlDeviceGetMinorNumber, uint, uint(d))
GET(nvmlDeviceGetMemoryInfo, Memory, memory(d, m))
GET(nvmlDeviceGetPowerUsage, uint, processes(d).empty() ? 70000 : 350000)
GET(nvmlDeviceGetPowerManagementLimit, uint, 700000)
GET(nvmlDeviceGetEnforcedPowerLimit, uint, 700000)
GET(nvmlDeviceGetPerformanceState, int, 0)
GET(nvmlDeviceGetCurrentClocksEventReasons, ull, throttle_reasons(d))
GET(nvmlDeviceGetCurrentClocksThrottleReasons, ull, throttle_reasons(d))
GET(nvmlDeviceGetPersistenceMode, int, 1)
GET(nvmlDeviceGetComputeMode, int, 0)
GET(nvmlDeviceGetMaxMigDeviceCount, uint, 7)
GET(nvmlDeviceIsMigDeviceHandle, uint, m >= 0)
GET(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, Handle, Handle(uintptr_t(d + 1) * 100))
API int nvmlDeviceGetName(Handle h, char* s, uint n) {
  static const char* profiles[] = {"", "7g.80gb", "3g.40gb", "2g.20gb", "1g.20gb", "1g.10gb", "1g.10gb", "1g.10gb"};  // of an H100
  DEVICE(h);
  return write(s, n, box::settings().name + (m < 0 ? "" : std::string(" MIG ") + profiles[slices(d)]));
}
API int nvmlDeviceGetUUID(Handle h, char* s, uint n) {
  DEVICE(h);
  return write(s, n, uuid(d, m));
}
API int nvmlDeviceGetSerial(Handle h, char* s, uint n) {
  DEVICE(h);
  return write(s, n, format("16550230%02d%03d", box::settings().node, d));
}
API int nvmlDeviceGetPciInfo_v3(Handle h, PciInfo* p) {
  DEVICE(h);
  NEEDS(p, kInvalid);
  *p = {{}, 0, uint(d + 1), 0, 0x233010de, 0x16c110de, {}};
  write(p->legacy, sizeof p->legacy, format("0000:%02X:00.0", d + 1));
  return write(p->bus_id, sizeof p->bus_id, format("00000000:%02X:00.0", d + 1));
}
API int nvmlDeviceGetMemoryInfo_v2(Handle h, Memory2* out) {
  DEVICE(h);
  NEEDS(out, kInvalid);
  Memory v = memory(d, m);
  return *out = {out->version, v.total, 0, v.free, v.used}, kSuccess;
}
API int nvmlDeviceGetUtilizationRates(Handle h, Utilization* u) {  // a device with MIG has none
  DEVICE(h);
  NEEDS(!slices(d), kNotSupported);
  return u ? (*u = {processes(d).empty() ? 0u : 100u, 0}, kSuccess) : kInvalid;
}
API int nvmlDeviceGetTemperature(Handle h, int sensor, uint* t) {
  DEVICE(h);
  return t && !sensor ? (*t = throttle_reasons(d) & 0x60 ? 91 : processes(d).empty() ? 34 : 58, kSuccess) : kInvalid;
}
API int nvmlDeviceGetClockInfo(Handle h, int kind, uint* mhz) {
  DEVICE(h);
  return mhz && kind >= 0 && kind < 4 ? (*mhz = clock_now(d, kind), kSuccess) : kInvalid;
}
API int nvmlDeviceGetMaxClockInfo(Handle h, int kind, uint* mhz) {
  DEVICE(h);
  return mhz && kind >= 0 && kind < 4 ? (*mhz = max_clock(kind), kSuccess) : kInvalid;
}
API int nvmlDeviceGetCudaComputeCapability(Handle h, int* major, int* minor) {
  DEVICE(h);
  return major && minor ? (*major = 9, *minor = 0, kSuccess) : kInvalid;
}
API int nvmlDeviceGetTotalEccErrors(Handle h, int uncorrected, int, ull* n) {
  DEVICE(h);
  return n ? (*n = uncorrected ? ecc_errors(d) : 0, kSuccess) : kInvalid;
}
API int nvmlDeviceGetEccMode(Handle h, int* current, int* pending) {
  DEVICE(h);
  return current && pending ? (*current = *pending = 1, kSuccess) : kInvalid;
}
// Rows of memory are remapped at the next reset of the device. Retired pages are of older devices.
API int nvmlDeviceGetRemappedRows(Handle h, uint* corrected, uint* uncorrected, uint* pending, uint* failed) {
  DEVICE(h);
  NEEDS(corrected && uncorrected && pending && failed, kInvalid);
  return *corrected = *uncorrected = *failed = 0, *pending = ecc_errors(d) > 0, kSuccess;
}
API int nvmlDeviceGetRetiredPages(Handle h, int, uint*, ull*) {
  DEVICE(h);
  return kNotSupported;
}

// ---- processes
API int nvmlDeviceGetComputeRunningProcesses_v3(Handle h, uint* n, ProcessInfo* out) {
  DEVICE(h);
  NEEDS(n && (out || !*n), kInvalid);
  std::vector<ProcessInfo> found = processes(d);
  uint room = *n;
  *n = uint(found.size());
  NEEDS(found.size() <= room, kInsufficientSize);
  return std::copy(found.begin(), found.end(), out), kSuccess;
}
API int nvmlDeviceGetComputeRunningProcesses_v2(Handle h, uint* n, ProcessInfo* out) {
  return nvmlDeviceGetComputeRunningProcesses_v3(h, n, out);
}
API int nvmlDeviceGetComputeRunningProcesses(Handle h, uint* n, ProcessInfo1* out) {
  NEEDS(n && (out || !*n), kInvalid);
  std::vector<ProcessInfo> all(*n + 1);
  if (int e = nvmlDeviceGetComputeRunningProcesses_v3(h, n, all.data())) return e;
  for (uint i = 0; i < *n; i++) out[i] = {all[i].pid, all[i].used};
  return kSuccess;
}
API int nvmlDeviceGetGraphicsRunningProcesses_v3(Handle h, uint* n, ProcessInfo*) {
  DEVICE(h);
  return n ? (*n = 0, kSuccess) : kInvalid;
}

// ---- MIG
API int nvmlDeviceGetMigMode(Handle h, uint* current, uint* pending) {
  DEVICE(h);
  return current && pending ? (*current = *pending = slices(d) > 0, kSuccess) : kInvalid;
}
API int nvmlDeviceGetMigDeviceHandleByIndex(Handle h, uint index, Handle* out) {
  DEVICE(h);
  NEEDS(out && m < 0 && index < 7, kInvalid);
  return index < slices(d) ? (*out = Handle(uintptr_t(h) + index + 1), kSuccess) : kNotFound;
}

// ---- connections: each of 18 NVLinks leads to a switch; there is no fabric of several nodes
API int nvmlDeviceGetNvLinkState(Handle h, uint link, uint* up) {
  DEVICE(h);
  return up && link < 18 ? (*up = link < links_up(d), kSuccess) : kInvalid;
}
API int nvmlDeviceGetNvLinkRemoteDeviceType(Handle h, uint link, int* type) {
  DEVICE(h);
  return type && link < links_up(d) ? (*type = 2, kSuccess) : kInvalid;  // NVML_NVLINK_DEVICE_TYPE_SWITCH
}
API int nvmlDeviceGetNvLinkRemotePciInfo_v2(Handle h, uint, PciInfo*) {
  DEVICE(h);
  return kNotSupported;
}
API int nvmlDeviceGetP2PStatus(Handle a, Handle b, int, int* status) {
  { DEVICE(b); }
  DEVICE(a);
  return status ? (*status = 0, kSuccess) : kInvalid;
}
API int nvmlDeviceGetGpuFabricInfoV(Handle h, uint* info) {  // zeros: not supported; the version, info[0], has the size
  DEVICE(h);
  NEEDS(info && (*info & 0xffffff) >= 4 && (*info & 0xffffff) <= 64, kInvalid);
  return memset(info + 1, 0, (*info & 0xffffff) - 4), kSuccess;
}

// ---- events: Xids that come while a program waits for them
struct EventSet { int registered[box::kMaxDevices], seen[box::kMaxDevices]; };
API int nvmlEventSetCreate(EventSet** set) {
  NEEDS(users, kUninitialized);
  return set ? (*set = new EventSet(), kSuccess) : kInvalid;
}
API int nvmlEventSetFree(EventSet* set) { return set ? (delete set, kSuccess) : kInvalid; }
API int nvmlDeviceRegisterEvents(Handle h, ull, EventSet* set) {
  DEVICE(h);
  NEEDS(set, kInvalid);
  set->registered[d] = 1;
  set->seen[d] = box::node()->devices[d].xid;
  return kSuccess;
}
API int nvmlEventSetWait_v2(EventSet* set, EventData* out, uint milliseconds) {
  NEEDS(users, kUninitialized);
  NEEDS(set && out, kInvalid);
  for (uint waited = 0;; waited += 10) {
    for (int d = 0; d < box::settings().devices; d++) {
      int xid = box::node()->devices[d].xid;
      if (!set->registered[d] || !xid || xid == set->seen[d]) continue;
      set->seen[d] = xid;
      return *out = {Handle(uintptr_t(d + 1) * 100), 8, ull(xid), ~0u, ~0u}, kSuccess;  // 8: nvmlEventTypeXidCriticalError
    }
    if (waited >= milliseconds) return kTimeout;
    usleep(10000);
  }
}
