// The types and numbers of NVML that its readers use, written by hand from the public reference,
// docs.nvidia.com/deploy/nvml-api: "Device Structs", "Device Enumerators", "Event Types".
#pragma once
#include "tables.h"

namespace nvml {

using uint = unsigned;
using ull = unsigned long long;
using Handle = void*;  // nvmlDevice_t: 100 * device + MIG instance, both counted from 1; instance 0: the whole device
struct Memory { ull total, free, used; };                                         // nvmlMemory_t
struct Utilization { uint gpu, memory; };                                         // nvmlUtilization_t
// nvmlProcessInfo_v2_t; nvmlProcessInfo_v1_t ends after `used`
struct ProcessInfo { uint pid; ull used; uint gpu_instance, compute_instance; };
struct PciInfo { char legacy[16]; uint domain, bus, device, id, subsystem; char bus_id[32]; };  // nvmlPciInfo_t
struct EventData { Handle device; ull type, data; uint gpu_instance, compute_instance; };       // nvmlEventData_t

}  // namespace nvml
