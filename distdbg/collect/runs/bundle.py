"""Write one archive with the evidence of a run: its report, logs and dumps, with secrets masked as in the report.

Only text can be masked: JSON value by value, so that an escape before a secret hides nothing. Of binary files those are
taken that hold numbers alone. What is left out is listed in `bundle.json` of the archive, each with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZIP_DEFLATED, ZipFile

from distdbg.collect.files.bounded_read import read_bytes, read_end
from distdbg.collect.files.folder_files import FolderFiles
from distdbg.collect.runs.report_files import report_forms
from distdbg.errors import Refused
from distdbg.evidence.run import RunEvidence
from distdbg.hidden_values import HiddenValues
from distdbg.masking import MASK, mask, sounds_secret
from distdbg.model import Report
from distdbg.rundir import RunDir

#: Bytes at the end of a log: a second of CPU time to mask.
_MOST_LOG = 1 << 20
#: Bytes of any other file; a longer one is left out.
_MOST_FILE = 4 << 20
#: Bytes of all files, before they are packed: a ticket system takes no more.
_MOST_ALL = 32 << 20
_MOST_LISTED = 1000
#: folder -> why it is left out
_FOLDERS = {
    "report": "",  # written anew
    "nonfinite": "it holds the model and a batch",
    "memory": "snapshots are binary, and only text can be masked",
    "profile": "traces are packed, and only text can be masked",
}
_KEY_ENDS = re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")


class _LeftOut(Exception):
    """Its text is the reason."""


@dataclass
class Bundle:
    """What was written: `files` and their `bytes` before packing; `left_out` are (path, because)."""

    files: int = 0
    bytes: int = 0
    left_out: list[tuple[str, str]] = field(default_factory=list)


def refuse_unknown_secrets(evidence: RunEvidence) -> None:
    """Raise Refused if secrets of the job could be left in a bundle, because their values are not known here."""
    if evidence.hidden.incomplete:
        raise Refused(
            f"no bundle is written: {evidence.hidden.incomplete}",
            "Write it where these variables have the values that the job had, or send single files that you have read.",
        )


def write_bundle(file: BinaryIO, run: RunDir, report: Report, evidence: RunEvidence) -> Bundle:
    """Raises OSError."""
    bundle, seen, hidden = Bundle(), set[str](), evidence.hidden
    with ZipFile(file, "w", ZIP_DEFLATED, strict_timestamps=False) as archive:
        for name, text in report_forms(report, evidence):
            _add(archive, bundle, f"{run.id}/report/{name}", text.encode("utf-8", "replace"))

        def enters(name: str) -> bool:
            if name in _FOLDERS:
                seen.add(name)
            return name not in _FOLDERS

        entries = FolderFiles(run.path, enters=enters)
        roots = {f"ranks/{rank:05d}/" for finding in report.verdict for rank in finding.ranks}
        for path in sorted(entries, key=lambda path: _order(run.relative(path), roots)):
            name = run.relative(path)
            if bundle.bytes >= _MOST_ALL:
                bundle.left_out.append((name, f"a bundle has at most {_MOST_ALL >> 20} MiB"))
                continue
            try:
                _add(archive, bundle, f"{run.id}/{name}", _masked(path, hidden))
            except _LeftOut as reason:
                bundle.left_out.append((name, str(reason)))
        bundle.left_out += [*entries.unread, *((f"{name}/", _FOLDERS[name]) for name in sorted(seen - {"report"}))]
        listed = [{"path": path, "because": because} for path, because in bundle.left_out[:_MOST_LISTED]]
        facts = {"schema": "distdbg.bundle/1", "run": run.id, "files": bundle.files, "bytes": bundle.bytes,
                 "left_out": listed, "more_left_out": len(bundle.left_out) - len(listed)}  # fmt: skip
        archive.writestr(f"{run.id}/bundle.json", json.dumps(facts, indent=1) + "\n")
    return bundle


def _add(archive: ZipFile, bundle: Bundle, name: str, data: bytes) -> None:
    archive.writestr(name, data)
    bundle.files += 1
    bundle.bytes += len(data)


def _order(name: str, roots: set[str]) -> tuple[int, str]:
    """Records of the run, dumps and the ranks of the verdict first: what is too much is at the end."""
    if "/ranks/" not in name:
        return 0, name
    return (1 if any(root in name for root in roots) else 2), name


def _masked(path: Path, hidden: HiddenValues) -> bytes:
    """The content of a file without secrets. Raises _LeftOut."""
    hidden.restart_search()
    if path.is_symlink():
        raise _LeftOut("it is a link, and links are not followed")
    match path.suffix:
        case ".calls":  # numbers (worker/calls.py)
            return _whole(path)
        case ".index":
            raise _LeftOut("its places in a log are not those of the masked log")
        case ".log":
            text = hidden.mask(_end_of_log(path))
        case ".json":
            text = _masked_json(whole, hidden) if (whole := _text(path)).strip() else ""
        case ".jsonl":
            text = "".join(f"{line}\n" for line in _masked_lines(_text(path), hidden))
        case _:
            text = hidden.mask(_text(path))
    return text.encode("utf-8", "replace")


def _whole(path: Path) -> bytes:
    data, why = read_bytes(path, _MOST_FILE + 1)
    if data is None:
        raise _LeftOut(why or "it is gone")
    if len(data) > _MOST_FILE:
        raise _LeftOut(f"it is longer than {_MOST_FILE >> 20} MiB")
    return data


def _text(path: Path) -> str:
    data = _whole(path)
    text = data.decode("utf-8", "replace")
    if b"\0" in data or text.count("\ufffd") > len(text) // 100:
        raise _LeftOut("it is binary, and only text can be masked")
    return text


def _end_of_log(path: Path) -> str:
    data, why = read_bytes(path, 0)
    if data is None:
        raise _LeftOut(why or "it is gone")
    tail = read_end(path, _MOST_LOG)
    if not tail.before:
        return tail.text
    return f"[distdbg: the first {tail.before:,} bytes are left out]\n{_after_cut_key(tail.text)}"


def _after_cut_key(text: str) -> str:
    """Without the rest of a private key whose beginning was cut off."""
    end = _KEY_ENDS.search(text)
    return text[end.end() :] if end is not None and "-----BEGIN" not in text[: end.start()] else text


def _masked_lines(text: str, hidden: HiddenValues) -> Iterator[str]:
    for line in text.splitlines():
        try:
            yield _masked_json(line, hidden)
        except _LeftOut:  # noqa: PERF203 -- a line that was cut short, as the node died
            yield json.dumps({"left_out": "a line that is not JSON"})


def _masked_json(text: str, hidden: HiddenValues) -> str:
    try:
        return json.dumps(_masked_value(json.loads(text), "", hidden))
    except (ValueError, RecursionError):
        raise _LeftOut("it is not JSON") from None


def _masked_value(value: Any, name: str, hidden: HiddenValues) -> Any:  # noqa: ANN401
    """`name` is the key that it belongs to. A masked record has no secrets left."""
    match value:
        case str():
            return hidden.mask(mask(name, value) if sounds_secret(name) else value)
        case int() | float() if not isinstance(value, bool) and mask(name, str(value)) == MASK:
            return MASK
        case list():
            return [_masked_value(item, name, hidden) for item in value]
        case dict():
            named = {hidden.mask(key): _masked_value(item, key, hidden) for key, item in value.items()}
            return named | ({"hidden_values": []} if "hidden_values" in named else {})
    return value
