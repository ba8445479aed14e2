// What NCCL says of itself: NCCL_DEBUG output, and RAS, which tells clients of all the communicators of a job. The forms are
// those of NCCL 2.29.7: github.com/NVIDIA/nccl, src/debug.cc, src/init.cc, src/ras/client_support.cc.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>
#include <set>
#include <thread>
#include <utility>

#include "comm.h"

namespace nccl {
using namespace box;

static std::string variable(const char* name, const char* otherwise) { return getenv(name) ? getenv(name) : otherwise; }
static int index_in(const char* const* names, const std::string& name) {  // -1: it is not there
  for (int i = 0; names[i]; i++)
    if (!strcasecmp(names[i], name.c_str())) return i;
  return -1;
}

// ---- the log
enum Level { kNone, kVersion, kWarn, kInfo, kAbort, kTrace };
struct Log {
  int level;
  unsigned subsystems = 0;
  std::string host;
  FILE* file = stdout;
  Log() {
    static const char* const levels[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE", nullptr};
    static const char* const names[] = {"INIT", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "CALL", "PROXY",
                                        "NVLS", "BOOTSTRAP", "REG", "PROFILE", "RAS", "ALL", nullptr};
    level = std::max(index_in(levels, variable("NCCL_DEBUG", "NONE")), 0);
    std::string list = variable("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV"), name;
    bool without = list[0] == '^';
    for (char ch : list.substr(without) + ",") {
      if (ch != ',') {
        name += ch;
      } else if (int i = index_in(names, std::exchange(name, "")); i >= 0) {
        subsystems |= i == 16 ? ~0u : 1u << i;
      }
    }
    if (without) subsystems = ~subsystems;
    char buffer[256] = "";
    gethostname(buffer, sizeof buffer - 1);
    host = std::string(buffer).substr(0, std::string(buffer).find('.'));
    std::string pattern = level > kVersion ? variable("NCCL_DEBUG_FILE", "") : "", path;
    for (size_t i = 0; i < pattern.size(); i++) {
      char what = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[++i] : 0;
      path += what == 'h' ? host : what == 'p' ? std::to_string(getpid()) : what == '%' || !what ? pattern.substr(i, 1)
                                                                                   : std::string("%") + what;
    }
    if (FILE* f = path.empty() ? nullptr : fopen(path.c_str(), "w")) setlinebuf(file = f);
  }
};
static const Log& log() {
  static const Log* made = new Log();
  return *made;
}
static std::mutex warning_m;
static char warning[1024];
const char* last_warning() { return warning; }
static void write_line(Level level, const std::string& before, const std::string& text) {
  char stamp[32] = "";
  time_t now = time(nullptr);
  tm local;
  if (level == kWarn) strftime(stamp, sizeof stamp, "\n[%F %T] ", localtime_r(&now, &local));
  std::string line = stamp;
  if (level != kVersion)
    line += log().host + ":" + std::to_string(getpid()) + ":" + std::to_string(gettid()) + " [" + std::to_string(current_device()) + "] ";
  fputs((line + before + text + "\n").c_str(), log().file);
  if (log().file == stdout) fflush(stdout);
}
static std::string formatted(const char* format, va_list words) {
  char text[2048];
  vsnprintf(text, sizeof text, format, words);
  return text;
}
void info(unsigned subsystems, const char* format, ...) {
  if (log().level < kInfo || !(log().subsystems & subsystems)) return;
  va_list words;
  va_start(words, format);
  write_line(kInfo, "NCCL INFO ", formatted(format, words));
  va_end(words);
}
void warn(const char* place, const char* format, ...) {
  va_list words;
  va_start(words, format);
  std::string text = formatted(format, words);
  va_end(words);
  std::lock_guard<std::mutex> lock(warning_m);
  snprintf(warning, sizeof warning, "%s", text.c_str());
  if (log().level >= kWarn) write_line(kWarn, std::string(place) + " NCCL WARN ", text);
}

// ---- its lines
std::string address_of(int node) { return "10.0." + std::to_string((node + 1) / 256) + "." + std::to_string((node + 1) % 256); }
static std::string version() {
  int v = BOX_NCCL_VERSION;
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}
static bool has_infiniband() { return variable("NCCL_IB_DISABLE", "0") == "0"; }
void tell_version(int rank) {
  static std::once_flag once;
  if (log().level < kInfo && rank) return;
  std::call_once(once, [] {
    std::string own = address_of(settings().node), devices;
    std::string text = "NCCL version " + version() + "+cuda" + std::to_string(BOX_CUDA_VERSION / 1000) + "." +
                       std::to_string(BOX_CUDA_VERSION / 10 % 100);
    info(kBootstrap, "Bootstrap: Using eth0:%s<0>", own.c_str());
    info(kInit, "cudaDriverVersion %d", BOX_CUDA_VERSION);
    if (log().level == kVersion || log().level == kWarn) write_line(kVersion, "", text);
    info(~0u, "%s", text.c_str());
    for (int d = 0; d < settings().devices; d++)
      devices += " [" + std::to_string(d) + "]mlx5_" + std::to_string(d) + ":1/IB";
    if (has_infiniband()) info(kInit | kNet, "NET/IB : Using%s [RO]; OOB eth0:%s<0>", devices.c_str(), own.c_str());
    else info(kInit | kNet, "NET/Socket : Using [0]eth0:%s<0>", own.c_str());
  });
}
void tell_setup(ncclComm* c, bool complete) {
  std::string first = complete ? "" : "[Rank " + std::to_string(c->rank) + "] ", last = complete ? " - Init COMPLETE" : " - Init START";
  char made[128];
  if (c->parent)
    snprintf(made, sizeof made, "parent %p childCount %d color %d key %d", (void*)c->parent, c->parent->children, c->color, c->key);
  else
    snprintf(made, sizeof made, "commId 0x%lx", (unsigned long)c->id);
  if (!complete) {
    info(kInit, "Using network %s", has_infiniband() ? "IB" : "Socket");
    info(kInit, "DMA-BUF is available on GPU device %d", c->device);
  }
  info(kInit, "%s%s comm %p rank %d nranks %d cudaDev %d nvmlDev %d busId %lx %s%s", c->parent ? "" : first.c_str(),
       c->function.c_str(), (void*)c, c->rank, c->n, c->device, physical(c->device), c->bus_id(), made, last.c_str());
  if (complete)
    info(kInit | kProfile, "Init timings - %s: rank %d nranks %d total 0.05 (kernels 0.00, alloc 0.01, bootstrap 0.02, "
         "allgathers 0.01, topo 0.01, graphs 0.00, connections 0.00, rest 0.00)", c->function.c_str(), c->rank, c->n);
}
constexpr int kChannels = 2;
void tell_topology(ncclComm* c) {
  std::set<int> nodes;
  int local_ranks = 0, local_rank = 0;
  std::string ring, trees;
  for (int r = 0; r < c->n; r++) {
    bool local = c->member(r).node == c->me().node;
    nodes.insert(c->member(r).node);
    local_ranks += local;
    local_rank += local && r < c->rank;
    ring += " " + std::to_string(r);
  }
  info(kInit, "comm %p rank %d nRanks %d nNodes %zu localRanks %d localRank %d MNNVL 0", (void*)c, c->rank, c->n, nodes.size(),
       local_ranks, local_rank);
  for (int i = 0; i < kChannels; i++) {
    if (!c->rank) info(kInit, "Channel %02d/%02d :%s", i, kChannels, ring.c_str());
    info(kGraph, "Ring %02d : %d -> %d -> %d", i, (c->rank + c->n - 1) % c->n, c->rank, (c->rank + 1) % c->n);
    trees += " [" + std::to_string(i) + "] " + std::to_string(c->rank + 1 < c->n ? c->rank + 1 : -1) + "/-1/-1->" +
             std::to_string(c->rank) + "->" + std::to_string(c->rank - 1);
  }
  info(kInit, "Trees%s", trees.c_str());
  info(kInit, "P2P Chunksize set to 524288");
  info(kInit, "%d coll channels, %d collnet channels, 0 nvls channels, %d p2p channels, %d p2p channels per peer", kChannels,
       kChannels, kChannels, kChannels);
}
void tell_channels(ncclComm* c) {
  int next = (c->rank + 1) % c->n;
  const Member &me = c->me(), &to = c->member(next);
  for (int i = 0; i < kChannels && c->n > 1; i++)
    if (me.node == to.node)
      info(kInit | kP2p, "Channel %02d/0 : %d[%d] -> %d[%d] via P2P/CUMEM", i, c->rank, me.physical, next, to.physical);
    else
      info(kInit | kNet, "Channel %02d/0 : %d[%d] -> %d[%d] [send] via NET/%s/%d", i, c->rank, me.physical, next, to.physical,
           has_infiniband() ? "IB" : "Socket", me.physical);
  info(kInit, "Connected all rings, use ring PXN 0 GDR %d", has_infiniband());
}
void tell_error(ncclComm* c, ncclResult_t code, int peer) {
  std::string at = address_of(c->member(peer).node) + "<" + std::to_string(40000 + c->member(peer).pid % 20000) + ">";
  bool far = c->member(peer).node != c->me().node;
  switch (code) {
    case ncclUnhandledCudaError: return warn("enqueue.cc:1600", "Cuda failure 'unspecified launch failure'");
    case ncclSystemError:
      return warn("os/linux.cc:289", "ncclOsSocketProgressOpt: Call to recv from %s failed : Connection timed out", at.c_str());
    case ncclInvalidUsage:
      return warn("transport/net_socket.cc:569", "NET/Socket : peer %s message truncated : receiving 1048576 bytes instead of 524288. "
                  "If you believe your socket network is in a healthy state, there may be a mismatch in collective sizes or "
                  "environment settings (e.g. NCCL_PROTO, NCCL_ALGO) between ranks", at.c_str());
    case ncclRemoteError:
      if (far && c->connected && has_infiniband())
        return warn("transport/net_ib/p2p.cc:651", "NET/IB: Got completion from peer %s with status=IBV_WC_RETRY_EXC_ERR(12) "
                    "opcode=IBV_WC_SEND(0) vendor_err=129  hca mlx5_%d", at.c_str(), c->me().physical);
      return warn("misc/socket.cc:36", "socketProgress: Connection closed by remote peer %s", at.c_str());
    default: return warn("transport/net_socket.cc:270", "NET/Socket : socket progress error");
  }
}

// ---- RAS: a thread that listens, and one for each client
static void append(std::string& text, const char* format, ...) __attribute__((format(printf, 2, 3)));
static void append(std::string& text, const char* format, ...) {
  va_list words;
  va_start(words, format);
  text += formatted(format, words);
  va_end(words);
}
// When this process found first that the other one had ended; 0: it lives. After a minute RAS considers it dead.
static int64_t dead_since(int pid) {
  static std::mutex m;
  static auto* found = new std::map<int, int64_t>();
  std::lock_guard<std::mutex> lock(m);
  return alive(pid) ? 0 : found->emplace(pid, now_ns()).first->second;
}
static void add_rank(std::string& text, const Member& m, int rank, bool missing) {
  static const auto flag = [](bool on) { return on ? "true" : "false"; };
  append(text, "%s        {\n          \"rank\": %d,\n          \"host\": \"%s\",\n          \"pid\": %d,\n          \"cuda_dev\": %d,\n"
         "          \"nvml_dev\": %d,\n          \"status\": {\n", text.empty() ? "" : ",\n", rank, address_of(m.node).c_str(),
         m.pid.load(), m.device, m.physical);
  if (int64_t since = dead_since(m.pid); missing)
    return append(text, "            \"unresponsive\": %s,\n            \"considered_dead\": %s\n          }\n        }", flag(since),
                  flag(since && now_ns() - since > 60000000000));
  append(text, "            \"init_state\": %d,\n            \"async_error\": %d,\n            \"finalize_called\": %s,\n"
         "            \"destroy_flag\": false,\n            \"abort_flag\": %s\n          },\n          \"collective_counts\": {\n",
         m.state.load(), m.error.load(), flag(m.finalized), flag(m.aborted));
  for (int i = 0; i < kCounted; i++)
    append(text, "            \"%s\": %lu%s\n", kOpNames[i], (unsigned long)m.launched[i], i + 1 < kCounted ? "," : "");
  text += "          }\n        }";
}
static void add_communicator(std::string& text, const Shared& s, int& communicators) {
  std::string ranks, missing;
  int present = 0, members = 0;
  for (int r = 0; r < s.n; r++) {
    const Member& m = s.members[r];
    bool here = m.pid && !m.left && !dead_since(m.pid);
    members += m.pid != 0;
    present += here;
    if (m.pid) add_rank(here ? ranks : missing, m, r, !here);
  }
  if (!present || members < s.n) return;  // a leftover, or a set-up that RAS does not know yet
  append(text, "%s    {\n      \"hash\": \"0x%lx\",\n      \"secondary_hash\": \"0x%lx:0x%x\",\n      \"size\": %d,\n"
         "      \"ranks_count\": %d,\n      \"missing_ranks_count\": %d,\n      \"ranks\": [\n", communicators++ ? ",\n" : "",
         (unsigned long)s.id, (unsigned long)s.id >> 16, s.members[0].pid.load(), s.n.load(), present, s.n - present);
  text += ranks + "\n      ],\n      \"missing_ranks\": [\n" + missing + "\n      ]\n    }";
}
static std::string status() {
  std::string communicators, text;
  int count = 0;
  DIR* folder = opendir(settings().folder.c_str());
  while (dirent* entry = folder ? readdir(folder) : nullptr) {
    struct stat st;
    int fd = strncmp(entry->d_name, "comm-", 5) ? -1 : openat(dirfd(folder), entry->d_name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    bool large = !fstat(fd, &st) && size_t(st.st_size) >= sizeof(Shared);
    void* p = large ? mmap(nullptr, size_t(st.st_size), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (p == MAP_FAILED) continue;
    auto& s = *static_cast<const Shared*>(p);
    if (sizeof(Shared) + size_t(s.n) * sizeof(Member) <= size_t(st.st_size)) add_communicator(communicators, s, count);
    munmap(p, size_t(st.st_size));
  }
  if (folder) closedir(folder);
  char now[32];
  time_t seconds = time(nullptr);
  tm local;
  strftime(now, sizeof now, "%F %T", localtime_r(&seconds, &local));
  append(text, "{\n  \"nccl_version\": \"%s\",\n  \"cuda_runtime_version\": %d,\n  \"cuda_driver_version\": %d,\n  \"timestamp\": \"%s\",\n"
         "  \"communicators_count\": %d,\n  \"communicators\": [\n", version().c_str(), BOX_CUDA_VERSION, BOX_CUDA_VERSION, now, count);
  return text + communicators + "\n  ],\n  \"ras\": {\n    \"collection_time_sec\": 0.001,\n    \"timeouts_count\": 0\n  }\n}\n";
}
static void serve_client(int fd) {
  FILE* lines = fdopen(fd, "r");
  char line[1024];
  bool json = false;
  std::string answer;
  while (answer.size() < 1024 && fgets(line, sizeof line, lines)) {
    line[strcspn(line, "\r\n")] = 0;
    auto is = [&](const char* command) { return !strncasecmp(line, command, strlen(command)); };
    if (is("client protocol ")) answer = "SERVER PROTOCOL 2\n";
    else if (is("timeout ")) answer = "OK\n";
    else if (is("set format ")) answer = "OK\n", json = !strcasecmp(line + 11, "json");
    else if (!is("status") && !is("verbose status")) answer = "ERROR: Unknown command " + std::string(line) + "\n";
    else answer = json ? status() : "NCCL version " + version() + "\nOnly the JSON format is modelled\n";
    bool last = is("status") || is("verbose status");
    for (size_t at = 0; at < answer.size();) {
      ssize_t sent = send(fd, answer.data() + at, answer.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) break;
      at += size_t(sent);
    }
    if (last) break;
  }
  fclose(lines);
}
void serve_ras() {
  static std::once_flag once;
  if (variable("NCCL_RAS_ENABLE", "1") == "0") return;
  std::call_once(once, [] {
    std::string where = variable("NCCL_RAS_ADDR", "localhost:28028"), host = where.substr(0, where.rfind(':'));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(atoi(where.substr(where.rfind(':') + 1).c_str())));
    if (inet_pton(AF_INET, host == "localhost" ? "127.0.0.1" : host.c_str(), &address.sin_addr) != 1) return;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    for (int option : {SO_REUSEADDR, SO_REUSEPORT}) setsockopt(fd, SOL_SOCKET, option, &on, sizeof on);
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) || listen(fd, 64)) {
      info(kInit | kRas, "RAS failed to establish a client listening socket at %s", where.c_str());
      close(fd);
      return;
    }
    info(kInit | kRas, "RAS client listening socket at %s", where.c_str());
    std::thread([fd] {
      for (;;) {
        pollfd ready{fd, POLLIN, 0};
        int client = poll(&ready, 1, 5000) == 1 ? accept4(fd, nullptr, nullptr, SOCK_CLOEXEC) : -1;
        if (client >= 0) std::thread(serve_client, client).detach();
        else status();  // notes which processes have ended
      }
    }).detach();
  });
}

}  // namespace nccl
