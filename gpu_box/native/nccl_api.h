// The types of NCCL's interface. Source: NCCL user guide, page api/types.html, by name:
// docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html
#pragma once
#include <cstddef>

#include "tables.h"

struct ncclComm;
using cudaStream_t = void*;     // docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html: opaque
struct ncclUniqueId {           // ncclUniqueId: NCCL_UNIQUE_ID_BYTES opaque bytes
  char internal[128];
};
struct ncclConfig_t {           // ncclConfig_t: as far as it is read here
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char* netName;
};
enum ncclDataType_t {           // ncclDataType_t
  ncclInt8, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat16, ncclFloat32, ncclFloat64,
  ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2, ncclNumTypes
};
enum ncclRedOp_t { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps };  // ncclRedOp_t
enum ncclScalarResidence_t { ncclScalarDevice, ncclScalarHostImmediate };       // ncclScalarResidence_t
constexpr int kSplitNoColor = -1;                                               // api/comms.html, ncclCommSplit
