// What NCCL says of itself: NCCL_DEBUG output, and RAS, which reports all communicators of a job to its clients. The
// forms are those of NCCL 2.29.7: github.com/NVIDIA/nccl, src/debug.cc, src/init.cc, src/ras/client_support.cc. Lines
// about rings, trees and channels are left out.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <thread>

#include "comm.h"

namespace nccl {
using namespace box;

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
    const std::vector<const char*> levels = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
    const std::map<std::string, unsigned> names = {
        {"INIT", kInit}, {"COLL", kColl}, {"NET", kNet}, {"BOOTSTRAP", kBootstrap}, {"RAS", kRas}, {"ALL", ~0u}};
    for (size_t i = 0; i < levels.size(); i++)
      if (!strcasecmp(levels[i], variable("NCCL_DEBUG", "").c_str())) level = int(i);
    std::string list = variable("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV"), path;
    std::istringstream words(list.substr(list[0] == '^'));
    for (std::string name; std::getline(words, name, ',');)
      if (auto found = names.find(name); found != names.end()) subsystems |= found->second;
    if (list[0] == '^') subsystems = ~subsystems;
    gethostname(host.data(), 255);
    host = host.substr(0, host.find_first_of(std::string(".\0", 2)));
    std::string pattern = level > kVersion ? variable("NCCL_DEBUG_FILE", "") : "";
    for (size_t i = 0; i < pattern.size(); i++) {
      bool escaped = pattern[i] == '%' && i + 1 < pattern.size();
      char ch = pattern[i += escaped];
      path += escaped && ch == 'h' ? host : escaped && ch == 'p' ? std::to_string(getpid()) : std::string(1, ch);
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
void info(unsigned subsystems, const std::string& text) {
  if (log().level >= kInfo && (log().subsystems & subsystems)) write_line(origin() + "NCCL INFO " + text);
}
static char last[1024];
const char* last_warning() { return last; }
void warn(const char* place, const std::string& text) {
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
static void tell_version_once() {
  std::string own = "eth0:" + address_of(settings().node) + "<0>", devices;
  int cuda = BOX_CUDA_VERSION;
  std::string text = print("NCCL version %s+cuda%d.%d", version().c_str(), cuda / 1000, cuda / 10 % 100);
  info(kBootstrap, "Bootstrap: Using " + own);
  info(kInit, print("cudaDriverVersion %d", cuda));
  info(~0u, text);
  if (log().level == kVersion || log().level == kWarn) write_line(text);
  for (int d = 0; d < settings().devices; d++) devices += print(" [%d]mlx5_%d:1/IB", d, d);
  if (has_infiniband()) info(kInit | kNet, "NET/IB : Using" + devices + " [RO]; OOB " + own);
  else info(kInit | kNet, "NET/Socket : Using [0]" + own);
}
void tell_version(int rank) {
  static std::once_flag once;
  if (log().level >= kInfo || !rank) std::call_once(once, tell_version_once);
}
void tell(ncclComm* c, const char* what) {
  info(kInit, print("comm %p rank %d nranks %d cudaDev %d busId %lx - %s", (void*)c, c->rank, c->n, c->device,
                    c->bus_id(), what));
}
void tell_setup(ncclComm* c, const char* what) {
  std::string made = c->parent ? print("parent %p color %d key %d", (void*)c->parent, c->color, c->key)
                               : print("commId 0x%lx", (unsigned long)c->id);
  bool start = !strcmp(what, "START");
  if (start) info(kInit, has_infiniband() ? "Using network IB" : "Using network Socket");
  std::string who = start && !c->parent ? print("[Rank %d] ", c->rank) : "";
  info(kInit, who + c->function + print(" comm %p rank %d nranks %d cudaDev %d nvmlDev %d busId %lx %s - Init %s",
                                        (void*)c, c->rank, c->n, c->device, physical(c->device), c->bus_id(),
                                        made.c_str(), what));
}
void tell_error(ncclComm* c, ncclResult_t code, int peer) {
  const Member& other = c->member(peer);
  std::string at = print("%s<%d>", address_of(other.node).c_str(), 40000 + other.pid % 20000);
  if (code == ncclUnhandledCudaError) return warn("enqueue.cc:1600", "Cuda failure 'unspecified launch failure'");
  if (code == ncclSystemError)
    return warn("os/linux.cc:289", "ncclOsSocketProgressOpt: Call to recv from " + at + " failed : Connection timed "
                "out");
  if (code == ncclInvalidUsage)
    return warn("transport/net_socket.cc:569", "NET/Socket : peer " + at + " message truncated : receiving 1048576 "
                "bytes instead of 524288. If you believe your socket network is in a healthy state, there may be a "
                "mismatch in collective sizes or environment settings (e.g. NCCL_PROTO, NCCL_ALGO) between ranks");
  if (code != ncclRemoteError) return warn("transport/net_socket.cc:270", "NET/Socket : socket progress error");
  if (other.node == c->me().node || !c->connected || !has_infiniband())
    return warn("misc/socket.cc:36", "socketProgress: Connection closed by remote peer " + at);
  warn("transport/net_ib/p2p.cc:651", print("NET/IB: Got completion from peer %s with status=IBV_WC_RETRY_EXC_ERR(12) "
       "opcode=IBV_WC_SEND(0) vendor_err=129  hca mlx5_%d", at.c_str(), c->me().physical));
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
  std::string counts, text = print(R"({"rank": %d, "host": "%s", "pid": %d, "cuda_dev": %d, )", rank,
                                   address_of(m.node).c_str(), m.pid.load(), m.device);
  text += print(R"("nvml_dev": %d, "status": {)", m.physical);
  int64_t since = dead_since(m.pid);
  if (missing)
    return text + print(R"("unresponsive": %s, "considered_dead": %s}})", flag(since),
                        flag(since && now_ns() - since > 60000000000));
  for (int i = 0; i < kCounted; i++)
    counts += print(R"(%s"%s": %lu)", i ? ", " : "", kOpNames[i], (unsigned long)m.launched[i]);
  return text + print(R"("init_state": %d, "async_error": %d, "finalize_called": %s, "destroy_flag": false, )",
                      m.state.load(), m.error.load(), flag(m.finalized)) +
         print(R"("abort_flag": %s}, "collective_counts": {%s}})", flag(m.aborted), counts.c_str());
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
  return print(R"({"hash": "0x%lx", "secondary_hash": "0x%lx:0x%lx", "size": %d, "ranks_count": %d, )", id, id >> 16,
               id >> 32, s.n.load(), counts[0]) +
         print(R"("missing_ranks_count": %d, "ranks": [)", counts[1]) + lists[0] + "],\n\"missing_ranks\": [" +
         lists[1] + "]}";
}
static std::string status() {
  std::string list;
  int count = 0;
  std::error_code gone;  // the folder, or a file in it
  for (const auto& entry : std::filesystem::directory_iterator(settings().folder, gone)) {
    bool is_communicator = entry.path().filename().string().rfind("comm-", 0) == 0;
    size_t size = is_communicator ? entry.file_size(gone) : 0;
    int fd = is_communicator ? open(entry.path().c_str(), O_RDONLY | O_CLOEXEC) : -1;
    void* p = fd < 0 || gone || !size ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (p == MAP_FAILED) continue;
    std::string one = communicator_in_json(*static_cast<const Shared*>(p));
    if (!one.empty()) list += (count++ ? ",\n" : "") + one;
    munmap(p, size);
  }
  return print(R"({"nccl_version": "%s", "cuda_runtime_version": %d, "cuda_driver_version": %d, "timestamp": "%s", )",
               version().c_str(), BOX_CUDA_VERSION, BOX_CUDA_VERSION, local_time("%F %T").c_str()) +
         print(R"("communicators_count": %d, "communicators": [)", count) + list +
         "],\n\"ras\": {\"collection_time_sec\": 0.001, \"timeouts_count\": 0}}\n";
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
    ssize_t sent = 1;
    for (size_t at = 0; at < answer.size() && sent > 0; at += size_t(std::max<ssize_t>(sent, 0)))
      sent = send(fd, answer.data() + at, answer.size() - at, MSG_NOSIGNAL);
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
      std::string failed = listens ? "" : "failed to establish a ";
      where = print("127.0.0.1<%d>", ntohs(address.sin_port));
      info(kInit | kRas, "RAS " + failed + "client listening socket at " + where);
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
