"""Recognise what a file of others is, by its first bytes."""

from __future__ import annotations

from distdbg.collect.files.log_text import PACKED, is_utf16

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
