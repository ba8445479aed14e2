// What NCCL says of itself: the lines of its log (NCCL_DEBUG), whose texts are in tables.py, and the port of its RAS:
// ras.py is started for each client, and answers. Lines about rings, trees and channels are left out.
#include <arpa/inet.h>
#include <spawn.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <thread>

#include "comm.h"

namespace nccl {
using namespace box;

// ---- the log
enum Level { kNone, kVersion, kWarn, kInfo };
static void replace_all(std::string& text, const std::string& what, const std::string& value) {
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += value.size()) text.replace(at, what.size(), value);
}
struct Log {
  int level = kNone;
  unsigned subsystems = 0;
  std::string host = std::string(256, 0);
  FILE* file = stdout;
  Log() {
    const std::vector<const char*> levels = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
    for (size_t i = 0; i < levels.size(); i++)
      if (!strcasecmp(levels[i], variable("NCCL_DEBUG", "").c_str())) level = int(i);
    std::string list = variable("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV");
    std::istringstream words(list.substr(list[0] == '^'));
    for (std::string name; std::getline(words, name, ',');)
      for (auto& subsystem : kSubsystems)
        if (name == subsystem.name) subsystems |= subsystem.bits;
    if (list[0] == '^') subsystems = ~subsystems;
    gethostname(host.data(), 255);
    host = host.substr(0, host.find_first_of(std::string(".\0", 2)));
    std::string path = level > kVersion ? variable("NCCL_DEBUG_FILE", "") : "";
    replace_all(path, "%h", host);
    replace_all(path, "%p", std::to_string(getpid()));
    if (FILE* f = path.empty() ? nullptr : fopen(path.c_str(), "w")) setlinebuf(file = f);
  }
};
static const Log& log() {
  static const Log* made = new Log();
  return *made;
}
static void write_line(const std::string& line) {
  fputs((line + "\n").c_str(), log().file);
  fflush(log().file);
}
static std::string origin() {
  return print("%s:%d:%d [%d] ", log().host.c_str(), getpid(), gettid(), current_device());
}
static std::string fill(std::string text, const Words& words) {
  for (auto& [word, value] : words) replace_all(text, "{" + word + "}", value);
  return text;
}
void info(const std::string& line, const Words& words) {
  for (auto& known : kInfoLines)
    if (line == known.id && log().level >= kInfo && (log().subsystems & known.subsystems))
      write_line(origin() + "NCCL INFO " + fill(known.text, words));
}
static char last[1024];
const char* last_warning() { return last; }
void warn(const std::string& line, const Words& words) {
  static std::mutex m;
  std::lock_guard<std::mutex> lock(m);
  for (auto& known : kWarnLines) {
    if (line != known.id) continue;
    snprintf(last, sizeof last, "%s", fill(known.text, words).c_str());
    char when[32];
    time_t now = time(nullptr);
    tm local;
    strftime(when, sizeof when, "\n[%F %T] ", localtime_r(&now, &local));
    if (log().level >= kWarn) write_line(when + origin() + known.place + " NCCL WARN " + last);
  }
}

// ---- what stands in its lines
static std::string address_of(int node) { return print("10.0.%d.%d", (node + 1) / 256, (node + 1) % 256); }
static bool has_infiniband() { return variable("NCCL_IB_DISABLE", "0") == "0"; }
static void tell_version_once() {
  int cuda = BOX_CUDA_VERSION;
  std::string version = print("%s+cuda%d.%d", kNcclVersion, cuda / 1000, cuda / 10 % 100);
  Words words = {{"own", "eth0:" + address_of(settings().node) + "<0>"}, {"cuda", std::to_string(cuda)}};
  words["version"] = version;
  for (int d = 0; d < settings().devices; d++) words["hcas"] += print(" [%d]mlx5_%d:1/IB", d, d);
  for (const char* line : {"bootstrap", "driver", "version", has_infiniband() ? "ib" : "socket"}) info(line, words);
  if (log().level == kVersion || log().level == kWarn) write_line("NCCL version " + version);
}
void tell_version(int rank) {
  static std::once_flag once;
  if (log().level >= kInfo || !rank) std::call_once(once, tell_version_once);
}
Words words_of(const ncclComm* c, const Call* call, void* stream) {
  if (log().level < kWarn) return {};
  Words words = {{"network", has_infiniband() ? "IB" : "Socket"},
                 {"function", c->function},
                 {"comm", print("%p", (const void*)c)},
                 {"parent", print("%p", (const void*)c->parent)},
                 {"bus", print("%lx", (box::physical(c->device) + 1L) << 12)},
                 {"id", print("0x%lx", (unsigned long)c->id)}};
  auto put = [&words](const char* word, long number) { words[word] = std::to_string(number); };
  put("rank", c->rank), put("n", c->n), put("device", c->device), put("nvml", physical(c->device));
  put("number", c->number + 1), put("color", c->color), put("key", c->key), words["file"] = c->name;
  put("bytes", long(c->bytes)), put("errno", errno), words["error"] = strerror(errno);
  if (!call) return words;
  words["name"] = kOpNames[call->op];
  words["send"] = print("%p", call->send), words["recv"] = print("%p", call->recv), words["stream"] = print("%p", stream);
  words["issued"] = print("%lx", (unsigned long)c->issued);
  put("count", long(call->count)), put("type", call->type), put("op", call->redop), put("root", call->root);
  return words;
}
void warn_of(ncclComm* c, ncclResult_t code, int peer) {
  const Member& other = c->member(peer);
  Words words = {{"nvml", std::to_string(c->me().physical)}, {"error", "unspecified launch failure"}};
  words["peer"] = print("%s<%d>", address_of(other.node).c_str(), 40000 + other.pid % 20000);
  bool far = other.node != c->me().node && c->connected && has_infiniband();
  static const std::map<int, const char*> lines = {
      {ncclUnhandledCudaError, "cuda"}, {ncclSystemError, "system"}, {ncclInvalidUsage, "mismatch"}};
  auto line = lines.find(code);
  if (line != lines.end()) return warn(line->second, words);
  warn(code != ncclRemoteError ? "internal" : far ? "completion" : "closed", words);
}

// ---- RAS: each process listens, and the kernel chooses the one that answers
static void serve_client(int fd) {
  // In the background: what a child that was waited for has read counts as the rank's own I/O.
  std::string command = "exec 3<&0; " + variable("GPU_BOX_RAS", "true") + print(" %d <&3 3<&- &", BOX_CUDA_VERSION);
  const char* words[] = {"sh", "-c", command.c_str(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int to : {0, 1}) posix_spawn_file_actions_adddup2(&actions, fd, to);
  pid_t pid;
  if (!posix_spawn(&pid, "/bin/sh", &actions, nullptr, (char* const*)words, environ)) waitpid(pid, nullptr, 0);
  posix_spawn_file_actions_destroy(&actions);
  close(fd);
}
static void listen_for_clients() {
  std::string where = variable("NCCL_RAS_ADDR", "localhost:28028"), host = where.substr(0, where.rfind(':'));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(atoi(where.substr(where.rfind(':') + 1).c_str())));
  if (inet_pton(AF_INET, host == "localhost" ? "127.0.0.1" : host.c_str(), &address.sin_addr) != 1) return;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  for (int option : {SO_REUSEADDR, SO_REUSEPORT}) setsockopt(fd, SOL_SOCKET, option, &on, sizeof on);
  bool listens = !bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) && !listen(fd, 64);
  info("ras", {{"failed", listens ? "" : "failed to establish a "},
               {"address", print("127.0.0.1<%d>", ntohs(address.sin_port))}});
  if (!listens) return void(close(fd));
  std::thread([fd] {
    for (int client; (client = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;)
      std::thread(serve_client, client).detach();
  }).detach();
}
void serve_ras() {
  static std::once_flag once;
  if (variable("NCCL_RAS_ENABLE", "1") != "0") std::call_once(once, listen_for_clients);
}

}  // namespace nccl
