// NCCL (libnccl.so.2) over shared memory. An operation is an entry of its CUDA stream. It completes only when every
// rank of its communicator has arrived, so that a missing rank leaves the stream, and what waits for it, blocked.
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <numeric>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "comm.h"

namespace nccl {
using namespace box;

// ---- waiting for other ranks
static void set_error(ncclComm* c, ncclResult_t code, int peer) {
  warn_of(c, code, peer);
  c->me().error = code;
  c->state = code;
}
static bool is_dead(const Member& m) { return m.pid && !alive(m.pid); }
// What a rank notices while it waits: of one peer, or else of its neighbours in the ring.
static void look_at_peers(ncclComm* c, int peer) {
  for (int r = 0; r < c->n && (!c->connected || c->state == ncclSuccess); r++) {
    Member &other = c->member(r), &me = c->me();
    bool linked = peer < 0 ? r == c->next() || c->rank == (r + 1) % c->n : r == peer;
    bool dead = is_dead(other) && !other.left;
    if (dead && !c->connected) c->shared->broken = 1;  // a set-up uses TCP: a closed connection is noticed
    if (dead && c->connected && planted("peer-death-noticed")) return set_error(c, ncclRemoteError, r);
    for (Member* m : {&other, &me})
      if (linked && other.node != me.node && m->cut_ns && now_ns() - m->cut_ns > m->noticed_after_ns)
        return set_error(c, ncclRemoteError, r);
  }
}
static bool ended(ncclComm* c) { return c->aborted || error_of_context() || (!c->connected && c->shared->broken); }
void wake(std::atomic<uint32_t>& word) {
  word++;
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}
bool wait(ncclComm* c, std::atomic<uint32_t>& word, uint32_t seen, int peer) {
  timespec limit{0, 100000000};
  if (syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0) && errno == ETIMEDOUT) look_at_peers(c, peer);
  return !ended(c);
}
bool meet(ncclComm* c, Meeting& m) {
  uint32_t generation = m.generation;
  if (m.arrived.fetch_add(1) + 1 == uint32_t(c->real.size())) {
    m.arrived = 0;
    wake(m.generation);
  }
  while (m.generation == generation)
    if (!wait(c, m.generation, generation)) return false;
  return true;
}
static void hang(ncclComm* c, int peer = -1) {
  while (wait(c, c->me().bell, c->me().bell, peer)) {}
}

// ---- operations
constexpr std::chrono::milliseconds kWhile(100);
struct Operation {
  ncclComm* c;
  void* stream;
  Call call;
  std::vector<Transfer> transfers;  // of sends and receives, instead of `call`
  int error = 0;                    // planted: ncclResult_t
  bool cut = false;                 // planted: this node does not reach the others
};
static bool same_on_all_ranks(ncclComm* c, const Call& call) {
  auto values = [](const Signature& s) { return std::tie(s.op, s.type, s.redop, s.root, s.count); };
  int slot = c->collectives++ % 2;
  const Signature& mine = c->me().posted[slot] = {call.op, call.type, call.redop, call.root, call.count};
  if (!meet(c, c->shared->operations)) return false;
  for (int r : c->real) {
    if (values(c->member(r).posted[slot]) == values(mine)) continue;
    trace("nccl %s rank %d: %s differs from that of rank %d", c->name.c_str(), c->rank, kOpNames[call.op], r);
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
  if (o.error) return set_error(c, ncclResult_t(o.error), c->next()), hang(c);
  if (o.cut && !c->me().cut_ns) {
    c->me().noticed_after_ns = planted("network-cut")->number("after", 1 << 30) * 1000000000L;
    c->me().cut_ns = now_ns();
  }
  for (Transfer& t : o.transfers) {
    if (o.cut && is_far(t.peer)) return hang(c, t.peer);
    if (!computes(t.bytes)) t.bytes = 0;
  }
  if (!o.transfers.empty()) return move_transfers(c, std::move(o.transfers));
  for (int r = 0; r < c->n; r++)
    if (o.cut && is_far(r)) return hang(c);
  bool object = o.call.type == 1;  // bytes: torch sends pickled objects so, and reads them
  bool moves = object || computes(o.call.count * kTypeSizes[o.call.type]);
  if (same_on_all_ranks(c, o.call) && moves) move_collective(c, o.call);
}
static bool reduces(Op op) { return op == kAllReduce || op == kReduce || op == kReduceScatter; }
static const char* kernel_name(const Call& call) {  // mangled, as in profiles of NCCL 2.19 and later
  static const char* const types[] = {"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16"};
  static const char* const reductions[] = {"Sum", "Prod", "MinMax", "MinMax", "SumPostDiv"};
  std::string name = std::string("ncclDevKernel_") + (call.op < kCounted ? kOpNames[call.op] : "SendRecv");
  if (reduces(call.op))
    name += print("_%s_%s", call.redop < ncclNumOps ? reductions[call.redop] : "PreMulSum", types[call.type]);
  if (call.op < kCounted) name += "_RING_LL";
  static std::mutex m;
  static auto* names = new std::set<std::string>();  // the profiler keeps pointers to them
  std::lock_guard<std::mutex> lock(m);
  name = print("_Z%zu%s24ncclDevKernelArgsStorageILm4096EE", name.size(), name.c_str());
  return names->insert(name).first->c_str();
}
static void run(Operation o, Stream* s, uint64_t sequence, uint32_t correlation) {
  ncclComm* c = o.c;
  std::unique_lock<std::mutex> lock(c->m);
  while (c->done != sequence - 1 && !c->aborted && !error_of_context()) c->cv.wait_for(lock, kWhile);
  bool runs = !c->aborted;  // after an abort the file may be unmapped
  c->running += runs;
  lock.unlock();
  if (runs) run_and_report(s, correlation, {Activity::kKernel, kernel_name(o.call), 0, 0}, [&] { perform(o); });
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
  if (o.call.op < kCounted) c->me().launched[o.call.op]++;
  lock.unlock();
  Fault *error = planted("nccl-error", physical(c->device)), *cut = planted("network-cut", physical(c->device));
  if (error && error->due()) o.error = int(error->number("code", ncclRemoteError));
  o.cut = cut && ++cut->seen >= cut->number("at", 1);
  trace("nccl %s rank %d of %d: %s %lu count %zu type %d", c->name.c_str(), c->rank, c->n, kOpNames[o.call.op],
        (unsigned long)sequence, o.call.count, o.call.type);
  box::Call launch(211);  // cudaLaunchKernel
  submit(s, [=, correlation = launch.correlation] { run(o, s, sequence, correlation); }, true);
}
static ncclResult_t leave(ncclComm* c, const char* how) {
  if (std::exchange(c->has_memory, false)) give(c->device, settings().comm);
  if (!c->shared) return ncclSuccess;
  if (how) info(how, words_of(c));
  bool last = true;
  c->me().left = 1;
  for (int r : c->real) last &= c->member(r).left || is_dead(c->member(r));
  if (last) unlink((settings().folder + "/" + c->name).c_str());
  munmap(std::exchange(c->shared, nullptr), c->bytes);
  return ncclSuccess;
}

// ---- groups: what is called between start and end goes to the streams at the end
struct Group {
  int depth = 0;
  std::vector<Operation> operations;
};
static thread_local Group group;

API ncclResult_t ncclGroupStart() { return group.depth++, ncclSuccess; }
API ncclResult_t ncclGroupEnd() {
  if (!group.depth) return warn("group"), ncclInvalidUsage;
  if (--group.depth) return ncclSuccess;
  for (Operation& o : std::exchange(group.operations, {})) {
    Stream* s = stream_of(o.stream, o.c->device);  // 0: the default stream of the communicator's device
    if (!capture(s, [o](Stream* launched_on) { issue(o, launched_on); })) issue(o, s);
  }
  return ncclSuccess;
}
static ncclResult_t enqueue(ncclComm* c, void* stream, Call call) {
  if (c->state) return ncclResult_t(c->state.load());
  if (call.root < 0 || call.root >= c->n) return warn("root", words_of(c, &call, stream)), ncclInvalidArgument;
  if (reduces(call.op) && call.type > ncclBfloat16) return ncclInvalidArgument;  // numbers of 8 bits
  info("operation", words_of(c, &call, stream));
  if (call.redop >= ncclNumOps) {
    const Call& made = c->scales[size_t(call.redop - ncclNumOps)];
    memcpy(call.scale, made.scale, sizeof call.scale);
    call.scale_on_device = made.scale_on_device, call.redop = kPreMulSum;
  }
  Operation o{c, stream, call, {}};
  bool joined = false;  // the sends and receives of a group are one operation
  if (call.op == kSend || call.op == kRecv)
    o.transfers.push_back(
        {call.op == kSend, call.root, static_cast<char*>(call.recv), call.count * kTypeSizes[call.type]});
  for (Operation& other : group.operations)
    if (!joined && other.c == c && other.stream == stream && !other.transfers.empty() && !o.transfers.empty())
      other.transfers.push_back(o.transfers[0]), joined = true;
  ncclGroupStart();
  if (!joined) group.operations.push_back(std::move(o));
  return ncclGroupEnd();
}
using R = ncclResult_t;
using T = ncclDataType_t;
using C = ncclComm*;
using In = const void*;
using Stm = cudaStream_t;
// All operations: stubs.py has the functions of NCCL's interface, each with the order of its arguments.
API R box_nccl(int op, In send, void* recv, size_t n, T type, int redop, int root, C c, Stm s) {
  if (op == kSend) recv = const_cast<void*>(send);
  return enqueue(c, s, {Op(op), send, recv, n, type, redop, root});
}
API R ncclRedOpCreatePreMulSum(int* op, void* scalar, T t, ncclScalarResidence_t where, C c) {
  Call scale{};
  if (where == ncclScalarDevice) scale.scale_on_device = scalar;
  else memcpy(scale.scale, scalar, kTypeSizes[t]);
  c->scales.push_back(scale);
  return *op = ncclNumOps + int(c->scales.size()) - 1, ncclSuccess;
}

// ---- set-up of communicators
// Which members are processes: gpu_box_shadow.py writes `box:N:0,3,…` where not all are. Without it they are all.
static thread_local bool peer_is_absent = false;  // of the send or receive that this thread is in
API void gpuBoxPeerIsAbsent(int absent) { peer_is_absent = absent; }
static void read_members(ncclComm* c, const ncclConfig_t* config) {
  int at = 0, n = 0;
  const char* told = config ? config->netName : nullptr;
  if (!told || sscanf(told, "box:%d%n", &n, &at) != 1) return;
  if (c->parent) c->n = n, c->rank = c->key;
  if (c->n != n) {  // torch makes it for a send or receive of two ranks, with the configuration of their group
    if (peer_is_absent) c->real = {c->rank};
    return;
  }
  for (const char* word = told + at; *word; word += strcspn(word + 1, ",") + 1) c->real.push_back(atoi(word + 1));
}
static bool find_place(ncclComm* c) {  // of a split: the ranks of the parent exchange their colors and keys
  ncclComm* parent = c->parent;
  parent->me().color = c->color, parent->me().key = c->key;
  if (!meet(parent, parent->shared->setup)) return false;
  std::vector<std::pair<int, int>> members;  // (key, rank)
  for (int r : parent->real)
    if (c->color != kSplitNoColor && parent->member(r).color == c->color) members.push_back({parent->member(r).key, r});
  if (!meet(parent, parent->shared->setup)) return false;
  if (c->n) return true;  // as read_members() has read it
  std::sort(members.begin(), members.end());
  c->n = int(members.size());
  c->rank = int(std::find(members.begin(), members.end(), std::pair{c->key, parent->rank}) - members.begin());
  return true;
}
static bool map_shared(ncclComm* c) {
  auto bounded = [](size_t x, size_t least, size_t most) { return std::min(std::max(x, least), most) & ~size_t(4095); };
  if (c->real.empty()) c->real.resize(size_t(c->n)), std::iota(c->real.begin(), c->real.end(), 0);
  size_t n = c->real.size(), head = (sizeof(Shared) + size_t(c->n) * sizeof(Member) + 4095) & ~size_t(4095);
  c->chunk = bounded((16 << 20) / n, 64 << 10, 2 << 20);  // all stages: 16 MiB up to 256 ranks
  c->box = bounded((64 << 20) / (n * n), 8 << 10, 256 << 10);
  c->bytes = head + n * c->chunk + n * n * c->box;  // sparse: a box takes memory when it is used
  void* p = map_file(settings().folder + "/" + c->name, c->bytes);
  if (!p) return false;
  c->shared = static_cast<Shared*>(p);
  c->stages = static_cast<char*>(p) + head;
  c->boxes = c->stages + n * c->chunk;
  return true;
}
static ncclResult_t connect(ncclComm* c) {
  if (c->parent && !find_place(c)) return ncclInternalError;
  if (!c->n) return ncclSuccess;  // it is in no part of the split
  const std::string made = c->parent ? "split" : "init";
  info("network", words_of(c));
  info(made + "-start", words_of(c));
  if (!map_shared(c)) return warn("file", words_of(c)), ncclSystemError;
  Member& me = c->me();
  me.node = settings().node, me.device = c->device, me.physical = physical(c->device), me.state = ncclInProgress;
  c->shared->n = c->n, c->shared->id = c->id, me.pid = getpid();
  if (Fault* f = planted("comm-hang", me.physical); f && f->due()) return hang(c), ncclInternalError;
  if (Fault* f = planted("comm-error", me.physical); f && f->due()) {
    auto code = ncclResult_t(f->number("code", ncclSystemError));
    return warn_of(c, code, c->next()), code;
  }
  for (int step = 0; step < 2; step++) {  // all have arrived; all have their memory
    if (step && (!touch(c->device) || !(c->has_memory = take(c->device, settings().comm))))
      return warn("cuda", {{"error", "out of memory"}}), ncclUnhandledCudaError;
    if (meet(c, c->shared->setup)) continue;
    if (!c->aborted) warn_of(c, ncclRemoteError, c->next());
    return c->aborted ? ncclInternalError : ncclRemoteError;
  }
  info(made + "-complete", words_of(c));
  return ncclSuccess;
}
static ncclResult_t start(ncclComm** out, ncclComm* c) {  // always blocks, also where the configuration asks not to
  serve_ras();
  current_device() = c->device;
  ncclResult_t r = connect(c);
  c->state = r;
  if (c->shared) c->connected = !r, c->me().state = r, c->shared->broken = c->shared->broken || r;
  if (r) leave(c, nullptr);
  return *out = r || !c->n ? nullptr : c, r;
}
static ncclComm* new_comm(const char* function, const std::string& name, int n, int rank) {
  auto* c = new ncclComm();  // never freed: a stream may still have operations of an aborted one
  c->function = function, c->name = name, c->n = n, c->rank = rank, c->device = current_device();
  c->id = std::hash<std::string>()(name);
  return c;
}
static R init(const char* function, C* out, int n, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  tell_version(rank);
  ncclComm* c = new_comm(function, id.internal, n, rank);
  read_members(c, config);
  return n < 1 || rank < 0 || rank >= n ? (warn("rank", words_of(c)), ncclInvalidArgument) : start(out, c);
}
API R ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> count{0};
  *id = {};
  return snprintf(id->internal, sizeof id->internal, "comm-%lx-%d-%d", long(now_ns()), getpid(), count++), ncclSuccess;
}
API R ncclCommInitRankConfig(C* out, int n, ncclUniqueId id, int rank, const ncclConfig_t* config) {
  return init("ncclCommInitRankConfig", out, n, id, rank, config);
}
API R ncclCommInitRank(C* out, int n, ncclUniqueId id, int rank) {
  return init("ncclCommInitRank", out, n, id, rank, nullptr);
}
API R ncclCommSplit(C parent, int color, int key, C* out, const ncclConfig_t* config) {
  if (parent->state) return R(parent->state.load());
  ncclComm* c = new_comm("ncclCommSplit", parent->name + print(".%d-%d", parent->splits, color), 0, 0);
  c->parent = parent, c->device = parent->device, c->color = color, c->key = key, c->number = parent->splits++;
  if (color != kSplitNoColor) read_members(c, config);
  return start(out, c);
}
static void stop(ncclComm* c) {  // what runs ends unfinished, and what has not begun never will
  std::unique_lock<std::mutex> lock(c->m);
  c->aborted = true;
  if (c->shared) wake(c->me().bell);
  c->cv.notify_all();
  c->cv.wait(lock, [&] { return !c->running; });
}

// ---- the end of communicators
static R flush(ncclComm* c) {
  std::unique_lock<std::mutex> lock(c->m);
  while (c->done != c->issued && !c->aborted && !error_of_context()) c->cv.wait_for(lock, kWhile);
  return ncclSuccess;
}
API R ncclCommFinalize(C c) {
  if (c->state) return R(c->state.load());
  c->me().finalized = 1;
  return flush(c);
}
API R ncclCommDestroy(C c) { return c ? flush(c), stop(c), leave(c, "destroy-complete") : ncclSuccess; }
API R ncclCommAbort(C c) {
  if (!c) return ncclSuccess;
  info("abort-start", words_of(c));
  stop(c);
  if (c->shared) c->me().aborted = 1;
  return leave(c, "abort-complete");
}
API R ncclCommGetAsyncError(C c, R* e) { return *e = R(c->state.load()), ncclSuccess; }
API R ncclCommCount(C c, int* n) { return *n = c->n, ncclSuccess; }
API R ncclCommUserRank(C c, int* r) { return *r = c->rank, ncclSuccess; }
API const char* ncclGetLastError(C) { return last_warning(); }
API const char* ncclGetErrorString(R r) {
  return unsigned(r) < std::size(kNcclResults) ? kNcclResults[r] : "unknown result code";
}

}  // namespace nccl
