// Communicators of NCCL: what nccl.cpp, nccl_data.cpp and nccl_voice.cpp share.
#pragma once
#include <algorithm>
#include <cstring>

#include "box.h"
#include "nccl_api.h"

namespace nccl {

constexpr int kCounted = 5;      // RAS counts the operations up to kAllReduce
constexpr int kPreMulSum = 100;  // instead of a number of ncclRedOpCreatePreMulSum: those differ between ranks
extern const size_t kTypeSizes[];

struct Call {
  Op op;
  const void* send;
  void* recv;
  size_t count;
  int type, redop, root;  // root: the peer of kSend and kRecv
  char scale[8] = {};     // of kPreMulSum
  const void* scale_on_device = nullptr;
};
struct Transfer {
  bool send;
  int peer;
  char* data;
  size_t bytes, at = 0;
  bool done = false;
};

// ---- the file of a communicator in GPU_BOX_DIR: Shared, its members, a stage for each real rank, a box for each pair
struct Signature {  // what must be equal on all ranks
  int op, type, redop, root;
  size_t count;
};
struct Meeting {
  std::atomic<uint32_t> arrived, generation;
};
struct Member {
  std::atomic<int> pid, finalized, aborted, left;
  std::atomic<int> state, error;  // ncclResult_t of its set-up, and of GetAsyncError
  int node, device, physical, color, key;
  std::atomic<uint64_t> launched[kCounted];
  std::atomic<int64_t> cut_ns;  // when its node was cut off; 0: it is not
  int64_t noticed_after_ns;     // the time after which the other side of a connection notices that
  std::atomic<uint32_t> bell;   // changes when a box from or to this rank changes
  Signature posted[2];          // of collective i at i % 2: a rank is never two collectives ahead of another one
};
static_assert(sizeof(Member) == 160, "ras.py reads it");
struct Shared {
  Meeting setup, operations;
  std::atomic<int> n, broken;  // broken: the set-up of a member failed
  std::atomic<uint64_t> id;    // the commId of NCCL's log and the hash of RAS
  Member members[];
};
struct Box {
  std::atomic<uint32_t> full;
  uint32_t size;
  char data[];
};

}  // namespace nccl

struct ncclComm {
  std::string name, function;  // of its file; by which function it was made
  int rank, n, device;         // device: logical
  bool has_memory = false;
  ncclComm* parent = nullptr;
  int color = 0, key = 0, number = 0;  // of a child: number among the children of its parent
  int splits = 0;
  uint64_t id = 0;
  nccl::Shared* shared = nullptr;
  char *stages = nullptr, *boxes = nullptr;
  size_t chunk = 0, box = 0, bytes = 0;  // of a stage, of a box, of the file
  std::vector<int> real;                 // members that are processes, in order; the others do as the first of them does
  std::atomic<bool> aborted{false}, connected{false};
  std::atomic<int> state{ncclSuccess};  // what GetAsyncError returns
  std::mutex m;
  std::condition_variable cv;
  uint64_t issued = 0, done = 0;  // operations run in order of issue, also on several streams
  int running = 0;
  unsigned collectives = 0;        // that have begun
  std::vector<nccl::Call> scales;  // of ncclRedOpCreatePreMulSum

  nccl::Member& member(int r) const { return shared->members[r]; }
  nccl::Member& me() const { return member(rank); }
  int next() const { return (rank + 1) % n; }  // in the ring
  size_t place(int r) const {  // of a member among the real ones: of its stage, and its boxes
    auto at = std::lower_bound(real.begin(), real.end(), r);
    return at == real.end() || *at != r ? 0 : size_t(at - real.begin());
  }
  bool is_real(int r) const { return real[place(r)] == r; }
};

namespace nccl {

// nccl.cpp. Both return false when the communicator was aborted, or its set-up failed.
bool meet(ncclComm* c, Meeting& m);
bool wait(ncclComm* c, std::atomic<uint32_t>& word, uint32_t seen, int peer = -1);  // until it changes, or a while
void wake(std::atomic<uint32_t>& word);
// nccl_data.cpp
void move_collective(ncclComm* c, const Call& call);
void move_transfers(ncclComm* c, std::vector<Transfer> all);
// nccl_voice.cpp: lines of tables.py, with what stands there in braces
using Words = std::map<std::string, std::string>;
void info(const std::string& line, const Words& words);
void warn(const std::string& line, const Words& words = {});
const char* last_warning();
Words words_of(const ncclComm* c, const Call* call = nullptr, void* stream = nullptr);
void tell_version(int rank);
void warn_of(ncclComm* c, ncclResult_t code, int peer);
void serve_ras();  // once per process

}  // namespace nccl
