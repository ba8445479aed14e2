// NCCL (libnccl.so.2) over shared memory. An operation is an entry of its CUDA stream. It completes only when every rank
// of its communicator has arrived, so that a missing rank leaves the stream, and what waits for it, blocked.
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "comm.h"

namespace nccl {
using namespace box;

const char* const kOpNames[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "AlltoAll", "Send", "Recv"};

// ---- waiting for other ranks
static void set_error(ncclComm* c, ncclResult_t code, int peer) {
  tell_error(c, code, peer);
  c->me().error = code;
  c->state = code;
}
// Looks for what a rank notices of its peers while it waits: of one, or else of its neighbours in the ring.
static void look_at_peers(ncclComm* c, int peer) {
  for (int r = 0; r < c->n && c->state == ncclSuccess; r++) {
    Member &other = c->member(r), &me = c->me();
    bool linked = peer < 0 ? (r + 1) % c->n == c->rank || (c->rank + 1) % c->n == r : r == peer;
    for (Member* m : {&other, &me})
      if (linked && other.node != me.node && m->cut_ns && now_ns() - m->cut_ns > m->noticed_after_ns)
        return set_error(c, ncclRemoteError, r);
    if (!other.left && !alive(other.pid) && planted("peer-death-noticed")) return set_error(c, ncclRemoteError, r);
  }
}
static void look_at_setup(ncclComm* c) {  // its connections are TCP: NCCL notices each that is closed
  for (int r = 0; r < c->n; r++)
    if (c->member(r).pid && !alive(c->member(r).pid)) c->shared->broken = 1;
}
static bool ended(ncclComm* c) { return c->aborted || error_of_context() || (!c->connected && c->shared->broken); }
void wake(std::atomic<uint32_t>& word) {
  word++;
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}
bool wait(ncclComm* c, std::atomic<uint32_t>& word, uint32_t seen, int peer) {
  timespec limit{0, 100000000};
  bool late = syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0) && errno == ETIMEDOUT;
  if (late && !c->connected) look_at_setup(c);
  if (late && c->connected) look_at_peers(c, peer);
  return !ended(c);
}
bool meet(ncclComm* c, Meeting& m) {
  uint32_t generation = m.generation;
  if (m.arrived.fetch_add(1) + 1 == uint32_t(c->n)) {
    m.arrived = 0;
    wake(m.generation);
    return !ended(c);
  }
  while (m.generation == generation)
    if (!wait(c, m.generation, generation)) return false;
  return true;
}
static void hang(ncclComm* c, int peer = -1) {
  while (wait(c, c->me().bell, c->me().bell, peer)) {}
}

// ---- operations
struct Operation {
  ncclComm* c;
  void* stream;
  Call call;
  std::vector<Transfer> transfers;  // of sends and receives, instead of `call`
  int error = 0;                    // planted: ncclResult_t
  bool cut = false;                 // planted: this node does not reach the others
};
static bool same_on_all_ranks(ncclComm* c, const Call& call) {
  int slot = c->collectives++ % 2;
  Signature mine{call.op, call.type, call.redop, call.root, call.count};
  c->me().posted[slot] = mine;
  if (!meet(c, c->shared->operations)) return false;
  for (int r = 0; r < c->n; r++) {
    const Signature& other = c->member(r).posted[slot];
    if (std::tie(other.op, other.type, other.redop, other.root, other.count) ==
        std::tie(mine.op, mine.type, mine.redop, mine.root, mine.count))
      continue;
    trace("nccl %s rank %d: %s differs from rank %d's %s", c->name.c_str(), c->rank, kOpNames[mine.op], r, kOpNames[other.op]);
    Fault* mode = planted("nccl-mismatch");
    if (mode && mode->text("mode") == "error") set_error(c, ncclInvalidUsage, r);
    hang(c);
    return false;
  }
  return true;
}
static void perform(Operation& o) {
  ncclComm* c = o.c;
  auto is_far = [&](int r) { return c->member(r).node != c->me().node; };
  if (o.error) return set_error(c, ncclResult_t(o.error), (c->rank + 1) % c->n), hang(c);
  if (o.cut && !c->me().cut_ns) {
    c->me().noticed_after_ns = planted("network-cut")->number("after", 1 << 30) * 1000000000L;
    c->me().cut_ns = now_ns();
  }
  for (Transfer& t : o.transfers) {
    if (o.cut && is_far(t.peer)) return hang(c, t.peer);
    if (!settings().values) t.bytes = 0;
  }
  for (int r = 0; r < c->n && o.transfers.empty(); r++)
    if (o.cut && is_far(r)) return hang(c);
  if (!o.transfers.empty())
    move_transfers(c, std::move(o.transfers));
  else if (same_on_all_ranks(c, o.call) && settings().values)
    move_collective(c, o.call);
}
static const char* kernel_name(const Operation& o) {  // as in profiles of NCCL 2.19 and later
  static const char* const types[] = {"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};
  static const char* const reductions[] = {"Sum", "Prod", "MinMax", "MinMax", "SumPostDiv"};
  std::string name = "ncclDevKernel_SendRecv", op = kOpNames[o.call.op], mangled;
  bool reduces = o.call.op == kAllReduce || o.call.op == kReduce || o.call.op == kReduceScatter;
  if (o.call.op < kCounted) name = "ncclDevKernel_" + op + "_RING_LL";
  if (reduces)
    name = "ncclDevKernel_" + op + "_" + (o.call.redop < ncclNumOps ? reductions[o.call.redop] : "PreMulSum") + "_" +
           types[o.call.type] + "_RING_LL";
  static std::mutex m;
  static auto* names = new std::set<std::string>();  // the profiler keeps pointers to them
  std::lock_guard<std::mutex> lock(m);
  return names->insert("_Z" + std::to_string(name.size()) + name + "24ncclDevKernelArgsStorageILm4096EE").first->c_str();
}
static void run(Operation o, Stream* s, uint64_t sequence, uint32_t correlation) {
  ncclComm* c = o.c;
  std::unique_lock<std::mutex> lock(c->m);
  while (c->done != sequence - 1 && !c->aborted && !error_of_context()) c->cv.wait_for(lock, std::chrono::milliseconds(100));
  bool runs = !c->aborted;  // after an abort the file may be unmapped
  c->running += runs;
  lock.unlock();
  if (runs) run_and_report(s, correlation, {Activity::kKernel, kernel_name(o), 0, 0}, [&] { perform(o); });
  lock.lock();
  c->running -= runs;
  c->done = std::max(c->done, sequence);
  c->cv.notify_all();
}
static void issue(Operation o, Stream* s) {
  ncclComm* c = o.c;
  std::unique_lock<std::mutex> lock(c->m);
  if (c->aborted) return;
  uint64_t sequence = ++c->issued;
  if (sequence == 1) tell_channels(c);
  if (o.call.op < kCounted) c->me().launched[o.call.op]++;
  lock.unlock();
  Fault *error = planted("nccl-error", physical(c->device)), *cut = planted("network-cut", physical(c->device));
  if (error && error->due()) o.error = int(error->number("code", ncclRemoteError));
  o.cut = cut && ++cut->seen >= cut->number("at", 1);
  trace("nccl %s rank %d of %d: %s %lu count %zu type %d", c->name.c_str(), c->rank, c->n, kOpNames[o.call.op],
        (unsigned long)sequence, o.call.count, o.call.type);
  box::Call launch(211);
  uint32_t correlation = launch.correlation;
  submit(s, [=] { run(o, s, sequence, correlation); }, true);
}

// ---- groups: what is called between start and end goes to the streams at the end
struct Group {
  int depth = 0;
  std::vector<Operation> operations;
  std::vector<std::pair<ncclComm**, std::thread>> setups;
};
static thread_local Group group;

API ncclResult_t ncclGroupStart() { return group.depth++, ncclSuccess; }
API ncclResult_t ncclGroupEnd();
static ncclResult_t ready(ncclComm* c, const char* function) {
  if (!c) return warn("misc/argcheck.cc:32", "%s : comm argument is NULL", function), ncclInvalidArgument;
  int state = c->state;
  if (state == ncclInProgress)
    warn("init.cc:412", "Attempt to use communicator before the previous operation returned ncclSuccess");
  return state == ncclInProgress ? ncclInvalidArgument : ncclResult_t(state);
}
static ncclResult_t enqueue(ncclComm* c, void* stream, Call call) {
  const char* name = kOpNames[call.op];
  if (ncclResult_t r = ready(c, name)) return r;
  size_t scale = size_t(call.redop - ncclNumOps);
  if (call.root < 0 || call.root >= c->n)
    return warn("misc/argcheck.cc:195", "%s : invalid root %d (root should be in the 0..%d range)", name, call.root, c->n),
           ncclInvalidArgument;
  if (unsigned(call.type) >= ncclNumTypes)
    return warn("misc/argcheck.cc:199", "%s : invalid type %d", name, call.type), ncclInvalidArgument;
  if (call.redop < 0 || (call.redop >= ncclNumOps && scale >= c->scales.size()))
    return warn("misc/argcheck.cc:212", "%s : reduction operation %d unknown to this communicator", name, call.redop),
           ncclInvalidArgument;
  info(kColl, "%s: opCount %lx sendbuff %p recvbuff %p count %zu datatype %d op %d root %d comm %p [nranks=%d] stream %p",
       name, (unsigned long)c->issued, call.send, call.recv, call.count, call.type, call.redop, call.root, (void*)c, c->n, stream);
  if (call.redop >= ncclNumOps) {
    memcpy(call.scale, c->scales[scale].scale, sizeof call.scale);
    call.scale_on_device = c->scales[scale].scale_on_device;
    call.redop = kPreMulSum;
  }
  Operation o{c, stream, call, {}};
  if (call.op == kSend || call.op == kRecv)
    o.transfers.push_back({call.op == kSend, call.root, static_cast<char*>(call.recv), call.count * kTypeSizes[call.type]});
  bool joined = false;  // the sends and receives of a group are one operation
  for (Operation& other : group.operations)
    if (!joined && other.c == c && other.stream == stream && !other.transfers.empty() && !o.transfers.empty())
      other.transfers.push_back(o.transfers[0]), joined = true;
  ncclGroupStart();
  if (!joined) group.operations.push_back(std::move(o));
  return ncclGroupEnd();
}
API ncclResult_t ncclGroupEnd() {
  if (!group.depth) return warn("group.cc:681", "ncclGroupEnd: not in a group call."), ncclInvalidUsage;
  if (--group.depth) return ncclSuccess;
  int result = ncclSuccess;
  for (auto& [out, thread] : std::exchange(group.setups, {})) {
    thread.join();
    if (!result) result = (*out)->state;
    if ((*out)->state || !(*out)->n) *out = nullptr;
  }
  for (Operation& o : std::exchange(group.operations, {})) {
    Stream* s = stream_of(o.stream, o.c->device);  // 0: the default stream of the communicator's device
    if (!capture(s, [o](Stream* launched_on) { issue(o, launched_on); })) issue(o, s);
  }
  return ncclResult_t(result);
}
using In = const void*;
API ncclResult_t ncclAllReduce(In s, void* r, size_t n, ncclDataType_t t, int op, ncclComm* c, void* stream) {
  return enqueue(c, stream, {kAllReduce, s, r, n, t, op, 0});
}
API ncclResult_t ncclReduce(In s, void* r, size_t n, ncclDataType_t t, int op, int root, ncclComm* c, void* stream) {
  return enqueue(c, stream, {kReduce, s, r, n, t, op, root});
}
API ncclResult_t ncclBroadcast(In s, void* r, size_t n, ncclDataType_t t, int root, ncclComm* c, void* stream) {
  return enqueue(c, stream, {kBroadcast, s, r, n, t, 0, root});
}
API ncclResult_t ncclBcast(void* p, size_t n, ncclDataType_t t, int root, ncclComm* c, void* stream) {
  return enqueue(c, stream, {kBroadcast, p, p, n, t, 0, root});
}
API ncclResult_t ncclAllGather(In s, void* r, size_t n, ncclDataType_t t, ncclComm* c, void* stream) {
  return enqueue(c, stream, {kAllGather, s, r, n, t, 0, 0});
}
API ncclResult_t ncclReduceScatter(In s, void* r, size_t n, ncclDataType_t t, int op, ncclComm* c, void* stream) {
  return enqueue(c, stream, {kReduceScatter, s, r, n, t, op, 0});
}
API ncclResult_t ncclAlltoAll(In s, void* r, size_t n, ncclDataType_t t, ncclComm* c, void* stream) {
  return enqueue(c, stream, {kAllToAll, s, r, n, t, 0, 0});
}
API ncclResult_t ncclSend(In s, size_t n, ncclDataType_t t, int peer, ncclComm* c, void* stream) {
  return enqueue(c, stream, {kSend, nullptr, const_cast<void*>(s), n, t, 0, peer});
}
API ncclResult_t ncclRecv(void* r, size_t n, ncclDataType_t t, int peer, ncclComm* c, void* stream) {
  return enqueue(c, stream, {kRecv, nullptr, r, n, t, 0, peer});
}
API ncclResult_t ncclRedOpCreatePreMulSum(int* op, void* scalar, ncclDataType_t t, ncclScalarResidence_t where, ncclComm* c) {
  Call scale{};
  memcpy(scale.scale, scalar, where == ncclScalarDevice ? 0 : kTypeSizes[t]);
  if (where == ncclScalarDevice) scale.scale_on_device = scalar;
  c->scales.push_back(scale);
  return *op = ncclNumOps + int(c->scales.size()) - 1, ncclSuccess;
}

// ---- set-up of communicators
static bool find_place(ncclComm* c) {  // of a split: all ranks of the parent exchange their colors and keys
  Member& me = c->parent->me();
  me.color = c->color, me.key = c->key;
  if (!meet(c->parent, c->parent->shared->setup)) return false;
  std::vector<std::pair<int, int>> members;  // (key, rank)
  for (int r = 0; r < c->parent->n; r++)
    if (c->parent->member(r).color == c->color) members.push_back({c->parent->member(r).key, r});
  if (!meet(c->parent, c->parent->shared->setup)) return false;
  std::sort(members.begin(), members.end());
  c->n = int(members.size());
  c->rank = int(std::find(members.begin(), members.end(), std::pair{c->key, c->parent->rank}) - members.begin());
  return true;
}
static bool map_file(ncclComm* c) {
  size_t n = size_t(c->n), head = (sizeof(Shared) + n * sizeof(Member) + 4095) & ~size_t(4095);
  auto bounded = [](size_t x, size_t least, size_t most) { return std::min(std::max(x, least), most) & ~size_t(4095); };
  c->chunk = bounded((16 << 20) / n, 64 << 10, 2 << 20);  // all stages: 16 MiB up to 256 ranks
  c->box = bounded((64 << 20) / (n * n), 8 << 10, 256 << 10);
  c->bytes = head + n * c->chunk + n * n * c->box;  // sparse: a box takes memory when it is used
  int fd = open((settings().folder + "/" + c->name).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  void* p = fd < 0 || ftruncate(fd, off_t(c->bytes)) ? MAP_FAILED
            : mmap(nullptr, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (fd >= 0) close(fd);
  if (p == MAP_FAILED) return false;
  c->shared = static_cast<Shared*>(p);
  c->stages = static_cast<char*>(p) + head;
  c->boxes = c->stages + n * c->chunk;
  return true;
}
static ncclResult_t connect(ncclComm* c) {
  if (!c->n && !find_place(c)) return ncclInternalError;
  if (c->parent && c->color == kSplitNoColor) return ncclSuccess;
  tell_setup(c, false);
  if (!map_file(c)) return warn("misc/shmutils.cc:87", "Error: failed to extend %s", c->name.c_str()), ncclSystemError;
  Member& me = c->me();
  me.node = settings().node, me.device = c->device, me.physical = physical(c->device), me.state = ncclInProgress;
  c->shared->n = c->n, c->shared->id = c->id;
  me.pid = getpid();
  if (Fault* f = planted("comm-hang", me.physical); f && f->due()) return hang(c), ncclInternalError;
  if (Fault* f = planted("comm-error", me.physical); f && f->due()) {
    auto code = ncclResult_t(f->number("code", ncclSystemError));
    return tell_error(c, code, (c->rank + 1) % c->n), code;
  }
  for (int step = 0; step < 2; step++) {  // all have arrived; all have their memory
    if (step && (!touch(c->device) || !(c->has_memory = take(c->device, settings().comm))))
      return warn("transport.cc:132", "Cuda failure 2 'out of memory'"), ncclUnhandledCudaError;
    if (meet(c, c->shared->setup)) continue;
    if (!c->aborted) tell_error(c, ncclRemoteError, (c->rank + 1) % c->n);
    return c->aborted ? ncclInternalError : ncclRemoteError;
  }
  tell_topology(c);
  tell_setup(c, true);
  return ncclSuccess;
}
static void set_up(ncclComm* c) {
  current_device() = c->device;
  ncclResult_t r = connect(c);
  if (c->shared) {
    c->connected = !r;
    c->me().state = r;
    if (r) c->shared->broken = 1;
  }
  c->state = r;
}
static ncclResult_t start(ncclComm** out, ncclComm* c) {
  serve_ras();
  *out = c;
  if (c->blocking && !group.depth) {
    set_up(c);
    if (c->state || !c->n) *out = nullptr;
    return ncclResult_t(c->state.load());
  }
  std::thread thread(set_up, c);
  if (!c->blocking) return thread.detach(), ncclInProgress;
  group.setups.emplace_back(out, std::move(thread));
  return ncclSuccess;
}
static ncclComm* new_comm(const char* function, const std::string& name, int n, int rank, const ncclConfig_t* config) {
  auto* c = new ncclComm();  // never freed: an operation of an aborted communicator may still be in a stream
  c->function = function, c->name = name, c->n = n, c->rank = rank, c->device = current_device();
  c->blocking = !config || config->blocking != 0;
  c->id = std::hash<std::string>()(name);
  return c;
}
static ncclResult_t init(const char* function, ncclComm** out, int n, const ncclUniqueId& id, int rank, ncclConfig_t* config) {
  tell_version(rank);
  if (n < 1 || rank < 0 || rank >= n)
    return warn("init.cc:2182", "Invalid rank requested : %d/%d", rank, n), ncclInvalidArgument;
  return start(out, new_comm(function, id.internal, n, rank, config));
}
API ncclResult_t ncclGetVersion(int* v) { return *v = BOX_NCCL_VERSION, ncclSuccess; }
API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> count{0};
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "comm-%lx-%d-%d", long(now_ns()), getpid(), count++);
  return ncclSuccess;
}
API ncclResult_t ncclCommInitRankConfig(ncclComm** out, int n, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return init("ncclCommInitRankConfig", out, n, id, rank, config);
}
API ncclResult_t ncclCommInitRank(ncclComm** out, int n, ncclUniqueId id, int rank) {
  return init("ncclCommInitRank", out, n, id, rank, nullptr);
}
API ncclResult_t ncclCommInitRankScalable(ncclComm** out, int n, int rank, int, ncclUniqueId* ids, ncclConfig_t* config) {
  return init("ncclCommInitRankScalable", out, n, ids[0], rank, config);
}
API ncclResult_t ncclCommInitAll(ncclComm** out, int n, const int* devices) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  int before = current_device();
  ncclGroupStart();
  for (int i = 0; i < n; i++) {
    current_device() = devices ? devices[i] : i;
    init("ncclCommInitAll", &out[i], n, id, i, nullptr);
  }
  current_device() = before;
  return ncclGroupEnd();
}
static ncclResult_t child(const char* function, ncclComm* parent, const std::string& suffix, int n, int rank, int color, int key,
                          ncclComm** out, ncclConfig_t* config) {
  std::string name = parent->name + "." + std::to_string(parent->children++) + suffix;
  ncclComm* c = new_comm(function, name, n, rank, config);
  if (!config) c->blocking = parent->blocking;
  c->parent = parent, c->color = color, c->key = key, c->device = parent->device;
  ncclResult_t r = start(out, c);
  if (!n && color == kSplitNoColor && !c->blocking) *out = nullptr;
  return r;
}
API ncclResult_t ncclCommSplit(ncclComm* parent, int color, int key, ncclComm** out, ncclConfig_t* config) {
  if (ncclResult_t r = ready(parent, "CommSplit")) return r;
  return child("ncclCommSplit", parent, "-" + std::to_string(color), 0, 0, color, key, out, config);
}
static void stop(ncclComm* c) {  // operations end unfinished; those that have not begun never will
  std::unique_lock<std::mutex> lock(c->m);
  c->aborted = true;
  if (c->shared) wake(c->me().bell), wake(c->shared->operations.generation), wake(c->shared->setup.generation);
  c->cv.wait(lock, [&] { return !c->running; });
}
API ncclResult_t ncclCommShrink(ncclComm* parent, int* excluded, int count, ncclComm** out, ncclConfig_t* config, int flags) {
  if (flags & 1) stop(parent);  // NCCL_SHRINK_ABORT
  std::vector<int> left;
  for (int r = 0; r < parent->n; r++)
    if (std::find(excluded, excluded + count, r) == excluded + count) left.push_back(r);
  int rank = int(std::find(left.begin(), left.end(), parent->rank) - left.begin());
  return child("ncclCommShrink", parent, "-shrink", int(left.size()), rank, 0, parent->rank, out, config);
}

// ---- the end of communicators
static void flush(ncclComm* c) {
  std::unique_lock<std::mutex> lock(c->m);
  while (c->done != c->issued && !c->aborted && !error_of_context()) c->cv.wait_for(lock, std::chrono::milliseconds(100));
}
static ncclResult_t leave(ncclComm* c, const char* how) {
  if (c->has_memory) give(c->device, settings().comm);
  if (!c->shared) return ncclSuccess;
  bool last = true;
  c->me().left = 1;
  for (int r = 0; r < c->n; r++) last &= c->member(r).left || (c->member(r).pid && !alive(c->member(r).pid));
  if (last) unlink((settings().folder + "/" + c->name).c_str());
  munmap(c->shared, c->bytes);
  c->shared = nullptr;
  info(kInit, "comm %p rank %d nranks %d cudaDev %d busId %lx - %s COMPLETE", (void*)c, c->rank, c->n, c->device, c->bus_id(), how);
  return ncclSuccess;
}
API ncclResult_t ncclCommFinalize(ncclComm* c) {
  if (ncclResult_t r = ready(c, "CommFinalize")) return r;
  c->me().finalized = 1;
  return flush(c), ncclSuccess;
}
API ncclResult_t ncclCommDestroy(ncclComm* c) {
  if (!c) return ncclSuccess;
  flush(c);
  stop(c);
  return leave(c, "Destroy");
}
API ncclResult_t ncclCommAbort(ncclComm* c) {
  if (!c) return ncclSuccess;
  info(kInit, "comm %p rank %d nRanks %d cudaDev %d busId %lx - Abort START", (void*)c, c->rank, c->n, c->device, c->bus_id());
  stop(c);
  while (c->state == ncclInProgress) usleep(1000);  // its set-up still uses the file
  if (c->shared) c->me().aborted = 1;
  return leave(c, "Abort");
}
API ncclResult_t ncclCommRevoke(ncclComm* c, int) { return stop(c), ncclSuccess; }
API ncclResult_t ncclCommGetAsyncError(ncclComm* c, ncclResult_t* e) { return *e = ncclResult_t(c->state.load()), ncclSuccess; }
API ncclResult_t ncclCommCount(ncclComm* c, int* n) { return *n = c->n, ncclSuccess; }
API ncclResult_t ncclCommCuDevice(ncclComm* c, int* d) { return *d = c->device, ncclSuccess; }
API ncclResult_t ncclCommUserRank(ncclComm* c, int* r) { return *r = c->rank, ncclSuccess; }
API const char* ncclGetLastError(ncclComm*) { return last_warning(); }
API const char* ncclGetErrorString(ncclResult_t r) {
  static const char* const texts[] = {
      "no error", "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
      "internal error - please report this issue to the NCCL developers",
      "invalid argument (run with NCCL_DEBUG=WARN for details)", "invalid usage (run with NCCL_DEBUG=WARN for details)",
      "remote process exited or there was a network error", "NCCL operation in progress"};
  return unsigned(r) < 8 ? texts[r] : "unknown result code";
}

// ---- memory
API ncclResult_t ncclMemAlloc(void** p, size_t n) {
  return (*p = allocate(current_device(), n, Kind::kDevice)) ? ncclSuccess : ncclUnhandledCudaError;
}
API ncclResult_t ncclMemFree(void* p) { return !p || release(p) ? ncclSuccess : ncclUnhandledCudaError; }
API ncclResult_t ncclCommRegister(ncclComm*, void* p, size_t, void** handle) { return *handle = p, ncclSuccess; }
API ncclResult_t ncclCommWindowRegister(ncclComm*, void* p, size_t, void** window, int) { return *window = p, ncclSuccess; }
API ncclResult_t ncclCommMemStats(ncclComm* c, int what, uint64_t* value) {
  *value = what == 1 ? !c->has_memory : what == 2 ? 0 : uint64_t(settings().comm);  // 1: is it suspended; 2: persistent
  return ncclSuccess;
}
API ncclResult_t ncclCommSuspend(ncclComm* c, int) {
  if (std::exchange(c->has_memory, false)) give(c->device, settings().comm);
  return ncclSuccess;
}
API ncclResult_t ncclCommResume(ncclComm* c) {
  if (!c->has_memory) c->has_memory = take(c->device, settings().comm);
  return c->has_memory ? ncclSuccess : ncclUnhandledCudaError;
}

}  // namespace nccl
