"""Stacks of a memory snapshot: what stands under whose line, and in which phase of training it was allocated.

A snapshot's stacks mix Python and C++ frames, the innermost first. Here a stack becomes a *group*: its Python frames,
or, where it has none (autograd's own thread), the node of the backward graph. The line that is named is the innermost
one of the user's code; torch's allocator and unwinder are never named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from distdbg.evidence.memory_answer import GRADIENTS, PARAMETERS

FORWARD, BACKWARD, OPTIMIZER, INIT, DATA = "forward", "backward", "optimizer", "init", "data"
#: what stood before the recording began, or whose stack was not recorded
BEFORE, NO_STACK = "allocated before the trace begins", "no stack recorded"
AUTOGRAD = "no Python frame (autograd's thread, mostly)"

_LIBRARY = re.compile(
    r"(?:^|/)(?:site|dist)-packages/|(?:^|/)lib(?:64)?/python\d|^<frozen |(?:^|/)torch/(?:nn|optim|autograd|utils|cuda|"
    r"distributed|_\w+|amp|functional|storage)(?:/|\.py)"
)
_NODE = re.compile(r"\b(\w*?(?:Backward|Bwd)\d*|AccumulateGrad)(?:::|\b)")
_OP = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)|at::native::(\w+)\(")
#: where FSDP makes room for parameters that it gathers, the storages of its flat ones included
_GATHERS = frozenset({"alloc_storage", "_alloc_storage", "init_all_gather_outputs", "alloc_all_gather_outputs"})
#: where DDP makes its buckets, and once again in the order in which gradients came
_BUCKETS = frozenset({"_ddp_init_helper", "_pre_forward", "forward"})
_WORKSPACE = re.compile(r"(?:cublas|cuBLAS|cudnn|cusolver|Workspace|workspace)")
_MOST_TEXT = 300
_MOST_FRAMES = 60
#: Python stops at a thousand; one list of a million, named by a million events, would take days.
_DEEPEST = 5000


class ImplausibleValue(ValueError):
    """A value that no snapshot of torch has; the text names it."""


@dataclass(frozen=True, slots=True)
class Group:
    """`frames` are Python's, innermost first: (file, line, function). `op` is torch's own name where it has none."""

    frames: tuple[tuple[str, int, str], ...]
    phase: str = ""
    op: str = ""
    module: str = ""
    accumulates: bool = False
    workspace: bool = False
    #: the kind, where the line of a library that made it says so
    holds: str = ""

    @property
    def user(self) -> tuple[str, int, str] | None:
        """The innermost line of the user's own code."""
        return next((f for f in self.frames if not is_library(f[0])), None)

    @property
    def label(self) -> str:
        """`model.py:54 forward`; a library's line, or the name of torch's node, where the user has no frame."""
        own = self.user or next(iter(self.frames), None)
        words = [place(own)] if own is not None else [self.op]
        if self.module:
            words.append(f"[{self.module}]")
        return " ".join(filter(None, words)) or NO_STACK

    @property
    def callers(self) -> tuple[str, ...]:
        """The user's lines, innermost first, each once in a row."""
        own = [place(f) for f in self.frames if not is_library(f[0])]
        return tuple(text for n, text in enumerate(own) if not n or own[n - 1] != text)


def place(frame: tuple[str, int, str]) -> str:
    file, line, function = frame
    return f"{file.rpartition('/')[2] or '?'}:{line} {function}"


@lru_cache(maxsize=8192)
def is_library(file: str) -> bool:
    return _LIBRARY.search(file) is not None


def is_python(file: str) -> bool:
    return file.endswith(".py") or file.startswith(("<ipython", "<frozen", "<string", "<stdin"))


@dataclass
class Stacks:
    """Interns stacks: a snapshot names the same frame by the same object, so that its identity is asked first."""

    groups: list[Group] = field(default_factory=list)
    #: True once a frame of C++ was seen: then a stack without Python frames is no mere lack of record
    native: bool = False
    _by_group: dict[Group, int] = field(default_factory=dict)
    _by_frames: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _frame_of: dict[int, tuple[str, int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.before = self._number(Group((), op=BEFORE))
        self.none = self._number(Group((), op=NO_STACK))

    def number(self, frames: Sequence[Any], metadata: object = "") -> int:
        """The group of a stack as the snapshot has it. The frames' objects must live as long as stacks are read.

        Raises ValueError for a stack that is deeper than any.
        """
        if len(frames) > _DEEPEST:
            raise ImplausibleValue(f"a stack has {len(frames):,} frames")
        module = metadata if isinstance(metadata, str) else ""
        key = (*map(id, frames), module)
        found = self._by_frames.get(key)
        if found is None:
            found = self._by_frames[key] = self._new(frames, module) if frames else self.none
        return found

    def settle(self) -> None:
        """Without C++ frames, what has no frame at all was allocated where no Python runs: autograd's thread."""
        traced = any(group.frames for group in self.groups)
        if traced and not self.native:
            self.groups[self.none] = Group((), phase=BACKWARD, op=AUTOGRAD)

    def _number(self, group: Group) -> int:
        found = self._by_group.setdefault(group, len(self.groups))
        if found == len(self.groups):
            self.groups.append(group)
        return found

    def _new(self, frames: Sequence[Any], metadata: str) -> int:
        whole = [self._frame(frame) for frame in frames]
        python = tuple(f for f in whole if is_python(f[0]))
        natives = [f[2] for f in whole if not is_python(f[0])]
        self.native = self.native or bool(natives)
        phase, accumulates = _phase(python, natives)
        workspace = any(_WORKSPACE.search(name) for name in natives)
        op = "" if python else _op(natives)
        return self._number(Group(python[:_MOST_FRAMES], phase, op, metadata[:_MOST_TEXT], accumulates, workspace,
                                  _held(python)))  # fmt: skip

    def _frame(self, frame: Any) -> tuple[str, int, str]:  # noqa: ANN401
        found = self._frame_of.get(id(frame))
        if found is None:
            found = self._frame_of[id(frame)] = _frame(frame)
        return found


def _frame(frame: object) -> tuple[str, int, str]:
    if not isinstance(frame, Mapping):
        return "", 0, "?"
    name, file, line = frame.get("name"), frame.get("filename"), frame.get("line")
    return (
        file[-_MOST_TEXT:] if isinstance(file, str) else "",
        line if isinstance(line, int) and 0 <= line < 1 << 31 else 0,
        name[:_MOST_TEXT] if isinstance(name, str) else "?",
    )


def _phase(python: Sequence[tuple[str, int, str]], natives: Sequence[str]) -> tuple[str, bool]:
    """The phase, and whether it is the accumulation of a gradient."""
    if any("Engine::" in name for name in natives):
        return BACKWARD, any("AccumulateGrad" in name or "accumulateGrad" in name for name in natives)
    forward = init = data = False
    for file, _, function in python:
        if "torch/optim/" in file or (function == "step" and "optim" in file.rpartition("/")[2].lower()):
            return OPTIMIZER, False
        if function == "backward" or (file.endswith("torch/utils/checkpoint.py") and "recompute" in function):
            return BACKWARD, False
        if function in ("_call_impl", "_wrapped_call_impl", "forward"):
            forward = True
        elif function == "__init__" or (file.endswith("nn/modules/module.py") and function in ("_apply", "to", "cuda")):
            init = True
        elif "torch/utils/data/" in file:
            data = True
    return (FORWARD if forward else INIT if init else DATA if data else ""), False


def _held(python: Sequence[tuple[str, int, str]]) -> str:
    """Made in a forward, and no activation of it: gathered parameters, and DDP's buckets, a copy of the gradients."""
    if any(function in _GATHERS and "torch/distributed/" in file for file, _, function in python[:3]):
        return PARAMETERS
    file, _, function = python[0] if python else ("", 0, "")
    return GRADIENTS if function in _BUCKETS and file.endswith("torch/nn/parallel/distributed.py") else ""


def _op(natives: Sequence[str]) -> str:
    """The node of the backward graph that ran (`MmBackward0`), else the outermost operator of torch."""
    for name in natives:
        if found := _NODE.search(name):
            return f"{found[1]} (backward)"
    ops = [found[1] or found[2] for name in natives if (found := _OP.search(name))]
    return f"torch's {ops[-1]}" if ops else NO_STACK
