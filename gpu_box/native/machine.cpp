// The machine: settings, planted faults, and what the processes of a node share.
#include "box.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

API void gpuBoxMovesAll(int change) { box::moves_all += change; }

namespace box {

std::string variable(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value && *value ? value : otherwise;
}
static int64_t bytes(const std::string& text) {
  char* end;
  double n = strtod(text.c_str(), &end);
  return int64_t(n * (*end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : *end == 'G' ? 1 << 30 : 1));
}
// The agent of a node is no rank: it is started with `--node-rank N`. What it starts to ask NVML is not.
static int node_of_command_line() {
  for (std::string process : {std::string("self"), std::to_string(getppid())}) {
    std::ifstream file("/proc/" + process + "/cmdline");
    for (std::string word; std::getline(file, word, '\0');)
      if (word == "--node-rank" && std::getline(file, word, '\0')) return atoi(word.c_str());
  }
  return 0;
}
static std::vector<int> visible_devices(int devices) {
  std::vector<int> found;
  const char* list = getenv("CUDA_VISIBLE_DEVICES");
  for (int i = 0; !list && i < devices; i++) found.push_back(i);
  for (const char* at = list; at && *at;) {  // the first entry that is no number of a device ends the list, as in CUDA
    char* end;
    long n = strtol(at, &end, 10);
    if (end == at || n < 0 || n >= devices || (*end && *end != ',')) break;
    found.push_back(int(n));
    at = *end ? end + 1 : end;
  }
  return found;
}
const Settings& settings() {
  static const Settings* made = [] {
    auto* s = new Settings();
    s->folder = variable("GPU_BOX_DIR", "");
    s->name = variable("GPU_BOX_NAME", "NVIDIA H100 80GB HBM3");
    std::string node = variable("GPU_BOX_NODE", variable("GROUP_RANK", "").c_str());
    s->node = node.empty() ? node_of_command_line() : atoi(node.c_str());
    s->rank = atoi(variable("RANK", "-1").c_str());
    bool gone = access(s->folder.c_str(), W_OK);  // of a test that has ended
    s->devices = gone ? 0 : std::min(atoi(variable("GPU_BOX_DEVICES", "2").c_str()), kMaxDevices);
    s->memory = bytes(variable("GPU_BOX_MEMORY", "80G"));
    s->context = bytes(variable("GPU_BOX_CONTEXT", "512M"));
    s->comm = bytes(variable("GPU_BOX_COMM", "256M"));
    s->values = variable("GPU_BOX_VALUES", "1") != "0";
    s->visible = visible_devices(s->devices);
    return s;
  }();
  return *made;
}
int physical(int logical) { return settings().visible[logical]; }
void uuid(int physical, unsigned char out[16]) {
  // other clusters and nodes have other devices
  uint64_t hash = std::hash<std::string>()(settings().folder + "/" + std::to_string(settings().node));
  memset(out, 0, 16);
  memcpy(out, &hash, sizeof hash);
  out[15] = (unsigned char)physical;
}

// ---- planted faults: a line each, `KIND word=value …`
long Fault::number(const char* key, long otherwise) const {
  auto i = words.find(key);
  return i == words.end() ? otherwise : long(bytes(i->second));
}
std::string Fault::text(const char* key) const {
  auto i = words.find(key);
  return i == words.end() ? "" : i->second;
}
static std::deque<Fault>& plan() {
  static auto* faults = [] {
    auto* faults = new std::deque<Fault>();
    std::ifstream file(variable("GPU_BOX_PLAN", "/dev/null"));
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line.substr(0, line.find('#')));
      std::string word;
      if (!(words >> word)) continue;
      faults->emplace_back();
      faults->back().kind = word;
      while (words >> word) faults->back().words[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    }
    return faults;
  }();
  return *faults;
}
Fault* planted(const char* kind, int device) {
  for (Fault& f : plan()) {
    bool here = f.kind == kind && f.number("rank", settings().rank) == settings().rank &&
                f.number("node", settings().node) == settings().node && f.number("device", device) == device;
    if (here) return &f;
  }
  return nullptr;
}

static std::string print(const char* format, va_list words) {
  char text[2048];
  vsnprintf(text, sizeof text, format, words);
  return text;
}
std::string print(const char* format, ...) {
  va_list words;
  va_start(words, format);
  std::string text = print(format, words);
  va_end(words);
  return text;
}
void trace(const char* format, ...) {
  static FILE* file = getenv("GPU_BOX_TRACE") ? fopen(getenv("GPU_BOX_TRACE"), "a") : nullptr;
  if (!file) return;
  va_list words;
  va_start(words, format);
  fprintf(file, "%d %s\n", getpid(), print(format, words).c_str());
  va_end(words);
  fflush(file);
}
int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

// ---- the node
void* map_file(const std::string& path, size_t size) {
  int fd = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  void* p = MAP_FAILED;  // the first process makes the file; zeros are its valid beginning
  if (fd >= 0 && !ftruncate(fd, off_t(size)))
    p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (fd >= 0) close(fd);
  return p == MAP_FAILED ? nullptr : p;
}
Node* node() {
  static Node* shared = [] {
    std::string path = settings().folder + "/node-" + std::to_string(settings().node);
    void* p = map_file(path, sizeof(Node));
    if (!p) perror(("gpu box: " + path).c_str()), abort();
    return static_cast<Node*>(p);
  }();
  return shared;
}
bool alive(int pid) { return pid && !(kill(pid, 0) && errno == ESRCH); }

static Process* mine() {  // the row of this process; after a fork the child takes its own
  static std::atomic<Process*> row{nullptr};
  static std::atomic<int> owner{0};
  if (owner == getpid()) return row;
  for (Process& p : node()->processes) {
    int pid = p.pid;
    if (pid != getpid() && alive(pid)) continue;
    if (!p.pid.compare_exchange_strong(pid, getpid())) continue;
    for (auto& used : p.used) used = 0;
    row = &p, owner = getpid();
    return row;
  }
  fprintf(stderr, "gpu box: more than %d processes\n", kMaxProcesses);
  abort();
}
int64_t used_on(int device) {
  Fault* other = planted("memory-taken", device);
  int64_t sum = other ? other->number("bytes", 0) : 0;
  for (Process& p : node()->processes)
    if (alive(p.pid)) sum += p.used[device];
  return sum;
}
bool take(int logical, int64_t n) {
  auto& used = mine()->used[physical(logical)];
  used += n;  // first add, then look: two processes cannot both get the last bytes
  if (used_on(physical(logical)) <= settings().memory) return true;
  used -= n;
  return false;
}
void give(int logical, int64_t n) { mine()->used[physical(logical)] -= n; }

void break_device(int device, Health health, int xid, int error) {
  node()->devices[device].xid = xid;
  node()->devices[device].health = health;
  if (health == Health::kEccError) node()->devices[device].ecc_errors++;
  break_context(error);
}
void block_forever() {
  for (;;) pause();
}

}  // namespace box
