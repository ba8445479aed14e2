"""Open a log as blocks of whole lines: plain or packed files and standard input, in UTF-8 or UTF-16, in one pass."""

from __future__ import annotations

import bz2
import codecs
import gzip
import importlib
import lzma
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from distdbg.rundir import open_regular

#: The name by which standard input is given and cited.
STDIN = Path("-")
_BLOCK = 1 << 20
#: A line that is longer is cut into lines of this size.
_LONGEST = 4 << 20
#: Packers by what their files begin with.
PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class LogText:
    """Iterates over a log's blocks. Afterwards `why_cut` says why the rest could not be read, and `form` how it was
    packed or encoded. `bytes_read` are those of the file, packed as they are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.form: list[str] = []
        self.why_cut = ""
        self._stream: _Peeked | None = None

    @property
    def bytes_read(self) -> int:
        return self._stream.bytes_read if self._stream is not None else 0

    def __iter__(self) -> Iterator[bytes]:
        self.form, self.why_cut = [], ""
        try:
            with _opened(self.path) as raw:
                yield from _whole_lines(self._decoded(self._unpacked(raw)))
        except (OSError, EOFError, lzma.LZMAError, ValueError, subprocess.SubprocessError) as error:
            self.why_cut = getattr(error, "strerror", None) or str(error) or type(error).__name__

    def _unpacked(self, raw: IO[bytes]) -> Iterator[bytes]:
        stream = self._stream = _Peeked(raw)
        name = next((name for magic, name in PACKED.items() if stream.head.startswith(magic)), "")
        if name:
            self.form.append(name)
        if name == "zstd":
            yield from _zstd(stream)
            return
        opened: Any = stream
        if name:
            openers: dict[str, Any] = {"gzip": gzip.open, "xz": lzma.open, "bzip2": bz2.open}
            opened = openers[name](stream)
        read = getattr(opened, "read1", opened.read)  # what is there, before an error says that the rest is not
        while block := read(_BLOCK):
            yield block

    def _decoded(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Decode as UTF-8 without a mark; what is neither UTF-8 nor UTF-16 is decoded with replacement later."""
        first = next(blocks, b"")
        mark, encoding = _encoding(first)
        first = first[len(mark) :]
        if encoding == "utf-8":
            yield first
            yield from blocks
            return
        self.form.append(encoding.upper())
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        yield decoder.decode(first).encode("utf-8", "replace")
        for block in blocks:
            yield decoder.decode(block).encode("utf-8", "replace")


def is_utf16(head: bytes) -> bool:
    """Whether the text is UTF-16, by its mark, or by nulls in every second byte."""
    return _encoding(head)[1] != "utf-8"


def _encoding(head: bytes) -> tuple[bytes, str]:
    """The mark at its beginning, and the encoding."""
    return next((known for known in _MARKS if head.startswith(known[0])), (b"", _encoding_by_nulls(head)))


def _encoding_by_nulls(head: bytes) -> str:
    """UTF-16 of ASCII has a null in every second byte."""
    sample = head[:2000]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if len(sample) < 8 or max(even, odd) < 0.4 * len(sample) or min(even, odd) > 0.02 * len(sample):
        return "utf-8"
    return "utf-16-le" if odd > even else "utf-16-be"


def _opened(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", sys.stdin.buffer) if path == STDIN else open_regular(path)


class _Peeked:
    """A stream whose first bytes are known as `head` before they are read."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self.head = self._ahead = raw.read(8)
        self.bytes_read = len(self.head)

    def read(self, count: int = -1) -> bytes:
        data, self._ahead = (self._ahead, b"") if count < 0 else (self._ahead[:count], self._ahead[count:])
        if count < 0 or len(data) < count:
            more = self._raw.read(count - len(data) if count >= 0 else -1)
            self.bytes_read += len(more)
            data += more
        return data


def _zstd(raw: _Peeked) -> Iterator[bytes]:
    """Unpack zstd by Python's own module (3.14), a package for it, or the command; distdbg requires none of them."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        file = module.ZstdFile(raw)
        while block := file.read(_BLOCK):
            yield block
        return
    try:
        reader: Any = (
            importlib.import_module("zstandard").ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        )
    except ImportError:
        yield from _by_command(raw)
        return
    while block := reader.read(_BLOCK):
        yield block


def _by_command(raw: _Peeked) -> Iterator[bytes]:
    command = shutil.which("zstd")
    if command is None:
        raise OSError(0, "it is packed with zstd, and neither the command zstd nor the package zstandard is here")
    with subprocess.Popen([command, "-dcq"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        os.set_blocking(child.stdin.fileno(), False)
        packed = raw.read(_BLOCK)
        while True:
            if not packed:
                child.stdin.close()
            readable, writable, _ = select.select([child.stdout], [child.stdin] if packed else [], [])
            if writable:
                try:
                    packed = packed[os.write(child.stdin.fileno(), packed) :] or raw.read(_BLOCK)
                except BrokenPipeError:
                    packed = b""
            if readable:
                block = os.read(child.stdout.fileno(), _BLOCK)
                if not block:
                    break
                yield block
    if child.returncode:
        raise OSError(0, "it is packed with zstd and damaged or cut short")


def _whole_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
            if len(rest) > _LONGEST:
                yield rest + b"\n"
                rest = b""
    if rest:
        yield rest


_ZIP = b"PK\x03\x04"


def kind_of(head: bytes) -> str:  # noqa: PLR0911 -- one kind a case
    """recorder, stacks, text, log (packed, or in UTF-16) or empty; a sentence for what is known to be useless, "" for
    what is not known."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if any(head.startswith(magic) for magic in PACKED) or is_utf16(head):
        return "log"
    if head.startswith(_ZIP):
        return "it is packed (zip): unpack it first"
    if not text:
        return "empty"
    if head[:1] == b"\x80" and len(head) > 1 and head[1] <= 5:
        return "recorder"
    if b"\0" in head:
        return ""
    if text[:1] == b"{":
        keys = (b'"pg_config"', b'"pg_status"', b'"profiling_name"', b'"comm_lib_version"', b'"collective_seq_id"')
        return "recorder" if any(key in head for key in keys) else "text"
    if text[:1] == b"[" and b'"frames"' in head[:4096]:
        return "stacks"
    return "text"
