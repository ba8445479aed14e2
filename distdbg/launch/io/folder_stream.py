"""Send a folder as a tar through a stream, so that the receiver notices a cut or changed stream.

The first member is an account, a JSON object whose "files" are the others: name -> [bytes, SHA-256]. A tar alone cannot
be checked: if it was cut at the end of a member, it looks whole, and a carrier may end with exit code 0 all the same.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from distdbg.evidence import jsonl

ACCOUNT = "found.json"
_MOST_ACCOUNT = 16 << 20


def send_folder(folder: Path, account: Mapping[str, Any], stream: IO[bytes]) -> None:
    """Write the account and every file of the folder. Raises OSError."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    listed = {name: [path.stat().st_size, sha256(path.read_bytes()).hexdigest()] for name, path in files.items()}
    text = json.dumps({**account, "files": listed}).encode()
    first = tarfile.TarInfo(ACCOUNT)
    first.size = len(text)
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        archive.addfile(first, io.BytesIO(text))
        for name, path in files.items():
            archive.add(path, arcname=name)


def receive_folder(
    stream: IO[bytes], take: Callable[[str, bytes], object], *, most_bytes: int
) -> tuple[dict[str, Any], str]:
    """Call `take` with the name and content of each whole file that the account lists.

    Returns the account, empty if it did not arrive, and what is missing in words, empty if the folder is complete.
    Raises OSError.
    """
    account: dict[str, Any] = {}
    listed: dict[str, Any] = {}
    received: set[str] = set()
    left = most_bytes
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                left -= member.size
                content = archive.extractfile(member) if member.isfile() else None
                if content is None or left < 0:
                    continue
                if not account and member.name == ACCOUNT and member.size <= _MOST_ACCOUNT:
                    account = jsonl.whole(content.read().decode("utf-8", "replace")) or {}
                    files = account.pop("files", None)
                    listed = files if isinstance(files, dict) else {}
                elif listed.get(member.name) == [len(data := content.read()), sha256(data).hexdigest()]:
                    take(member.name, data)
                    received.add(member.name)
    except (tarfile.TarError, EOFError):
        pass  # what is missing tells
    missing = len(listed.keys() - received)
    return account, f"its evidence was cut: {missing} of {len(listed)} files did not arrive whole" if missing else ""
