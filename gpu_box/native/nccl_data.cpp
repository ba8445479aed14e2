// Reductions of NCCL, and how collectives and point-to-point transfers move data through the file of a communicator.
#include <cmath>
#include <type_traits>

#include "comm.h"

namespace nccl {

const size_t kTypeSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

// ---- numbers of 16 bits: reduced as float, as NCCL accumulates them
#ifdef __aarch64__
using Half = __fp16;
#else
using Half = _Float16;  // GCC 12 and later
#endif
static float of_half(Half h) { return h; }
static Half to_half(float f) { return Half(f); }
static float of_bfloat(uint16_t h) {
  float f;
  uint32_t bits = uint32_t(h) << 16;
  return memcpy(&f, &bits, 4), f;
}
static uint16_t to_bfloat(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return std::isnan(f) ? 0x7fc0 : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
template <class T> static T same(T x) { return x; }

// ---- out = the reduction of from[0 .. n), each `offset` bytes further on
template <class T, class A, A (*load)(T), T (*store)(A)>
static void fold(void* out, char* const* from, size_t offset, int n, size_t count, int op, const void* scale) {
  using Wide = typename std::conditional_t<std::is_integral_v<A>, std::make_unsigned<A>, std::common_type<A>>::type;
  A factor = 1, sum[1024];
  if (T raw; scale) factor = load((memcpy(&raw, scale, sizeof raw), raw));
  auto run = [&](auto combine) {
    for (size_t at = 0; at < count; at += 1024) {
      size_t m = std::min<size_t>(1024, count - at);
      for (int r = 0; r < n; r++) {
        const T* in = reinterpret_cast<const T*>(from[r] + offset) + at;
        for (size_t i = 0; i < m; i++) {
          A x = scale ? A(load(in[i]) * factor) : load(in[i]);
          sum[i] = r ? combine(sum[i], x) : x;
        }
      }
      for (size_t i = 0; i < m; i++) static_cast<T*>(out)[at + i] = store(op == ncclAvg ? A(sum[i] / A(n)) : sum[i]);
    }
  };
  if (op == ncclProd) return run([](A a, A b) { return A(Wide(a) * Wide(b)); });
  if (op == ncclMax) return run([](A a, A b) { return b > a ? b : a; });
  if (op == ncclMin) return run([](A a, A b) { return b < a ? b : a; });
  run([](A a, A b) { return A(Wide(a) + Wide(b)); });
}
template <class T> constexpr auto fold_plain = fold<T, T, same<T>, same<T>>;
static void reduce(void* out, const std::vector<char*>& from, size_t offset, size_t count, const Call& call) {
  static constexpr decltype(&fold<float, float, same<float>, same<float>>) kFolds[] = {
      fold_plain<int8_t>, fold_plain<uint8_t>, fold_plain<int32_t>, fold_plain<uint32_t>, fold_plain<int64_t>,
      fold_plain<uint64_t>, fold<Half, float, of_half, to_half>, fold_plain<float>, fold_plain<double>,
      fold<uint16_t, float, of_bfloat, to_bfloat>};  // torch refuses to reduce numbers of 8 bits
  const void* scale = call.scale_on_device ? call.scale_on_device : call.scale;
  kFolds[call.type](out, from.data(), offset, int(from.size()), count, call.redop,
                    call.redop == kPreMulSum ? scale : nullptr);
}

// ---- a collective: every rank copies a piece into its stage, all meet, every rank takes what it needs, all meet
void move_collective(ncclComm* c, const Call& call) {
  size_t size = kTypeSizes[call.type], n = size_t(c->n), me = size_t(c->rank), step = c->chunk / size;
  std::vector<char*> stage(n);
  for (size_t r = 0; r < n; r++) stage[r] = c->stages + c->place(int(r)) * c->chunk;
  const size_t real = c->real.size();
  const bool is_root = stage[me] == stage[size_t(call.root)] || call.op != kBroadcast;
  const char* in = static_cast<const char*>(call.send);
  char* out = static_cast<char*>(call.recv);
  bool each = call.op == kReduceScatter || call.op == kAlltoAll;  // `count` is of one rank, and each rank has n parts
  if (each) step = std::max<size_t>(step / n, 1);
  for (size_t at = 0; at < call.count; at += step) {
    size_t m = std::min(step, call.count - at), part = (m + real - 1) / real, own = c->place(c->rank);
    auto first = [&](size_t r) { return std::min(r * part, m); };
    if (each)
      for (size_t r = 0; r < n; r++) memcpy(stage[me] + r * m * size, in + (r * call.count + at) * size, m * size);
    else if (is_root) memcpy(stage[me], in + at * size, m * size);
    if (!meet(c, c->shared->operations)) return;
    switch (call.op) {
      case kAllReduce:  // each rank reduces its part in its own stage, then all collect the parts
        reduce(stage[me] + first(own) * size, stage, first(own) * size, first(own + 1) - first(own), call);
        if (!meet(c, c->shared->operations)) return;
        for (size_t i = 0; i < real; i++)
          memcpy(out + (at + first(i)) * size, c->stages + i * c->chunk + first(i) * size,
                 (first(i + 1) - first(i)) * size);
        break;
      case kReduce:
        if (int(me) == call.root) reduce(out + at * size, stage, 0, m, call);
        break;
      case kBroadcast: memcpy(out + at * size, stage[size_t(call.root)], m * size); break;
      case kAllGather:
        for (size_t r = 0; r < n; r++) memcpy(out + (r * call.count + at) * size, stage[r], m * size);
        break;
      case kReduceScatter: reduce(out + at * size, stage, me * m * size, m, call); break;
      default:
        for (size_t r = 0; r < n; r++) memcpy(out + (r * call.count + at) * size, stage[r] + me * m * size, m * size);
    }
    if (!meet(c, c->shared->operations)) return;
  }
}

// ---- sends and receives of a group: each moves on as far as its box allows
void move_transfers(ncclComm* c, std::vector<Transfer> all) {
  const size_t room = c->box - sizeof(Box), real = c->real.size();
  all.erase(std::remove_if(all.begin(), all.end(), [c](auto& t) { return !c->is_real(t.peer); }), all.end());
  for (size_t left = all.size(); left;) {
    uint32_t seen = c->me().bell;
    bool moved = false;
    int waits_for = -1;
    std::vector<bool> busy(size_t(c->n) * 2);  // transfers of a direction between two ranks: one after the other
    for (Transfer& t : all) {
      int from = t.send ? c->rank : t.peer, to = t.send ? t.peer : c->rank;
      auto& box = *reinterpret_cast<Box*>(c->boxes + (c->place(from) * real + c->place(to)) * c->box);
      if (t.done || busy[size_t(t.peer) * 2 + t.send]) continue;
      busy[size_t(t.peer) * 2 + t.send] = true;
      waits_for = t.peer;
      if (bool(box.full) == t.send) continue;
      if (t.send) box.size = uint32_t(std::min(room, t.bytes - t.at));
      size_t piece = std::min<size_t>(box.size, t.bytes - t.at);
      if (piece) memcpy(t.send ? box.data : t.data + t.at, t.send ? t.data + t.at : box.data, piece);
      t.at += piece;
      box.full = t.send;
      wake(c->member(t.peer).bell);
      moved = true;
      if ((t.done = t.at >= t.bytes)) left--;
    }
    if (!moved && !wait(c, c->me().bell, seen, waits_for)) return;
  }
}

}  // namespace nccl
