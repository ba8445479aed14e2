"""GPUs as NVML shows them. Without a library or a driver there are none, and that is an answer."""

from __future__ import annotations

import contextlib


def visible_devices() -> tuple[str, ...]:
    """The machine's devices as CUDA_VISIBLE_DEVICES would name them: indices, or MIG ids where MIG is on."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return ()
    try:
        return _devices()
    except Exception:
        return ()
    finally:
        pynvml.nvmlShutdown()


def _devices() -> tuple[str, ...]:
    import pynvml

    found: list[str] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        found += _mig_ids(handle) or [str(index)]
    return tuple(found)


def _mig_ids(handle: object) -> list[str]:
    import pynvml

    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
        if current != pynvml.NVML_DEVICE_MIG_ENABLE:
            return []
        count = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except pynvml.NVMLError:
        return []
    ids: list[str] = []
    for index in range(count):
        with contextlib.suppress(pynvml.NVMLError):  # a slot without an instance
            ids.append(str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))))
    return ids
