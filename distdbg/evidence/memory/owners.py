"""Read the names of memory that a rank of distdbg writes beside torch's own part of a snapshot.

    "distdbg": {"schema": "distdbg.owners/1", "left_out": 0,
                "blocks": [[device, address, bytes, "parameters", "layers.0.weight"], …],
                "forwards": [["/home/me/model.py", 30, 41, "Block", ["blocks.*"]], …]}

`blocks` are the tensors that stood when it was written: parameters, buffers, gradients, optimizers' state. Of what a
forward made nobody knows a name, but its stack runs through a `forward`: `forwards` has the lines of each, and where in
the model the modules of its class stand. A number in a path is `*` there. Foreign files have none of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from distdbg.evidence.memory.answer import BUFFERS, GRADIENTS, OPTIMIZER_STATE, PARAMETERS, WORKSPACE

#: Beside torch's own keys, which its tools look for by name.
KEY = "distdbg"
OWNED = (PARAMETERS, BUFFERS, GRADIENTS, OPTIMIZER_STATE, WORKSPACE)
_MOST = 200_000
_MOST_TEXT = 300
#: What an allocator may give beyond what was asked for, and old files then tell.
_ROUNDING = 2 << 20
#: Of a path, what is a number: the layers of a stack are one line.
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
#: What precedes the parameter's name in that of an optimizer's tensor.
OF = " of "

Frame = tuple[str, int, str]


@dataclass(frozen=True)
class _Forward:
    first: int
    last: int
    cls: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Owners:
    """`blocks` by (device, address) is (bytes, kind, name); `whole` where nothing was left out of it."""

    blocks: dict[tuple[int, int], tuple[int, str, str]] = field(default_factory=dict)
    whole: bool = True
    _forwards: dict[str, list[_Forward]] = field(default_factory=dict)

    def named(self, device: int, address: int, size: int) -> tuple[str, str] | None:
        """(kind, name) of an allocation. A training that goes on while names are looked up may put another one there,
        which mostly is of another size."""
        known = self.blocks.get((device, address))
        if known is None or not known[0] <= size <= known[0] + _ROUNDING:
            return None
        return known[1], known[2]

    def module_of(self, frames: Sequence[Frame]) -> str:
        """The innermost module whose forward contains these frames, innermost first; "" for none.

        A class may have many modules: the modules around it say which, as far as possible.
        """
        within = [found for frame in frames if (found := self._forward(frame)) is not None]
        if not within:
            return ""
        for depth, one in enumerate(within):
            paths = list(one.paths)
            for around in within[depth + 1 :]:
                if len(paths) > 1:
                    paths = [p for p in paths if any(_below(p, a) for a in around.paths)] or paths
            if len(paths) == 1:
                return paths[0] if not depth else f"{paths[0]}: {within[0].cls}"
        return within[0].cls

    def _forward(self, frame: Frame) -> _Forward | None:
        """The innermost forward that contains a line: one class may be defined in another's function."""
        file, line, _ = frame
        fits = [f for f in self._forwards.get(file, ()) if f.first <= line <= f.last]
        return max(fits, key=lambda f: f.first, default=None)


def read_owners(value: object) -> Owners | None:
    """None for what is none. Whatever is wrong in it is left out: it only adds names."""
    if not isinstance(value, dict) or not str(value.get("schema", "")).startswith("distdbg.owners/"):
        return None
    owners = Owners(whole=value.get("left_out") == 0)
    for entry in _list(value.get("blocks")):
        if isinstance(entry, list | tuple) and len(entry) == 5:
            device, address, size, kind, name = entry
            numbers = all(isinstance(number, int) for number in (device, address, size))
            if numbers and kind in OWNED and isinstance(name, str):
                owners.blocks[device, address] = size, kind, name[:_MOST_TEXT]
    for entry in _list(value.get("forwards")):
        if isinstance(entry, list | tuple) and len(entry) == 5:
            file, first, last, cls, paths = entry
            if isinstance(file, str) and isinstance(first, int) and isinstance(last, int) and isinstance(cls, str):
                known = tuple(p[:_MOST_TEXT] for p in _list(paths) if isinstance(p, str))
                found = _Forward(first, last, cls[:_MOST_TEXT], known)
                owners._forwards.setdefault(file[-_MOST_TEXT:], []).append(found)
    return owners


def module_of_name(name: str) -> str:
    """`layers.*` for `exp_avg of layers.3.weight`: the layers of a stack together. "" for a name in no module."""
    path = name.rpartition(OF)[2].partition(" and ")[0]
    return folded(path.rpartition(".")[0])


def folded(path: str) -> str:
    return _NUMBER.sub("*", path)


def _below(path: str, above: str) -> bool:
    return not above or path == above or path.startswith(f"{above}.")


def _list(value: object) -> Sequence[object]:
    return value[:_MOST] if isinstance(value, list | tuple) else ()
