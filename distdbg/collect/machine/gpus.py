"""Read the state of GPUs by NVML. A value that cannot be read is left out with the reason; no call raises.

NVML asks the driver in this process, without a CUDA context; a driver that hangs makes the call hang, too. Names and
units are NVML's (https://docs.nvidia.com/deploy/nvml-api): memory in bytes, temperature in Celsius, power in watts.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from distdbg.protocol.agent_events import NEEDS_RESET, OFF_THE_BUS

_LIBRARY = "libnvidia-ml.so.1"
_PROC = Path("/proc/driver/nvidia/gpus")
_Value = TypeVar("_Value")

#: NVML's return codes in words.
_BECAUSE = {
    1: "NVML is not initialised",
    3: "this device does not support it",
    4: "no permission",
    9: "the NVIDIA driver is not loaded",
    12: f"no {_LIBRARY}",
    13: "this driver has no such call",
    15: OFF_THE_BUS,
    16: NEEDS_RESET,
    18: "the driver and its library are of different versions: reboot, or reload the driver",
}
#: What changes while a job runs.
FIGURES = ("memory_total", "memory_used", "utilisation", "temperature", "power", "throttle", "ecc_uncorrected",
           "processes")  # fmt: skip
#: Bits of nvmlClocksEventReasons that mean a device runs slower than it could.
THROTTLE_REASONS = {
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "power brake",
    0x200: "board limit",
    0x400: "reliability",
}


@dataclass(frozen=True)
class Instance:
    """One MIG instance."""

    uuid: str
    name: str | None = None
    memory_total: int | None = None


@dataclass(frozen=True)
class GpuProcess:
    pid: int
    memory_used: int | None


@dataclass(frozen=True)
class GpuState:
    """One device at one moment. None where it could not be read; `unknown` says of each such field why."""

    index: int
    uuid: str = ""
    name: str | None = None
    bus_id: str | None = None
    instances: tuple[Instance, ...] = ()
    memory_total: int | None = None
    memory_used: int | None = None
    utilisation: int | None = None
    temperature: int | None = None
    power: float | None = None
    #: reasons as in THROTTLE_REASONS; empty where it runs at full speed
    throttle: tuple[str, ...] | None = None
    #: ECC errors since the driver was loaded
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    #: NVLinks that are up
    nvlinks: int | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)


class Nvml:
    """`with Nvml() as nvml: nvml.states()`. Where NVML cannot be used, `because` says why and there are no devices."""

    def __init__(self) -> None:
        self.because = ""
        self._nvml: ModuleType | None = None
        self._faults: Any = None
        #: UUIDs by index and by the address of NVML's handle: a device that is lost cannot be asked for its own
        self._uuids: dict[int, str] = {}
        self._watched: dict[int | None, str] = {}

    def __enter__(self) -> Nvml:
        try:
            ctypes.CDLL(_LIBRARY)  # much cheaper than importing pynvml to learn that there is no library
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
        except Exception as error:
            self.because = _because(error)
        return self

    def __exit__(self, *_: object) -> None:
        if self._nvml is not None:
            _attempt(self._nvml.nvmlShutdown)
            self._nvml = None

    def count(self) -> int:
        """0 where it cannot be read; `because` then says why."""
        if self._nvml is None:
            return 0
        number, why = _attempt(self._nvml.nvmlDeviceGetCount)
        self.because = self.because or why
        return number or 0

    def states(self) -> tuple[GpuState, ...]:
        """All devices, those that cannot be reached, too."""
        return tuple(self._state(index, None) for index in range(self.count()))

    def devices(self) -> tuple[GpuState, ...]:
        """Which devices there are, with index, UUID and MIG instances; nothing else is read."""
        return tuple(self._state(index, ()) for index in range(self.count()))

    def figures(self) -> tuple[GpuState, ...]:
        """What changes while a job runs, of all devices: some ms each."""
        return tuple(self._state(index, FIGURES) for index in range(self.count()))

    def watch_faults(self) -> str:
        """Keep Xids of these devices for `fault` from now on. Returns the reason where that is not possible."""
        nvml = self._nvml
        if nvml is None:
            return self.because
        self._faults, why = _attempt(nvml.nvmlEventSetCreate)
        for index in range(self.count()) if self._faults is not None else ():
            handle, because = _attempt(partial(nvml.nvmlDeviceGetHandleByIndex, index))
            if handle is not None:
                call = partial(nvml.nvmlDeviceRegisterEvents, handle, nvml.nvmlEventTypeXidCriticalError, self._faults)
                because = _attempt(call)[1]
                uuid = _text(_attempt(partial(nvml.nvmlDeviceGetUUID, handle))[0]) or ""
                self._uuids[index] = self._watched[_address(handle)] = uuid
            why = why or because
        return why

    def fault(self, seconds: float) -> tuple[str, int] | None:
        """Wait for the next Xid: the device's UUID and its number. None where none came."""
        if self._nvml is None or self._faults is None:
            time.sleep(seconds)
            return None
        nvml, begun = self._nvml, time.monotonic()
        event, _ = _attempt(lambda: nvml.nvmlEventSetWait_v2(self._faults, max(1, int(1000 * seconds))))
        if event is None:
            time.sleep(max(0.0, seconds - (time.monotonic() - begun)))  # one that fails at once is not asked again
            return None
        uuid = self._watched.get(_address(event.device)) or _text(
            _attempt(lambda: nvml.nvmlDeviceGetUUID(event.device))[0]
        )
        return uuid or "", int(event.eventData)

    def _state(self, index: int, names: Collection[str] | None) -> GpuState:
        """`names` are the fields to read beside those that name the device; None for all."""
        nvml = self._nvml
        assert nvml is not None
        handle, why = _attempt(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
        if handle is None:
            return GpuState(index, self._uuids.get(index, ""), unknown={"device": why})
        readings = {
            "uuid": lambda: _text(nvml.nvmlDeviceGetUUID(handle)),
            "instances": lambda: _instances(nvml, handle),
        }
        found: dict[str, Any] = {}
        unknown: dict[str, str] = {}
        more = {n: call for n, call in _readings(nvml, handle).items() if names is None or n in names}
        for name, call in (readings | more).items():
            value, why = _attempt(call)
            if value is None:
                unknown[name] = why
            else:
                found[name] = value
        return GpuState(index, **found, unknown=unknown)


def _readings(nvml: ModuleType, handle: object) -> dict[str, Callable[[], object]]:
    """Each field of GpuState with the call that gives it."""
    volatile = nvml.NVML_VOLATILE_ECC
    return {
        "name": lambda: _text(nvml.nvmlDeviceGetName(handle)),
        "bus_id": lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId),
        "memory_total": lambda: _memory(nvml, handle)[0],
        "memory_used": lambda: _memory(nvml, handle)[1],
        "utilisation": lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        "temperature": lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        "power": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "throttle": lambda: _throttle(nvml, handle),
        "ecc_corrected": lambda: nvml.nvmlDeviceGetTotalEccErrors(
            handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, volatile
        ),
        "ecc_uncorrected": lambda: nvml.nvmlDeviceGetTotalEccErrors(
            handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, volatile
        ),
        "processes": lambda: tuple(
            GpuProcess(p.pid, p.usedGpuMemory) for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        ),
        "nvlinks": lambda: _nvlinks(nvml, handle),
    }


def _memory(nvml: ModuleType, handle: object) -> tuple[int, int]:
    """Return (total, used) in bytes, both without what the driver reserves for itself, as CUDA reports them.

    The first version of the call counts the reserved part as used (615 MiB of an H200). Drivers before 510 have no
    other.
    """
    try:
        info = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        return int(info.total - info.reserved), int(info.used)
    except Exception:  # neither the library nor the driver is known: the first version reports its own error
        info = nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(info.total), int(info.used)


def _throttle(nvml: ModuleType, handle: object) -> tuple[str, ...]:
    """Under the name of newer drivers, then under that of older ones."""
    calls = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    bits: int | None = None
    failure: Exception | None = None
    for call in (getattr(nvml, name, None) for name in calls):
        if call is not None and bits is None:
            try:
                bits = int(call(handle))
            except nvml.NVMLError as error:
                failure = error
    if bits is None:
        raise failure or LookupError("nvidia-ml-py has no such call")
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


def _nvlinks(nvml: ModuleType, handle: object) -> int:
    """The first link is asked aloud: where it is not supported, none is. A later one that is not there is not up."""
    first = nvml.nvmlDeviceGetNvLinkState(handle, 0)
    later = (
        _attempt(functools.partial(nvml.nvmlDeviceGetNvLinkState, handle, link))[0]
        for link in range(1, nvml.NVML_NVLINK_MAX_LINKS)
    )
    return sum(map(bool, (first, *later)))


def _instances(nvml: ModuleType, handle: object) -> tuple[Instance, ...]:
    """Empty where MIG is off or unknown to the device."""
    mode, _ = _attempt(lambda: nvml.nvmlDeviceGetMigMode(handle))
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return ()
    slots = (_instance(nvml, handle, slot) for slot in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)))
    return tuple(instance for instance in slots if instance)


def _instance(nvml: ModuleType, handle: object, slot: int) -> Instance | None:
    """None for a slot without an instance."""
    instance, _ = _attempt(lambda: nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot))
    uuid, _ = _attempt(lambda: _text(nvml.nvmlDeviceGetUUID(instance)))
    if instance is None or not uuid:
        return None
    name, _ = _attempt(lambda: _text(nvml.nvmlDeviceGetName(instance)))
    memory, _ = _attempt(lambda: _memory(nvml, instance)[0])
    return Instance(uuid, name, memory)


def _attempt(call: Callable[[], _Value]) -> tuple[_Value | None, str]:
    """(value, "") or (None, why not). Everything is caught: a broken driver breaks in ways that no list has."""
    try:
        return call(), ""
    except Exception as error:
        return None, _because(error)


def _because(error: Exception) -> str:
    code = getattr(error, "value", None)
    if isinstance(error, ImportError):
        return "nvidia-ml-py is not installed"
    if isinstance(error, OSError):
        return _BECAUSE[12]
    return _BECAUSE.get(code, str(error)) if isinstance(code, int) else str(error) or type(error).__name__


def _address(handle: Any) -> int | None:  # noqa: ANN401 -- a pointer of ctypes
    """The address in NVML's handle; None where it is no pointer."""
    address, _ = _attempt(lambda: ctypes.cast(handle, ctypes.c_void_p).value)
    return address


def _text(value: object) -> str | None:
    """Old releases of nvidia-ml-py give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else None if value is None else str(value)


def devices(proc: Path = _PROC) -> tuple[GpuState, ...]:
    """The devices that can be used, from NVML, else from the driver's own files; none where there is no driver."""
    with Nvml() as nvml:
        found = nvml.devices()
        if not nvml.because:
            return tuple(device for device in found if "device" not in device.unknown)
    return _from_proc(proc)


def _from_proc(folder: Path) -> tuple[GpuState, ...]:
    """Read GPUs from /proc, for containers that lack NVML. The files' order is that of bus ids, as NVML's indices
    are."""
    found: list[GpuState] = []
    try:
        for index, path in enumerate(sorted(folder.iterdir())):
            lines = (line.partition(":") for line in (path / "information").read_text().splitlines())
            said = {key.strip(): value.strip() for key, _, value in lines}
            found.append(GpuState(index, said.get("GPU UUID", ""), said.get("Model"), path.name))
    except OSError:
        return ()
    return tuple(found)
