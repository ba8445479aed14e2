"""Detect a layer that is no FSDP unit although most layers of its kind beside it are."""

from __future__ import annotations

from typing import Any

from distdbg.worker.guards.shared.units import CONTAINERS, LARGE, Unit, UnitsGuard, kind_of
from distdbg.worker.models import plain_name
from distdbg.worker.user_code import users_line

#: A layer that is much smaller than its siblings may well have been left out by a policy that goes by size.
_AS_LARGE = 0.9
_MOST_NAMES = 5


class FsdpLayerLeftOut(UnitsGuard):
    id = "fsdp-layer-left-out"
    modes = ("off", "warn")
    costs = "once, about 2 ms for 1,000 modules"
    blind = "models of under 10 million parameters; layers in no ModuleList, ModuleDict or Sequential"

    def judge(self, module: Any, units: list[Unit]) -> None:
        found = _left_out(module, units) if sum(unit.size for unit in units) >= LARGE else None
        if found is not None:
            names, kind, size, siblings = found
            self.report(users_line(), names=names[:_MOST_NAMES], count=len(names), layer=kind, parameters=size,
                     layers=len(names) + siblings)  # fmt: skip


def _left_out(module: Any, units: list[Unit]) -> tuple[list[str], str, int, int] | None:
    """Names, class and parameters of left-out layers, and the number of siblings that are units; the largest set."""
    heads = {id(head) for unit in units for head in unit.heads}
    shares: dict[int, int] = {}
    for unit in units:
        for owner, numbers in unit.shares:
            shares[id(owner)] = shares.get(id(owner), 0) + numbers
    lots: list[tuple[list[str], str, int, int]] = []
    for path, container in module.named_modules():
        if not CONTAINERS & {cls.__name__ for cls in type(container).__mro__}:
            continue
        units_of_kind: dict[str, list[int]] = {}
        left_of_kind: dict[str, list[tuple[int, str]]] = {}
        for name, child in container.named_children():
            size = sum(shares.get(id(one), 0) for one in child.modules())
            if any(id(one) in heads for one in child.modules()):
                units_of_kind.setdefault(kind_of(child), []).append(size)
            elif size:
                left_of_kind.setdefault(kind_of(child), []).append((size, f"{path}.{name}" if path else name))
        for kind, left in left_of_kind.items():
            own = units_of_kind.get(kind, [])
            if len(own) > len(left) and min(left)[0] >= _AS_LARGE * min(own):
                names = [plain_name(name) for _, name in left]
                lots.append((names, kind, sum(size for size, _ in left), len(own)))
    return max(lots, key=lambda lot: lot[2], default=None)
