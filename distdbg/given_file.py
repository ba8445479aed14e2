"""Read a file that a person named as input: a limited length, and no wait for a FIFO that nobody writes to."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

#: Bytes. Job files, lists of hosts, templates and settings are shorter.
MOST = 1 << 20


def read_given(path: str | Path, most: int = MOST) -> bytes:
    """The whole content. Raises OSError; its strerror says why as one sentence."""
    if Path(path).is_fifo() and not str(path).startswith(("/dev/fd/", "/proc/")):  # `<(command)` ends, a FIFO may not
        raise OSError(errno.EINVAL, "it is a FIFO", str(path))
    with Path(path).open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):  # /dev/zero never ends, /dev/kmsg waits for the next message
            raise OSError(errno.EINVAL, "it is a device", str(path))
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is longer than {most >> 20} MiB", str(path))
    return data
