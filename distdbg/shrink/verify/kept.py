"""Find which layers are kept of a stack, and which layers of the full model each of them represents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distdbg.model import fold_ranks

PASS = "pass"


def has_passed(said: str) -> bool:
    """Whether a check passed: alone, or with words on what it was made of."""
    return said == PASS or said.startswith(f"{PASS};")


@dataclass(frozen=True)
class KeptStack:
    """A stack: its path, and the layer of the full model that each layer of the small one represents.

    entries: lists in layers of the full model, and which of their entries the small model has. kinds: the full model's
    layers by kind.
    """

    path: str
    layers: int
    kept: Sequence[int]
    entries: Mapping[str, Sequence[int]] = field(default_factory=dict)
    kinds: Sequence[Sequence[int]] = ()

    def spoken_for(self) -> Iterator[tuple[int, Sequence[int]]]:
        """A layer that is not kept, and the kept ones of its kind; layers of a kind that is lost are left out."""
        for kind in self.kinds:
            here = [layer for layer in kind if layer in self.kept]
            yield from ((layer, here) for layer in kind if here and layer not in here)

    def of_lost_kinds(self) -> list[int]:
        """Layers of which no other of their kind is kept."""
        return sorted(layer for kind in self.kinds if not {*kind} & {*self.kept} for layer in kind)


def kept_of(stacks: Sequence[Mapping[str, Any]], entries: Mapping[str, Sequence[int]]) -> list[KeptStack]:
    """The kept stacks, from the result of a probe."""
    return [
        KeptStack(path, s["layers"], s["kept"], entries, [kind["layers"] for kind in s["kinds"]])
        for s in stacks
        for path in (s["path"], *s["also"])
    ]


def each_layer(stack: KeptStack, full: Mapping[str, Mapping[str, Any]]) -> str:
    """`pass` if each layer of the full model did what a kept one of its kind did, else a warning. Of layers whose kind
    is not kept nothing is known.

    full: what was measured -> layer path -> what it was there.
    """
    for what, measured in full.items():
        odd = [
            layer
            for layer, kept in stack.spoken_for()
            if all(measured.get(f"{stack.path}.{layer}") != measured.get(f"{stack.path}.{one}") for one in kept)
        ]
        if odd:
            return f"warning: unlike the kept layers of their kind in {what}: {fold_ranks(odd)}"
    lost = stack.of_lost_kinds()
    if not lost:
        return PASS
    why = f"of the kinds of {stack.path}.{fold_ranks(lost)} no layer is kept"
    return f"{PASS}; {why}" if any(stack.spoken_for()) else f"not run, because {why}"
