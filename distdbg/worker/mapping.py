"""Map a file into memory without keeping a descriptor of it.

Python's mmap keeps one until 3.13: children of the rank would inherit it, and it would be closed by its number when the
object is freed, whatever file of the script has that number by then.
"""

from __future__ import annotations

import os

from distdbg.whole_file import open_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PROT_READ_AND_WRITE, _MAP_SHARED = 1 | 2, 1
_FAILED = 2 ** (8 * 8) - 1


def map_new_file(path: str, size: int) -> memoryview:
    """A new file of zeros, mapped until the process ends. Raises OSError, and then leaves no file."""
    descriptor = open_zeros(path, size)
    try:
        return _map(descriptor, size)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def open_zeros(path: str, size: int) -> int:
    """A descriptor of a new file without holes: on a full file system a store into a hole is a SIGBUS.

    Raises OSError, and then leaves no file.
    """
    descriptor = open_own(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    zeros = bytes(size)  # not fallocate, which some file systems do not have
    try:
        while zeros:
            zeros = zeros[os.write(descriptor, zeros) :]
    except OSError:
        os.close(descriptor)
        os.unlink(path)
        raise
    return descriptor


def _map(descriptor: int, size: int) -> memoryview:
    # ctypes itself takes longer to load, and a script may have meant another module by that name; torch loads both.
    import _ctypes

    def c_type(code: str) -> Any:
        return type(code, (_ctypes._SimpleCData,), {"_type_": code})

    def function(name: str, flags: int, result: str, arguments: str) -> Any:
        itself: Any = None  # dlopen(NULL): what is linked into this process
        attributes = {"_flags_": flags, "_restype_": c_type(result), "_argtypes_": tuple(map(c_type, arguments))}
        return type(name, (_ctypes.CFuncPtr,), attributes)(_ctypes.dlsym(_ctypes.dlopen(itself, 0), name))

    mmap = function("mmap", _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO, "L", "LLiiiL")
    address = mmap(0, size, _PROT_READ_AND_WRITE, _MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        error = _ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    view = function("PyMemoryView_FromMemory", _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_PYTHONAPI, "O", "LLi")
    memory: memoryview = view(address, size, 0x200)  # PyBUF_WRITE
    return memory
