"""Read the environment of a process as it is now, which /proc/PID/environ does not show: a rank of
torch.multiprocessing, of Ray or of a notebook sets RANK itself, by `os.environ`.

The pointer `environ` is a symbol of the program or of its C library; their files say where, in ELF's table of dynamic
symbols. The process is not stopped. Linux, 64 bits, little-endian; takes what py-spy takes, 1 ms, and where it is not
permitted nothing is known.
"""

from __future__ import annotations

import os
import re
import struct
from functools import lru_cache
from pathlib import Path

_LIBC = re.compile(r"/(?:libc\.so\.6|libc-[\d.]+\.so|ld-musl-\w+\.so\.1|libc\.musl-\w+\.so\.1)$")
_NAMES = (b"environ\0", b"__environ\0")
#: ELF: a section of dynamic symbols; files with addresses of their own, and those that are loaded anywhere
_DYNSYM, _EXEC, _DYN = 11, 2, 3
_MOST_VARIABLES = 10_000
_PAGE = 4096
_MOST_PAGES = 32


def live_environment(pid: int) -> dict[str, str] | None:
    """None where it cannot be read."""
    try:
        return _read(pid)
    except (OSError, struct.error, ValueError, IndexError):
        return None


def _read(pid: int) -> dict[str, str] | None:
    bases = _loaded(pid)
    program = str(Path(f"/proc/{pid}/exe").readlink())
    files = [program, *(name for name in bases if _LIBC.search(name))]  # a program may have a copy of its library's
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for name in files:
            if name in bases and (symbol := _symbol(f"/proc/{pid}/root{name}")) is not None:
                address, relocated = symbol
                pointer = _word(memory.fileno(), address + (bases[name] if relocated else 0))
                return _variables(memory.fileno(), pointer) if pointer else {}
    return None


def _loaded(pid: int) -> dict[str, int]:
    """file -> the address of its first byte."""
    found: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/"):
            found.setdefault(fields[5], int(fields[0].partition("-")[0], 16) - int(fields[2], 16))
    return found


def _symbol(path: str) -> tuple[int, bool] | None:
    status = os.stat(path)  # noqa: PTH116 -- an ELF file is cached by what it is
    return _symbol_in(path, status.st_dev, status.st_ino)


@lru_cache(maxsize=64)
def _symbol_in(path: str, _device: int, _inode: int) -> tuple[int, bool] | None:
    """The address of `environ` in an ELF file, and whether it counts from where the file is loaded; None without it."""
    with Path(path).open("rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01" or head[16] not in (_EXEC, _DYN):
            return None
        (start,) = struct.unpack_from("<Q", head, 40)
        size, count = struct.unpack_from("<HH", head, 58)
        file.seek(start)
        table = file.read(size * count)
        sections = [struct.unpack_from("<IIQQQQIIQQ", table, size * number) for number in range(count)]

        def content(section: tuple[int, ...]) -> bytes:
            file.seek(section[4])
            return file.read(section[5])

        for section in sections:
            if section[1] == _DYNSYM:
                found = _address(content(section), content(sections[section[6]]))
                return None if found is None else (found, head[16] == _DYN)
    return None


def _address(symbols: bytes, names: bytes) -> int | None:
    for name, _, _, section, value, _ in struct.iter_unpack("<IBBHQQ", symbols):
        if section and names.startswith(_NAMES, name):
            return int(value)
    return None


def _word(memory: int, address: int) -> int:
    return int(struct.unpack("<Q", os.pread(memory, 8, address))[0])


def _variables(memory: int, pointer: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for number in range(_MOST_VARIABLES):
        if not (address := _word(memory, pointer + 8 * number)):
            break
        name, equals, value = _text(memory, address).partition(b"=")
        if equals:
            found[os.fsdecode(name)] = os.fsdecode(value)
    return found


def _text(memory: int, address: int) -> bytes:
    """Up to its zero byte, by pages: what follows need not be mapped."""
    text = b""
    for _ in range(_MOST_PAGES):
        part, zero, _ = os.pread(memory, _PAGE - address % _PAGE, address).partition(b"\0")
        text += part
        if zero or not part:
            break
        address += len(part)
    return text
