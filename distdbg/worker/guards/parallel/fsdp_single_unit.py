"""Detect FSDP with one unit for a model of many layers: all of it is gathered at once."""

from __future__ import annotations

from typing import Any

from distdbg.worker.guards.shared.units import CONTAINERS, LARGE, Unit, UnitsGuard
from distdbg.worker.user_code import users_line

_SHARE = 0.9


class FsdpSingleUnit(UnitsGuard):
    id = "fsdp-single-unit"
    modes = ("off", "warn")
    costs = "once, about 1 ms for 1,000 modules"
    blind = "models of under 10 million parameters; what lies whole on each rank, as over a mesh of one"

    def judge(self, module: Any, units: list[Unit]) -> None:
        sizes = [unit.size for unit in units if unit.over != 1] or [0]
        total, largest = sum(sizes), max(sizes)
        layers = _repeated(module) if total >= LARGE and largest >= _SHARE * total else None
        if layers is not None:
            self.report(users_line(), units=len(units), largest=largest, total=total, layer=layers[0], layers=layers[1])


def _repeated(module: Any) -> tuple[str, int] | None:
    """The most frequent kind of layer in a list or dict of the model, and its number: these could be units."""
    found: tuple[str, int] | None = None
    for one in module.modules():
        if not CONTAINERS & {cls.__name__ for cls in type(one).__mro__}:  # FSDP2 puts a class before each
            continue
        kinds: dict[str, int] = {}
        for child in one.children():
            if any(True for _ in child.parameters()):
                kinds[type(child).__name__] = kinds.get(type(child).__name__, 0) + 1
        for kind, count in kinds.items():
            if count >= 2 and (found is None or count > found[1]):
                found = kind, count
    return found
