"""Recognise text with the stacks of one process, and choose its reader: py-spy's, gdb's or faulthandler's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from distdbg.evidence.stacks.faulthandler_text import is_faulthandler_text, read_faulthandler_text
from distdbg.evidence.stacks.gdb_text import is_gdb_text, read_gdb_text
from distdbg.evidence.stacks.pyspy_text import is_pyspy_text, read_pyspy_text

StackReader = Callable[[Iterable[str]], Iterable[dict[str, Any]]]


def stack_reader(head: str) -> StackReader | None:
    """The reader of a text that begins with `head`; None if these are not stacks. It yields py-spy's objects."""
    if is_pyspy_text(head):
        return read_pyspy_text
    if is_gdb_text(head):
        return read_gdb_text
    return read_faulthandler_text if is_faulthandler_text(head) else None
