/* A libnvidia-ml.so.1 without a GPU. It speaks NVML's C interface; what it says stands in the text file $FAKE_NVML,
 * which is read again at every call. README.md has the format. -DWITHOUT_nvmlX leaves the symbol nvmlX out. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10 };
typedef unsigned int uint;
typedef unsigned long long ull;
typedef struct { int gpu, instance; } *handle; /* instance is -1 for a whole device */

static int started;
static struct { int gpu, instance; } handles[64][9];

/* The value of key= in a line, without its quotes; 0 where it is not there. */
static int value(const char *line, const char *key, char *out, size_t size) {
    size_t length = strlen(key);
    for (const char *at = line; (at = strstr(at, key)); at += length) {
        if (at[length] != '=' || (at != line && at[-1] != ' ')) continue;
        const char *from = at + length + 1, *stop = *from == '"' ? "\"" : " \n";
        if (*from == '"') from++;
        size_t n = strcspn(from, stop);
        if (n >= size) n = size - 1;
        memcpy(out, from, n);
        out[n] = 0;
        return 1;
    }
    return 0;
}

static ull number(const char *line, const char *key, ull otherwise) {
    char text[64];
    return value(line, key, text, sizeof text) ? strtoull(text, NULL, 0) : otherwise;
}

/* The n-th line that begins with `word` and, where gpu >= 0, says gpu=… ; 0 where there is none. */
static int line_of(const char *word, int gpu, int n, char *out, size_t size) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    int found = 0;
    while (file && !found && fgets(out, (int)size, file))
        if (!strncmp(out, word, strlen(word)) && out[strlen(word)] == ' ' &&
            (gpu < 0 || number(out, "gpu", 0) == (ull)gpu) && n-- == 0)
            found = 1;
    if (file) fclose(file);
    return found;
}

static int count(const char *word, int gpu) {
    char line[512];
    int n = 0;
    while (line_of(word, gpu, n, line, sizeof line)) n++;
    return n;
}

/* What an `error` line plans for this call: for all devices, or for the one that gpu= names. */
static int planned(const char *call, int gpu) {
    char line[512], name[128];
    for (int n = 0; line_of("error", -1, n, line, sizeof line); n++)
        if (value(line, "call", name, sizeof name) && !strcmp(name, call) &&
            (number(line, "gpu", (ull)-1) == (ull)-1 || number(line, "gpu", 0) == (ull)gpu))
            return (int)number(line, "code", 999);
    return OK;
}

static int about(const char *call, handle of, char *line, size_t size) {
    int code = started ? planned(call, of ? of->gpu : -1) : UNINITIALIZED;
    if (code || !of) return code ? code : INVALID_ARGUMENT;
    int there = of->instance < 0 ? line_of("gpu", -1, of->gpu, line, size)
                                 : line_of("mig", of->gpu, of->instance, line, size);
    return there ? OK : NOT_FOUND;
}

static int text_of(const char *call, handle of, const char *key, char *out, uint size) {
    char line[512];
    int code = about(call, of, line, sizeof line);
    return code ? code : value(line, key, out, size) ? OK : NOT_SUPPORTED;
}

static int number_of(const char *call, handle of, const char *key, ull *out) {
    char line[512], text[64];
    int code = about(call, of, line, sizeof line);
    if (code) return code;
    if (!value(line, key, text, sizeof text)) return NOT_SUPPORTED;
    *out = strtoull(text, NULL, 0);
    return OK;
}

static int whole_line(const char *call, const char *word, char *out, uint size) {
    char line[512];
    int code = started ? planned(call, -1) : UNINITIALIZED;
    if (code) return code;
    return line_of(word, -1, 0, line, sizeof line) && value(line, "version", out, size) ? OK : NOT_SUPPORTED;
}

int nvmlInitWithFlags(uint flags) {
    (void)flags;
    int code = planned("nvmlInit", -1);
    if (!code) started++;
    return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return started ? (started--, OK) : UNINITIALIZED; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the fake"; }

int nvmlSystemGetDriverVersion(char *out, uint size) {
    return whole_line("nvmlSystemGetDriverVersion", "driver", out, size);
}
int nvmlDeviceGetCount_v2(uint *out) {
    int code = started ? planned("nvmlDeviceGetCount", -1) : UNINITIALIZED;
    if (!code) *out = (uint)count("gpu", -1);
    return code;
}
int nvmlDeviceGetHandleByIndex_v2(uint index, handle *out) {
    int code = started ? planned("nvmlDeviceGetHandleByIndex", (int)index) : UNINITIALIZED;
    if (code || index >= (uint)count("gpu", -1)) return code ? code : INVALID_ARGUMENT;
    handles[index][8].gpu = (int)index;
    handles[index][8].instance = -1;
    *out = (handle)&handles[index][8];
    return OK;
}
int nvmlDeviceGetUUID(handle of, char *out, uint size) { return text_of("nvmlDeviceGetUUID", of, "uuid", out, size); }
int nvmlDeviceGetName(handle of, char *out, uint size) { return text_of("nvmlDeviceGetName", of, "name", out, size); }
int nvmlDeviceGetMemoryInfo(handle of, ull out[3]) {
    char line[512];
    int code = about("nvmlDeviceGetMemoryInfo", of, line, sizeof line);
    if (code) return code;
    out[0] = number(line, "total", 0), out[2] = number(line, "used", 0), out[1] = out[0] - out[2];
    return OK;
}
#ifndef WITHOUT_nvmlDeviceGetMemoryInfo_v2
typedef struct { uint version; ull total, reserved, free, used; } memory_v2;
int nvmlDeviceGetMemoryInfo_v2(handle of, memory_v2 *out) {
    char line[512];
    int code = about("nvmlDeviceGetMemoryInfo", of, line, sizeof line);
    if (code) return code;
    out->total = number(line, "total", 0), out->reserved = number(line, "reserved", 0);
    out->used = number(line, "used", 0) - out->reserved, out->free = out->total - out->reserved - out->used;
    return OK;
}
#endif
int nvmlDeviceGetUtilizationRates(handle of, uint out[2]) {
    ull busy;
    int code = number_of("nvmlDeviceGetUtilizationRates", of, "busy", &busy);
    if (!code) out[0] = (uint)busy, out[1] = 0;
    return code;
}
int nvmlDeviceGetTemperature(handle of, int sensor, uint *out) {
    ull degrees;
    int code = sensor ? INVALID_ARGUMENT : number_of("nvmlDeviceGetTemperature", of, "temperature", &degrees);
    if (!code) *out = (uint)degrees;
    return code;
}
int nvmlDeviceGetPowerUsage(handle of, uint *out) {
    ull milliwatts;
    int code = number_of("nvmlDeviceGetPowerUsage", of, "power", &milliwatts);
    if (!code) *out = (uint)milliwatts;
    return code;
}
#ifndef WITHOUT_nvmlDeviceGetCurrentClocksEventReasons
int nvmlDeviceGetCurrentClocksEventReasons(handle of, ull *out) {
    return number_of("nvmlDeviceGetCurrentClocksEventReasons", of, "throttle", out);
}
#endif
int nvmlDeviceGetCurrentClocksThrottleReasons(handle of, ull *out) {
    return number_of("nvmlDeviceGetCurrentClocksThrottleReasons", of, "throttle", out);
}
int nvmlDeviceGetTotalEccErrors(handle of, int type, int counter, ull *out) {
    (void)counter;
    return number_of("nvmlDeviceGetTotalEccErrors", of, type ? "uncorrected" : "corrected", out);
}
int nvmlDeviceGetNvLinkState(handle of, uint link, uint *out) {
    char states[32];
    int code = text_of("nvmlDeviceGetNvLinkState", of, "nvlinks", states, sizeof states);
    if (code || link >= strlen(states)) return code ? code : INVALID_ARGUMENT;
    *out = states[link] == '1';
    return OK;
}
typedef struct {
    char legacy[16];
    uint domain, bus, device, id, subsystem;
    char bus_id[32];
} pci_info;
int nvmlDeviceGetPciInfo_v3(handle of, pci_info *out) {
    memset(out, 0, sizeof *out);
    return text_of("nvmlDeviceGetPciInfo", of, "bus", out->bus_id, sizeof out->bus_id);
}
int nvmlDeviceGetMigMode(handle of, uint *current, uint *pending) {
    ull mode;
    int code = number_of("nvmlDeviceGetMigMode", of, "mig", &mode);
    if (!code) *current = *pending = (uint)mode;
    return code;
}
int nvmlDeviceGetMaxMigDeviceCount(handle of, uint *out) {
    char line[512];
    int code = about("nvmlDeviceGetMaxMigDeviceCount", of, line, sizeof line);
    if (!code) *out = 7;
    return code;
}
int nvmlDeviceGetMigDeviceHandleByIndex(handle of, uint index, handle *out) {
    char line[512];
    int code = about("nvmlDeviceGetMigDeviceHandleByIndex", of, line, sizeof line);
    if (code) return code;
    if (index >= (uint)count("mig", of->gpu)) return NOT_FOUND;
    handles[of->gpu][index].gpu = of->gpu;
    handles[of->gpu][index].instance = (int)index;
    *out = (handle)&handles[of->gpu][index];
    return OK;
}
typedef struct {
    uint pid;
    ull used;
    uint gpu_instance, compute_instance;
} process_info;
int nvmlDeviceGetComputeRunningProcesses_v3(handle of, uint *size, process_info *out) {
    char line[512];
    int code = about("nvmlDeviceGetComputeRunningProcesses", of, line, sizeof line);
    if (code) return code;
    uint there = (uint)count("process", of->gpu), room = *size;
    *size = there;
    if (there > room) return INSUFFICIENT_SIZE;
    for (uint n = 0; out && n < there; n++) {
        line_of("process", of->gpu, (int)n, line, sizeof line);
        out[n] = (process_info){(uint)number(line, "pid", 0), number(line, "used", ~0ull), ~0u, ~0u};
    }
    return OK;
}

/* Xids: each `xid` line is one event, reported once, in their order. */
static int reported;
int nvmlEventSetCreate(void **out) {
    int code = started ? planned("nvmlEventSetCreate", -1) : UNINITIALIZED;
    if (!code) *out = &reported;
    return code;
}
int nvmlDeviceRegisterEvents(handle of, ull types, void *set) {
    (void)types, (void)set;
    char line[512];
    return about("nvmlDeviceRegisterEvents", of, line, sizeof line);
}
typedef struct {
    handle device;
    ull type, data;
    uint gpu_instance, compute_instance;
} event;
int nvmlEventSetWait_v2(void *set, event *out, uint milliseconds) {
    (void)set;
    char line[512];
    for (uint waited = 0;; waited += 20) {
        if (line_of("xid", -1, reported, line, sizeof line)) {
            reported++;
            handle device;
            int code = nvmlDeviceGetHandleByIndex_v2((uint)number(line, "gpu", 0), &device);
            *out = (event){device, 8, number(line, "number", 0), ~0u, ~0u};
            return code;
        }
        if (waited >= milliseconds) return TIMEOUT;
        usleep(20000);
    }
}
int nvmlEventSetFree(void *set) { return set ? OK : INVALID_ARGUMENT; }
