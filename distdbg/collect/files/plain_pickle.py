"""Read pickles of any origin so that nothing in them can execute. Only ever called in a child with bounds.

Plain containers, numbers and text are all that can be built: a class or a function has no way in. What such a file
can still do is ask for memory and time without end: collect/files/child_limits.py bounds both.
"""

from __future__ import annotations

import pickle
from typing import IO, NoReturn


class UnreadablePickle(Exception):
    """Says why."""


class Harmful(Exception):
    """The pickle names something to import or to call."""


class PlainUnpickler(pickle.Unpickler):
    """Builds dicts, lists, tuples, numbers and text. What would name a class or a function ends the reading."""

    writer = "recorder"

    def find_class(self, module: str, name: str) -> NoReturn:
        wanted = f"{module[:60]!r}.{name[:60]!r}"
        raise Harmful(f"it wants to import {wanted}: no {self.writer} writes that; it was not executed")

    def persistent_load(self, pid: object) -> NoReturn:  # noqa: ARG002
        raise Harmful(f"it refers to things outside of itself: no {self.writer} writes that")


def load(file: IO[bytes], kind: type[PlainUnpickler] = PlainUnpickler) -> object:
    """`file` should have a peek(). Raises UnreadablePickle, MemoryError, and what `file` itself raises on purpose."""
    try:
        # Without a peek() the unpickler asks for each opcode's bytes alone: three times as long.
        return kind(file).load()
    except Harmful as error:
        raise UnreadablePickle(str(error)) from None
    except RecursionError:
        raise UnreadablePickle(f"it is nested deeper than any {kind.writer} nests") from None
    except (EOFError, pickle.UnpicklingError) as error:
        cut = isinstance(error, EOFError) or "truncated" in str(error) or "exhausted" in str(error)
        raise UnreadablePickle("it is cut short" if cut else "it is no whole pickle: its content is damaged") from None
    except (MemoryError, UnreadablePickle):
        raise
    except Exception:  # opcodes that mean nothing end in any exception that Python has
        raise UnreadablePickle(f"it is no pickle that a {kind.writer} writes") from None
