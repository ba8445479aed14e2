// What NCCL says of itself: NCCL_DEBUG output, and RAS, which reports all communicators of a job to its clients. The
// forms are those of NCCL 2.29.7: github.com/NVIDIA/nccl, src/debug.cc, src/init.cc, src/ras/client_support.cc.
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
static std::string print(const char* format, va_list words) {
  char text[2048];
  vsnprintf(text, sizeof text, format, words);
  return text;
}
__attribute__((format(printf, 1, 2))) static std::string print(const char* format, ...) {
  va_list words;
  va_start(words, format);
  std::string text = print(format, words);
  va_end(words);
  return text;
}
static std::string local_time(const char* format) {
  char text[64];
  time_t now = time(nullptr);
  tm local;
  strftime(text, sizeof text, format, localtime_r(&now, &local));
  return text;
}

// ---- the log
enum Level { kNone, kVersion, kWarn, kInfo };
struct Log {
  int level = kNone;
  unsigned subsystems = 0;
  std::string host = std::string(256, 0);
  FILE* file = stdout;
  Log() {
    static const char* const levels[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
    static const char* const names[] = {"INIT",      "COLL", "P2P",     "SHM",  "NET",   "GRAPH",
                                        "TUNING",    "ENV",  "ALLOC",   "CALL", "PROXY", "NVLS",
                                        "BOOTSTRAP", "REG",  "PROFILE", "RAS",  "ALL"};
    for (int i = 0; i < 6; i++)
      if (!strcasecmp(levels[i], variable("NCCL_DEBUG", "").c_str())) level = i;
    std::string list = variable("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV"), name, path;
    for (char ch : list.substr(list[0] == '^') + ",") {
      for (int i = 0; i < 17 && ch == ','; i++)
        if (!strcasecmp(names[i], name.c_str())) subsystems |= i == 16 ? ~0u : 1u << i;
      name = ch == ',' ? "" : name + ch;
    }
    if (list[0] == '^') subsystems = ~subsystems;
    gethostname(host.data(), 255);
    host = host.substr(0, host.find_first_of(std::string(".\0", 2)));
    std::string pattern = level > kVersion ? variable("NCCL_DEBUG_FILE", "") : "";
    for (size_t i = 0; i < pattern.size(); i++) {
      std::string word = pattern.substr(i, pattern[i] == '%' ? 2 : 1);
      path += word == "%h" ? host : word == "%p" ? std::to_string(getpid()) : word == "%%" ? "%" : word;
      i += word.size() - 1;
    }
    if (FILE* f = path.empty() ? nullptr : fopen(path.c_str(), "w")) setlinebuf(file = f);
  }
};
static const Log& log() {
  static const Log* made = new Log();
  return *made;
}
static std::string origin() {
  return print("%s:%d:%d [%d] ", log().host.c_str(), getpid(), gettid(), current_device());
}
static void write_line(const std::string& line) {
  fputs((line + "\n").c_str(), log().file);
  fflush(log().file);
}
void info(unsigned subsystems, const char* format, ...) {
  if (log().level < kInfo || !(log().subsystems & subsystems)) return;
  va_list words;
  va_start(words, format);
  write_line(origin() + "NCCL INFO " + print(format, words));
  va_end(words);
}
static char last[1024];
const char* last_warning() { return last; }
void warn(const char* place, const char* format, ...) {
  va_list words;
  va_start(words, format);
  std::string text = print(format, words);
  va_end(words);
  static std::mutex m;
  std::lock_guard<std::mutex> lock(m);
  snprintf(last, sizeof last, "%s", text.c_str());
  if (log().level >= kWarn) write_line(local_time("\n[%F %T] ") + origin() + place + " NCCL WARN " + text);
}

// ---- its lines
static std::string address_of(int node) { return print("10.0.%d.%d", (node + 1) / 256, (node + 1) % 256); }
static std::string version() {
  return print("%d.%d.%d", BOX_NCCL_VERSION / 10000, BOX_NCCL_VERSION / 100 % 100, BOX_NCCL_VERSION % 100);
}
static bool has_infiniband() { return variable("NCCL_IB_DISABLE", "0") == "0"; }
static const char* network() { return has_infiniband() ? "IB" : "Socket"; }
void tell_version(int rank) {
  static std::once_flag once;
  if (log().level >= kInfo || !rank)
    std::call_once(once, [] {
      std::string own = address_of(settings().node), devices;
      std::string text =
          print("NCCL version %s+cuda%d.%d", version().c_str(), BOX_CUDA_VERSION / 1000, BOX_CUDA_VERSION / 10 % 100);
      info(kBootstrap, "Bootstrap: Using eth0:%s<0>", own.c_str());
      info(kInit, "cudaDriverVersion %d", BOX_CUDA_VERSION);
      info(~0u, "%s", text.c_str());
      if (log().level == kVersion || log().level == kWarn) write_line(text);
      for (int d = 0; d < settings().devices; d++) devices += print(" [%d]mlx5_%d:1/IB", d, d);
      if (has_infiniband()) info(kInit | kNet, "NET/IB : Using%s [RO]; OOB eth0:%s<0>", devices.c_str(), own.c_str());
      if (!has_infiniband()) info(kInit | kNet, "NET/Socket : Using [0]eth0:%s<0>", own.c_str());
    });
}
void tell_setup(ncclComm* c, const char* what) {
  std::string made = c->parent ? print("parent %p childCount %d color %d key %d", (void*)c->parent, c->parent->children,
                                       c->color, c->key)
                               : print("commId 0x%lx", (unsigned long)c->id);
  bool start = !strcmp(what, "START");
  if (start) info(kInit, "Using network %s", network());
  info(kInit, "%s%s comm %p rank %d nranks %d cudaDev %d nvmlDev %d busId %lx %s - Init %s",
       start && !c->parent ? print("[Rank %d] ", c->rank).c_str() : "", c->function.c_str(), (void*)c, c->rank, c->n,
       c->device, physical(c->device), c->bus_id(), made.c_str(), what);
}
constexpr int kChannels = 2;
void tell_topology(ncclComm* c) {
  std::set<int> nodes;
  int local_ranks = 0, local_rank = 0;
  std::string ring, trees;
  for (int r = 0; r < c->n; r++) {
    bool local = c->member(r).node == c->me().node;
    nodes.insert(c->member(r).node);
    local_ranks += local, local_rank += local && r < c->rank;
    ring += " " + std::to_string(r);
  }
  info(kInit, "comm %p rank %d nRanks %d nNodes %zu localRanks %d localRank %d MNNVL 0", (void*)c, c->rank, c->n,
       nodes.size(), local_ranks, local_rank);
  for (int i = 0; i < kChannels; i++) {
    if (!c->rank) info(kInit, "Channel %02d/%02d :%s", i, kChannels, ring.c_str());
    info(kGraph, "Ring %02d : %d -> %d -> %d", i, (c->rank + c->n - 1) % c->n, c->rank, c->next());
    trees += print(" [%d] %d/-1/-1->%d->%d", i, c->rank + 1 < c->n ? c->rank + 1 : -1, c->rank, c->rank - 1);
  }
  info(kInit, "Trees%s", trees.c_str());
  info(kInit, "%d coll channels, %d collnet channels, 0 nvls channels, %d p2p channels, %d p2p channels per peer",
       kChannels, kChannels, kChannels, kChannels);
}
void tell_channels(ncclComm* c) {
  const Member &me = c->me(), &to = c->member(c->next());
  std::string way = me.node == to.node ? "via P2P/CUMEM" : print("[send] via NET/%s/%d", network(), me.physical);
  for (int i = 0; i < kChannels && c->n > 1; i++)
    info(kInit | (me.node == to.node ? kP2p : kNet), "Channel %02d/0 : %d[%d] -> %d[%d] %s", i, c->rank, me.physical,
         c->next(), to.physical, way.c_str());
  info(kInit, "Connected all rings, use ring PXN 0 GDR %d", has_infiniband());
}
void tell_error(ncclComm* c, ncclResult_t code, int peer) {
  const Member& other = c->member(peer);
  std::string at = print("%s<%d>", address_of(other.node).c_str(), 40000 + other.pid % 20000);
  if (code == ncclUnhandledCudaError) return warn("enqueue.cc:1600", "Cuda failure 'unspecified launch failure'");
  if (code == ncclSystemError)
    return warn("os/linux.cc:289", "ncclOsSocketProgressOpt: Call to recv from %s failed : Connection timed out",
                at.c_str());
  if (code == ncclInvalidUsage)
    return warn("transport/net_socket.cc:569",
                "NET/Socket : peer %s message truncated : receiving 1048576 bytes instead of 524288. If "
                "you believe your socket network is in a healthy state, there may be a mismatch in collective sizes or "
                "environment "
                "settings (e.g. NCCL_PROTO, NCCL_ALGO) between ranks",
                at.c_str());
  if (code != ncclRemoteError) return warn("transport/net_socket.cc:270", "NET/Socket : socket progress error");
  if (other.node == c->me().node || !c->connected || !has_infiniband())
    return warn("misc/socket.cc:36", "socketProgress: Connection closed by remote peer %s", at.c_str());
  warn("transport/net_ib/p2p.cc:651",
       "NET/IB: Got completion from peer %s with status=IBV_WC_RETRY_EXC_ERR(12) "
       "opcode=IBV_WC_SEND(0) vendor_err=129  hca mlx5_%d",
       at.c_str(), c->me().physical);
}

// ---- RAS: each process listens, and the kernel chooses the one that answers
// When this process found that the other one had ended; 0: it lives. After a minute RAS considers it dead.
static int64_t dead_since(int pid) {
  static std::mutex m;
  static auto* found = new std::map<int, int64_t>();
  std::lock_guard<std::mutex> lock(m);
  return alive(pid) ? 0 : found->emplace(pid, now_ns()).first->second;
}
static const char* flag(bool on) { return on ? "true" : "false"; }
static std::string rank_in_json(const Member& m, int rank, bool missing) {
  std::string text = print(
                  "{\"rank\": %d, \"host\": \"%s\", \"pid\": %d, \"cuda_dev\": %d, \"nvml_dev\": %d, \"status\": {",
                  rank, address_of(m.node).c_str(), m.pid.load(), m.device, m.physical),
              counts;
  int64_t since = dead_since(m.pid);
  if (missing)
    return text + print("\"unresponsive\": %s, \"considered_dead\": %s}}", flag(since),
                        flag(since && now_ns() - since > 60000000000));
  for (int i = 0; i < kCounted; i++)
    counts += print("%s\"%s\": %lu", i ? ", " : "", kOpNames[i], (unsigned long)m.launched[i]);
  return text + print(
                    "\"init_state\": %d, \"async_error\": %d, \"finalize_called\": %s, \"destroy_flag\": false, "
                    "\"abort_flag\": %s}, "
                    "\"collective_counts\": {%s}}",
                    m.state.load(), m.error.load(), flag(m.finalized), flag(m.aborted), counts.c_str());
}
static std::string communicator_in_json(const Shared& s) {  // empty: a leftover, or a set-up that RAS does not know yet
  std::string lists[2];                                     // of ranks, and of missing ranks
  int counts[2] = {};
  for (int r = 0; r < s.n; r++) {
    const Member& m = s.members[r];
    bool missing = m.left || dead_since(m.pid);
    if (m.pid) lists[missing] += (counts[missing]++ ? ",\n" : "") + rank_in_json(m, r, missing);
  }
  if (!counts[0] || counts[0] + counts[1] < s.n) return "";
  auto id = (unsigned long)s.id;
  return print(
             "{\"hash\": \"0x%lx\", \"secondary_hash\": \"0x%lx:0x%lx\", \"size\": %d, \"ranks_count\": %d, "
             "\"missing_ranks_count\": %d, ",
             id, id >> 16, id >> 32, s.n.load(), counts[0], counts[1]) +
         "\"ranks\": [\n" + lists[0] + "], \"missing_ranks\": [\n" + lists[1] + "]}";
}
static std::string status() {
  std::string list;
  int count = 0;
  DIR* folder = opendir(settings().folder.c_str());
  while (dirent* entry = folder ? readdir(folder) : nullptr) {
    struct stat st{};
    int fd = strncmp(entry->d_name, "comm-", 5) ? -1 : openat(dirfd(folder), entry->d_name, O_RDONLY | O_CLOEXEC);
    void* p = fd < 0 || fstat(fd, &st) || !st.st_size ? MAP_FAILED
                                                      : mmap(nullptr, size_t(st.st_size), PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (p == MAP_FAILED) continue;
    std::string one = communicator_in_json(*static_cast<const Shared*>(p));
    if (!one.empty()) list += (count++ ? ",\n" : "") + one;
    munmap(p, size_t(st.st_size));
  }
  if (folder) closedir(folder);
  return print(
             "{\"nccl_version\": \"%s\", \"cuda_runtime_version\": %d, \"cuda_driver_version\": %d, \"timestamp\": "
             "\"%s\", "
             "\"communicators_count\": %d, ",
             version().c_str(), BOX_CUDA_VERSION, BOX_CUDA_VERSION, local_time("%F %T").c_str(), count) +
         "\"communicators\": [\n" + list + "],\n\"ras\": {\"collection_time_sec\": 0.001, \"timeouts_count\": 0}}\n";
}
static void serve_client(int fd) {
  FILE* lines = fdopen(fd, "r");
  char line[1024];
  bool json = false, more = true;
  while (more && fgets(line, sizeof line, lines)) {
    line[strcspn(line, "\r\n")] = 0;
    auto is = [&](const char* command) { return !strncasecmp(line, command, strlen(command)); };
    std::string answer = "OK\n";
    more = !is("status") && !is("verbose status");
    if (!more) answer = json ? status() : "NCCL version " + version() + "\nThe box models the JSON format only\n";
    else if (is("client protocol ")) answer = "SERVER PROTOCOL 2\n";
    else if (is("set format ")) json = !strcasecmp(line + 11, "json");
    else if (!is("timeout ")) answer = print("ERROR: Unknown command %s\n", line);
    for (size_t at = 0; at < answer.size();) {
      ssize_t sent = send(fd, answer.data() + at, answer.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) break;
      at += size_t(sent);
    }
  }
  fclose(lines);
}
void serve_ras() {
  static std::once_flag once;
  if (variable("NCCL_RAS_ENABLE", "1") != "0")
    std::call_once(once, [] {
      std::string where = variable("NCCL_RAS_ADDR", "localhost:28028"), host = where.substr(0, where.rfind(':'));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(uint16_t(atoi(where.substr(where.rfind(':') + 1).c_str())));
      if (inet_pton(AF_INET, host == "localhost" ? "127.0.0.1" : host.c_str(), &address.sin_addr) != 1) return;
      int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
      for (int option : {SO_REUSEADDR, SO_REUSEPORT}) setsockopt(fd, SOL_SOCKET, option, &on, sizeof on);
      bool listens = !bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) && !listen(fd, 64);
      info(kInit | kRas,
           listens ? "RAS client listening socket at %s" : "RAS failed to establish a client listening socket at %s",
           where.c_str());
      if (!listens) return void(close(fd));
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
