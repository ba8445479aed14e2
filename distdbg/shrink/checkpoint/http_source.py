"""Read a model from a server that answers byte ranges; a broken connection is resumed."""

from __future__ import annotations

import http.client
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from distdbg.errors import EvidenceUnreadable
from distdbg.shrink.checkpoint.source import MOST_OF_A_SMALL_FILE, CutOffError, is_relative_name
from distdbg.shrink.checkpoint.tensors import INDEX, ONE_FILE

#: what may lie beside a config; a plain server gives no list
BESIDE = [
    "config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json",
    "video_preprocessor_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spiece.model",
    "sentencepiece.bpe.model", "vocab.json", "vocab.txt", "merges.txt", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "chat_template.json",
]  # fmt: skip
_TRIES = 6
_TIMEOUT = 30.0
_BLOCK = 1 << 20
#: fetched at the first look into a file: most headers are smaller
_FIRST = 100_000
_GONE = (404, 403, 410)


@dataclass
class Server:
    """`base` ends with a slash. `listed`: the names of its files where they are known, else they are tried."""

    base: str
    headers: Mapping[str, str] = field(default_factory=dict)
    listed: list[str] = field(default_factory=list)
    bytes_read: int = 0
    requests: int = 0
    pause: float = 0.5
    _small: dict[str, bytes | None] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return self.base

    def files(self) -> list[str]:
        if not self.listed:
            found = [name for name in BESIDE if self.small(name) is not None]
            index = self.small(INDEX)
            if index is not None:
                found += [INDEX, *_shards(index)]
            else:
                with suppress(_AbsentError), self.open(ONE_FILE):
                    found.append(ONE_FILE)
            self.listed = found
        outside = next((name for name in self.listed if not is_relative_name(name)), None)
        if outside is not None:  # it would be written outside of DST
            raise EvidenceUnreadable(f"{self.base} lists {outside!r}, which is not a file below it", "Do not use it.")
        return self.listed

    def small(self, name: str) -> bytes | None:
        if name not in self._small:
            try:
                with self.open(name) as reader:
                    if reader.size > MOST_OF_A_SMALL_FILE:
                        many = f"{self.base}{name} has {reader.size} bytes, far too many"
                        raise EvidenceUnreadable(many, "Look into it.")
                    self._small[name] = reader.read(0, reader.size)
            except _AbsentError:
                self._small[name] = None
        return self._small[name]

    @contextmanager
    def open(self, name: str) -> Iterator[ServerReader]:
        yield ServerReader(self, name)

    def ask(self, name: str, start: int, end: int) -> http.client.HTTPResponse:
        """An answer with bytes `start` to `end`, both included. Raises _Absent, OSError, HTTPException."""
        url = self.base + urllib.parse.quote(name)
        request = urllib.request.Request(url, headers={**self.headers, "Range": f"bytes={start}-{end}"})
        self.requests += 1
        try:
            answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT)
        except urllib.error.HTTPError as error:
            if error.code in _GONE:
                raise _AbsentError(
                    f"{url} answers {error.code}", "Check the address, and whether you may read it."
                ) from None
            if error.code < 500 and error.code not in (408, 416, 429):
                raise EvidenceUnreadable(f"{url} answers {error.code} {error.reason}", "Check the address.") from None
            raise
        return answer


class ServerReader:
    """One file on a server, of which the first bytes are fetched at once. Raises _Absent where there is none."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.size = 0  # comes with the first bytes
        self._first = b"".join(self._stream(0, _FIRST, at_most=True))

    def read(self, start: int, length: int) -> bytes:
        if start + length <= len(self._first):
            return self._first[start : start + length]
        return b"".join(self._stream(start, length))

    def copy(self, start: int, length: int, to: int) -> None:
        for block in self._stream(start, length):
            view = memoryview(block)
            while view:
                view = view[os.write(to, view) :]

    def _stream(self, start: int, length: int, at_most: bool = False) -> Iterator[bytes]:
        """Blocks of the range, in order; each failed try goes on behind what has come, after a growing pause."""
        tries = 0
        while length:
            try:
                for block in self._try(start, length):
                    start, length, tries = start + len(block), length - len(block), 0
                    self.server.bytes_read += len(block)
                    yield block
                if at_most:
                    return
                if length:
                    raise ConnectionError("the connection was cut")
            except (OSError, http.client.HTTPException) as error:  # noqa: PERF203 -- each try is a request
                tries += 1
                if tries >= _TRIES:
                    raise CutOffError(
                        f"{self.server.base}{self.name}: no byte after {start} came in {_TRIES} tries: {error}",
                        "Run the same command again when the server answers.",
                    ) from None
                time.sleep(self.server.pause * 2 ** (tries - 1))

    def _try(self, start: int, length: int) -> Iterator[bytes]:
        with self.server.ask(self.name, start, start + length - 1) as answer:
            self._check(answer, start)
            while length:
                block = answer.read(min(_BLOCK, length))
                if not block:
                    return
                length -= len(block)
                yield block

    def _check(self, answer: http.client.HTTPResponse, start: int) -> None:
        """A server that ignores ranges sends the file's beginning; nothing of it may pass for its middle."""
        match = re.fullmatch(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})", answer.headers.get("Content-Range", ""))
        if answer.status == 206 and match and int(match[1]) == start:
            if self.size and self.size != int(match[2]):
                raise EvidenceUnreadable(f"{self.server.base}{self.name} changed while it was read", "Start again.")
            self.size = int(match[2])
            return
        length = answer.headers.get("Content-Length", "")
        if answer.status == 200 and start == 0 and re.fullmatch(r"\d{1,18}", length) and int(length) <= _FIRST:
            self.size = int(length)  # all of a small file
            return
        raise EvidenceUnreadable(
            f"{self.server.base}{self.name} is not served by byte ranges (status {answer.status})",
            "Use a server that answers ranges, or download the model and name its folder.",
        )


class _AbsentError(EvidenceUnreadable):
    pass


def _shards(index: bytes) -> list[str]:
    """Names only; the index is checked where it is used."""
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return sorted({f for f in json.loads(index)["weight_map"].values() if isinstance(f, str)})
    return []
