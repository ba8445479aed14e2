"""Detect how a model is divided into FSDP units, and what that costs."""

from __future__ import annotations

from types import FrameType
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.guards.shared.units import LARGE, Unit, UnitsGuard, containers_of, kind_of, units_of
from distdbg.worker.models import is_fsdp1, is_fsdp2, plain_name
from distdbg.worker.user_code import users_line


class FsdpDtypeMismatch(UnitsGuard):
    """Detect mixed precision of FSDP that has no effect, or widens, because of the parameters' dtypes.

    Mixed precision computes in half precision with parameters that the optimizer keeps in float32. Parameters in half
    precision leave nothing to mix."""

    id = "fsdp-dtype-mismatch"
    costs = "once, about 1 ms for 1,000 parameters"
    blind = "optimizers that keep float32 copies of their own"

    def judge(self, _module: Any, units: list[Unit]) -> None:
        judged = {_judged(unit) for unit in units if unit.trained}
        only = judged.pop() if len(judged) == 1 else None
        if only is not None:
            does, kept, computed = only
            self.report(users_line(), does=does, kept=kept, computed=computed)


def _judged(unit: Unit) -> tuple[str, str, str] | None:
    """(`nothing` or `widens`, dtype at rest, dtype that is asked for), where it is one of these."""
    asked = getattr(unit.policy, "param_dtype", None)
    if len(unit.trained) != 1 or asked is None:
        return None
    (kept,) = unit.trained
    names = str(kept).removeprefix("torch."), str(asked).removeprefix("torch.")
    # where reductions, buffers or outputs have another dtype mixed precision has an effect
    others = [getattr(unit.policy, name, None) for name in ("reduce_dtype", "buffer_dtype", "output_dtype")]
    if kept.itemsize == 2 and kept == asked and all(other in (None, asked) for other in others):
        return ("nothing", *names)
    return ("widens", *names) if kept.itemsize < asked.itemsize else None


#: A layer that is much smaller than its siblings may well have been left out by a policy that goes by size.
_AS_LARGE = 0.9
_MOST_NAMES = 5


class FsdpLayerLeftOut(UnitsGuard):
    """Detect a layer that is no FSDP unit although most layers of its kind beside it are."""

    id = "fsdp-layer-left-out"
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
    for path, container in containers_of(module):
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


_SHARE = 0.9


class FsdpSingleUnit(UnitsGuard):
    """Detect FSDP with one unit for a model of many layers: all of it is gathered at once."""

    id = "fsdp-single-unit"
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
    for _, container in containers_of(module):
        kinds: dict[str, int] = {}
        for child in container.children():
            if any(True for _ in child.parameters()):
                kinds[type(child).__name__] = kinds.get(type(child).__name__, 0) + 1
        for kind, count in kinds.items():
            if count >= 2 and (found is None or count > found[1]):
                found = kind, count
    return found


class FullStateDictGather(Guard):
    """Detect that each rank gathers the whole state of a sharded model on its own device."""

    id = "full-state-dict-gather"
    costs = "about 1 ms for each state_dict of a sharded model with 1,000 parameters"
    blind = (
        "models of under 10 million parameters; parameters that a script gathers one by one (full_tensor, "
        "summon_full_params)"
    )

    def begin(self) -> None:
        self.listen("state-dict", self._asked)

    def _asked(self, frame: FrameType) -> None:
        variables = frame.f_locals
        model, options, state = (variables.get(name) for name in ("model", "options", "fsdp_state"))
        if state is not None:
            model = variables.get("module")
            whole = frame.f_code.co_name == "_full_pre_state_dict_hook" and state._is_root is not False
            offloads = getattr(state._state_dict_config, "offload_to_cpu", False)
        else:
            whole = getattr(options, "full_state_dict", False) and frame.f_code.co_name.startswith("get_")
            offloads = getattr(options, "cpu_offload", False)
        if model is None or not whole or offloads:
            return
        parameters, size, device = _whole_size(model)
        optimizers = variables.get("optimizers") or ()
        if parameters >= LARGE:
            self.report(users_line(), bytes=size, parameters=parameters, device=device, with_optimizer=bool(optimizers))


def _whole_size(model: Any) -> tuple[int, int, str]:
    """Elements, bytes and device of the gathered parameters; 0 for a model that is not sharded."""
    numbers = size = 0
    # after an evaluation the outermost unit of FSDP2 is still gathered, and shows no shards
    device, sharded = "", is_fsdp1(model) or any(map(is_fsdp2, model.modules()))
    for parameter in model.parameters():
        sharded = sharded or any(p.is_shard() for p in getattr(parameter, "placements", ()))
        numbers += parameter.numel()  # of FSDP2's, that of the whole
        size += parameter.numel() * parameter.element_size()
        device = parameter.device.type
    if is_fsdp1(model) and numbers:
        whole = sum(unit.size for unit in units_of(model))
        size, numbers = whole * size // numbers, whole
    return (numbers, size, device) if sharded else (0, 0, device)
