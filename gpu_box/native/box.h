// A machine with GPUs made of host memory and threads: what all the replacement libraries share.
//
// Read once per process from the environment (box.py sets them):
//   GPU_BOX_DIR      folder of the files that processes share; one folder is one cluster. Where there is none: no devices
//   GPU_BOX_NODE     number of this node (default: torchrun's GROUP_RANK, `--node-rank N` of the command line, 0)
//   GPU_BOX_DEVICES  devices of a node            GPU_BOX_MEMORY   bytes of each (suffixes K, M, G)
//   GPU_BOX_NAME     of the devices               GPU_BOX_ATTRIBUTES   75=8,76=0: what they have (cudaDeviceAttr)
//   GPU_BOX_CONTEXT  bytes of a CUDA context      GPU_BOX_COMM     bytes of an NCCL communicator
//   GPU_BOX_ALONE    1: the other ranks of each communicator are not there, and do as this one does
//   GPU_BOX_VALUES   0: only up to 64 KiB at once are moved or filled on devices, so that their pages are not touched
//   GPU_BOX_PLAN     file of planted faults: README.md
//   GPU_BOX_RAS      command that answers a client of NCCL's RAS on its standard input and output
//   GPU_BOX_TRACE    file: a line for each kernel, collective and call that is not modelled
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace box {

constexpr int kMaxDevices = 16, kMaxProcesses = 512;

// ---- settings and planted faults (machine.cpp)
struct Fault {
  std::string kind;                            // "kernel-hang", "nccl-error", ...
  std::map<std::string, std::string> words;    // "at" -> "3"; `rank`, `node` and `device` select who has the fault
  std::atomic<long> seen{0};                   // how many launches, calls or operations have matched it so far
  long number(const char* key, long otherwise) const;
  std::string text(const char* key) const;     // "" where the plan does not say
  bool due() { return ++seen == number("at", 1); }
};
struct Settings {
  std::string folder, name;
  int node, rank, devices;                     // rank -1: this process is no rank
  int64_t memory, context, comm;
  bool values;
  std::vector<int> visible;                    // CUDA_VISIBLE_DEVICES: logical -> physical number
};
const Settings& settings();
// Small data is right in any case: torch's own checks read it, DDP's of its parameters for one.
inline std::atomic<int> moves_all{0};          // gpu_box_shadow.py sees to it, while torch exchanges objects
inline bool computes(size_t bytes) { return settings().values || moves_all || bytes <= (64 << 10); }
int physical(int logical);
void uuid(int physical, unsigned char out[16]);  // the same for the CUDA runtime and NVML
// The first fault of this kind that is planted in this process and, where the plan names one, on this physical device.
Fault* planted(const char* kind, int device = -1);
void trace(const char* format, ...) __attribute__((format(printf, 1, 2)));
int64_t now_ns();                              // CLOCK_REALTIME, as CUPTI and the kernel's log have it
std::string variable(const char* name, const char* otherwise);  // of the environment; an empty one counts as absent
std::string print(const char* format, ...) __attribute__((format(printf, 1, 2)));

// ---- the node: what its processes share, in a file of GPU_BOX_DIR (machine.cpp)
enum class Health : int { kGood, kEccError, kLost };
struct Process {
  std::atomic<int> pid;
  std::atomic<int64_t> used[kMaxDevices];      // bytes on each physical device
};
struct Device {
  std::atomic<Health> health;
  std::atomic<int> xid;                        // of the last error, as in the kernel's log; 0: none
  std::atomic<int64_t> ecc_errors;             // uncorrected, volatile
};
struct Node {
  Device devices[kMaxDevices];
  Process processes[kMaxProcesses];
};
void* map_file(const std::string& path, size_t size);  // nullptr: it cannot be made
Node* node();
bool alive(int pid);
int64_t used_on(int physical);                 // bytes, by all living processes and by faults of the kind memory-taken
bool take(int logical, int64_t bytes);         // false: the device has no room for them
void give(int logical, int64_t bytes);

// ---- memory (device.cpp)
// kMapped: cuMemMap; kShared: cudaIpcOpenMemHandle
enum class Kind { kDevice, kPinned, kRegistered, kMapped, kShared };
struct Block {
  size_t size;
  int device;                                  // logical
  Kind kind;
  std::string file = {};                       // kDevice that was exported with cudaIpcGetMemHandle: its file's path
};
void* allocate(int device, size_t size, Kind kind);  // nullptr: out of memory
bool release(void* p);
void note(void* p, Block b);
std::optional<Block> forget(void* p);
std::optional<Block> block_of(const void* p);  // also of an address inside it
bool on_device(const void* p);
void zero(void* p, size_t n);                  // returns whole pages to the host instead of writing zeros

// ---- streams and events (device.cpp)
using Work = std::function<void()>;
struct Stream;
// A captured graph: what cudaGraphLaunch does again, in order, each with the stream that it is launched on.
struct Graph {
  std::vector<std::function<void(Stream*)>> nodes;
  std::vector<std::shared_ptr<void>> objects;  // what lives as long as the graph and what was made of it
};
struct Event {
  std::mutex m;
  std::condition_variable cv;
  uint64_t recorded = 0, completed = 0;        // how often
  int64_t ns = 0;
  bool timing = true;
  Graph* graph = nullptr;                      // recorded last while its stream was captured into this graph
};
struct Stream {
  int device, priority;                        // device: logical
  uint64_t id;
  std::mutex m;
  std::condition_variable cv;
  std::deque<Work> queue;
  bool busy = false, started = false;
  Graph* capturing = nullptr;
  int64_t last_end_ns = 0;                     // of the activities that CUPTI reports: those of a stream do not overlap
};
Stream* new_stream(int device, int priority);
// Handles 0 and 1 (legacy) and 2 (per thread) are the default stream of `device`, or of the current device.
Stream* stream_of(void* handle, int device = -1);
// Does `work` after all that the stream already has: at once, in this thread, where the stream is idle and the work
// cannot block. While the stream is captured the work becomes a node of its graph instead.
void submit(Stream* s, Work work, bool may_block = false);
// True where the stream is being captured: then `node` is kept for each launch of the graph. For work that, unlike
// that of submit(), must do something on the host at each launch.
bool capture(Stream* s, std::function<void(Stream*)> node);
bool idle(Stream* s);
void drain(Stream* s);                         // returns early where the context breaks
void drain_device(int device);
std::vector<Stream*> all_streams();

int& current_device();                         // logical, of this thread
bool touch(int device);                        // makes this process's context on the device; false: no memory for it
bool touched(int device);
int error_of_context();                        // the sticky cudaError_t of this process, or 0
void break_context(int error);                 // from now on each call that touches a device returns `error`
// A fault of the device itself: its context breaks, and NVML of every process on the node shows it.
void break_device(int physical, Health health, int xid, int error);
[[noreturn]] void block_forever();

// ---- what the profiler sees (cupti.cpp)
enum class Activity { kKernel, kCopy, kFill, kSync };
extern std::atomic<bool> profiling;
struct Call {                                  // a call of the CUDA runtime, while it lasts; without a profile: a load
  explicit Call(int cupti_id);                 // CUPTI_RUNTIME_TRACE_CBID_*
  ~Call();
  int id;
  uint32_t correlation = 0;                    // 0: nobody profiles
  int64_t begin_ns = 0;
};
struct Done {                                  // what the device did because of a call
  Activity activity;
  const char* name;                            // mangled name of a kernel, else nullptr
  int copy_kind;                               // as the profiler has it; + 16: the host's side is pinned
  uint64_t bytes;
};
// Calls `work` and reports it, with its times, as an activity on the stream; without a profile it only calls `work`.
void run_and_report(Stream* s, uint32_t correlation, const Done& what, const Work& work);
uint32_t correlation_of_call();                // of the runtime call that this thread is in; 0: nobody profiles

}  // namespace box
