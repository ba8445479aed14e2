"""Start torch's debug server in a rank: a Unix socket, served by a C++ thread that needs no GIL.

It answers with the flight recorder's entries, also while the rank hangs in C code that holds the GIL. It sleeps until a
request arrives. Source: torch.distributed.debug, and torch/csrc/distributed/c10d/control_plane.
"""

from __future__ import annotations

import contextlib
import os
import sys

from distdbg.worker.descriptors import OwnDescriptor, find_listening_socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


#: The server's socket: a forked child has no thread that answers there.
_socket: OwnDescriptor | None = None


def serve(path: str) -> bool:
    """Open the server at `path`, in a 0700 folder; False where this torch has none. May raise what torch raises."""
    global _socket  # noqa: PLW0603
    c10d = sys.modules.get("torch._C._distributed_c10d")
    server_class = getattr(c10d, "_WorkerServer", None)
    if server_class is None:
        return False
    if _socket is not None:  # of an earlier default process group of this script
        return True
    with contextlib.suppress(FileNotFoundError):  # of this rank in an earlier attempt, which has ended
        os.unlink(path)
    with _Quiet():
        server = server_class(path, -1)
    # Never to be destroyed: its end waits for the thread, and a forked child has none to wait for.
    from _ctypes import Py_INCREF

    Py_INCREF(server)
    _socket = find_listening_socket(path)
    return True


def close() -> None:
    """In a forked child: close the server's socket, or a reader would wait there after the rank has ended."""
    if _socket is not None:
        _socket.close()


class _Quiet:
    """The server prints a line on standard error, which is the script's: meanwhile only errors are printed."""

    def __enter__(self) -> None:
        from ctypes import CDLL, c_int  # torch has loaded both

        self._level: Any = None
        try:
            self._level = c_int.in_dll(CDLL("libc10.so"), "FLAGS_caffe2_log_level")
        except (OSError, ValueError):  # another torch: then it announces itself
            return
        self._was = self._level.value
        self._level.value = max(2, self._was)  # 2: errors, as c10 counts

    def __exit__(self, *_: object) -> None:
        if self._level is not None:
            self._level.value = self._was
