"""What a person sees while a model is made small."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any


def _nothing(_words: str) -> AbstractContextManager[Any]:
    return nullcontext()


@dataclass(frozen=True)
class Telling:
    """`written` is called with (bytes done, bytes in all); `stage` with what is done as long as its block lasts."""

    written: Callable[[int, int], None] = lambda _done, _total: None
    stage: Callable[[str], AbstractContextManager[Any]] = _nothing


SILENT = Telling()
