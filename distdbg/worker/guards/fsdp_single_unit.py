"""FSDP with one unit for a model of many layers: all of it is gathered at once, as if it were not sharded."""

from __future__ import annotations

from distdbg.worker.guards._base import Guard, users_line
from distdbg.worker.wrapping import is_fsdp2

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Smaller models fit wherever they are.
_LARGE = 10_000_000
_SHARE = 0.9
_CONTAINERS = {"ModuleList", "ModuleDict", "Sequential"}


class FsdpSingleUnit(Guard):
    id = "fsdp-single-unit"
    modes = ("off", "warn")
    costs = "once, about 1 ms for 1,000 modules"
    blind = "models of under 10 million parameters"

    def window(self) -> None:
        self.listen("forward", self._forward)

    def window_ends(self) -> None:
        self.deaf()

    def _forward(self, module: Any) -> None:  # noqa: ANN401
        sizes = _units(module)
        if not sizes:
            return
        self.deaf()
        total, largest = sum(sizes), max(sizes)
        layers = _repeated(module) if total >= _LARGE and largest >= _SHARE * total else None
        if layers is not None:
            self.say(users_line(), units=len(sizes), largest=largest, total=total, layer=layers[0], layers=layers[1])


def _units(module: Any) -> list[int]:  # noqa: ANN401
    """How many numbers each unit gathers; empty for what is no FSDP module. The states of FSDP2 know one another."""
    if is_fsdp2(module):
        states = module._get_fsdp_state()._state_ctx.all_states
        groups = [getattr(state, "_fsdp_param_group", None) for state in states]
        return [sum(p._orig_size.numel() for p in group.fsdp_params) for group in groups if group is not None]
    fsdp_modules = getattr(type(module), "fsdp_modules", None)
    if not callable(fsdp_modules):
        return []
    handles = (getattr(unit, "_handle", None) for unit in fsdp_modules(module))
    return [h.flat_param._unpadded_unsharded_size.numel() for h in handles if h is not None]


def _repeated(module: Any) -> tuple[str, int] | None:  # noqa: ANN401
    """The kind of layer of which a list or dict within the model has most, and how many: what would be units."""
    found: tuple[str, int] | None = None
    for one in module.modules():
        if not _CONTAINERS & {cls.__name__ for cls in type(one).__mro__}:  # FSDP2 puts a class before each
            continue
        kinds: dict[str, int] = {}
        for child in one.children():
            if any(True for _ in child.parameters()):
                kinds[type(child).__name__] = kinds.get(type(child).__name__, 0) + 1
        for kind, count in kinds.items():
            if count >= 2 and (found is None or count > found[1]):
                found = kind, count
    return found
