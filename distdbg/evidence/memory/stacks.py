"""Classify the stacks of a memory snapshot: by the user's line, and by the phase of training.

A snapshot's stacks mix Python and C++ frames, the innermost first. Here a stack becomes a *group*: its Python frames,
or, where it has none (autograd's own thread), the node of the backward graph. The line that is named is the innermost
one of the user's code; torch's allocator and unwinder are never named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distdbg.evidence.frames import (
    BACKWARD,
    DATA,
    FORWARD,
    INIT,
    OPTIMIZER,
    AllocatedFor,
    allocated_for,
    is_user,
    origin_of,
    phase_of,
)
from distdbg.evidence.memory.answer import BEFORE_RECORDING, GRADIENTS, INPUTS, PARAMETERS, REPLICAS

#: allocated before the recording began, or without a recorded stack
BEFORE, NO_STACK = "allocated before recording began", "no stack recorded"
AUTOGRAD = "no Python frame (autograd's thread, mostly)"

_NODE = re.compile(r"\b(\w*?(?:Backward|Bwd)\d*|AccumulateGrad)(?:::|\b)")
_OP = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)|at::native::(\w+)\(")
_HELD = {AllocatedFor.REPLICAS: REPLICAS, AllocatedFor.BUCKETS: GRADIENTS}
#: `.to(device)` and `.cuda()` of one tensor, in C++; the same with a dtype alone has no Device there
_TO_DEVICE = "torch::autograd::dispatch_to(at::Tensor const&, c10::Device"
#: this near the allocation is the function of a library that copies a batch
_NEAR = 6
_WORKSPACE = re.compile(r"(?:cublas|cuBLAS|cudnn|cusolver|Workspace|workspace)")
_MOST_TEXT = 300
_MOST_FRAMES = 60
#: Python stops at a thousand; one list of a million, named by a million events, would take days.
_DEEPEST = 5000


class ImplausibleValue(ValueError):
    """A value that no snapshot of torch has; the text names it."""


@dataclass(frozen=True, slots=True)
class AllocationStack:
    """`frames` are Python's, innermost first: (file, line, function). `op` is torch's own name where it has none."""

    frames: tuple[tuple[str, int, str], ...]
    phase: str = ""
    op: str = ""
    module: str = ""
    accumulates: bool = False
    workspace: bool = False
    #: the kind, where the line of a library that made it says so, or where nothing was recorded yet
    holds: str = ""

    @property
    def user(self) -> tuple[str, int, str] | None:
        """The innermost line of the user's own code."""
        return next((f for f in self.frames if is_user(f[0])), None)

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
        own = [place(f) for f in self.frames if is_user(f[0])]
        return tuple(text for n, text in enumerate(own) if not n or own[n - 1] != text)


def place(frame: tuple[str, int, str]) -> str:
    file, line, function = frame
    return f"{file.rpartition('/')[2] or '?'}:{line} {function}"


@dataclass
class Stacks:
    """Interns stacks: a snapshot names the same frame by the same object, so that its identity is asked first."""

    groups: list[AllocationStack] = field(default_factory=list)
    #: True once a frame of C++ was seen: then a stack without Python frames is no mere lack of record
    native: bool = False
    _by_group: dict[AllocationStack, int] = field(default_factory=dict)
    _by_frames: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _frame_of: dict[int, tuple[str, int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.before = self._number(AllocationStack((), op=BEFORE, holds=BEFORE_RECORDING))
        self.none = self._number(AllocationStack((), op=NO_STACK))

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
        """Mark the stack without frames as autograd's: without C++ frames, only its thread allocates without any
        frame."""
        traced = any(group.frames for group in self.groups)
        if traced and not self.native:
            self.groups[self.none] = AllocationStack((), phase=BACKWARD, op=AUTOGRAD)

    def _number(self, group: AllocationStack) -> int:
        found = self._by_group.setdefault(group, len(self.groups))
        if found == len(self.groups):
            self.groups.append(group)
        return found

    def _new(self, frames: Sequence[Any], metadata: str) -> int:
        whole = [self._frame(frame) for frame in frames]
        python = tuple(f for f in whole if origin_of(f[0]).is_python)
        natives = [f[2] for f in whole if not origin_of(f[0]).is_python]
        self.native = self.native or bool(natives)
        phase, accumulates = _phase(python, natives)
        workspace = any(_WORKSPACE.search(name) for name in natives)
        op = "" if python else _op(natives)
        holds = _held(python) or (INPUTS if _copies_a_batch(python, natives, phase) else "")
        frames, module = python[:_MOST_FRAMES], metadata[:_MOST_TEXT]
        return self._number(AllocationStack(frames, phase, op, module, accumulates, workspace, holds))

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
    found = [phase_of(file, function) for file, _, function in python]
    # A transform's forward makes data, and that of a recomputation is a part of the backward.
    decides = (phase for phase in found if phase in (DATA, OPTIMIZER, BACKWARD))
    return next(decides, FORWARD if FORWARD in found else INIT if INIT in found else ""), False


def _held(python: Sequence[tuple[str, int, str]]) -> str:
    """Made in a forward, and no activation of it."""
    made = [allocated_for(file, function) for file, _, function in python[:3]]
    return PARAMETERS if AllocatedFor.PARAMETERS in made else "".join(_HELD.get(one, "") for one in made[:1] if one)


def _copies_a_batch(python: Sequence[tuple[str, int, str]], natives: Sequence[str], phase: str) -> bool:
    """Made below a loader, or moved by what moves batches; in the script's own lines, by the call in C++ alone."""
    near = {allocated_for(file, function) for file, _, function in python[:_NEAR]}
    if phase == DATA or AllocatedFor.BATCH in near:
        return True
    moved = AllocatedFor.BATCH_OF_FRAMEWORK in near or any(name.startswith(_TO_DEVICE) for name in natives)
    return bool(python) and not phase and moved


def _op(natives: Sequence[str]) -> str:
    """The node of the backward graph that ran (`MmBackward0`), else the outermost operator of torch."""
    for name in natives:
        if found := _NODE.search(name):
            return f"{found[1]} (backward)"
    ops = [found[1] or found[2] for name in natives if (found := _OP.search(name))]
    return f"torch's {ops[-1]}" if ops else NO_STACK
