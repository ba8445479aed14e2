"""Describe the units of FSDP1 and FSDP2: what each gathers at once, and its dtypes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from distdbg.protocol.names import MODULE_WRAPPERS
from distdbg.worker.guards.shared.base import Guard, parameter_groups
from distdbg.worker.models import is_fsdp2

#: Classes whose children are layers in a row.
_CONTAINERS = {"ModuleList", "ModuleDict", "Sequential"}
#: Smaller models, by their parameters, fit wherever they are: what is gathered at once does not matter.
LARGE = 10_000_000


class Unit:
    """`heads` are the modules whose forward gathers it. `shares`: (a module, how many numbers of its own it has here).

    `trained` are the dtypes at rest of its parameters that want gradients, and `policies` the mixed precision that the
    script gave for these. `over` so many ranks it is sharded.
    """

    def __init__(
        self, heads: Iterable[Any], shares: list[tuple[Any, int]], trained: set[Any], policies: list[Any], over: int
    ) -> None:
        self.heads, self.shares, self.trained, self.policies, self.over = tuple(heads), shares, trained, policies, over

    @property
    def policy(self) -> Any:
        """The mixed precision of all its parameters; None where they have none, or different ones."""
        first = self.policies[0] if self.policies else None
        return first if all(policy == first for policy in self.policies) else None

    @property
    def size(self) -> int:
        return sum(numbers for _, numbers in self.shares)


class UnitsGuard(Guard):
    """Judges each model once a window, before a forward."""

    def window(self) -> None:
        self.listen_in_window(forward=self._forward)

    def judge(self, module: Any, units: list[Unit]) -> None:
        """`units` is empty where it is no FSDP model."""
        raise NotImplementedError

    def _forward(self, module: Any) -> None:
        if self.is_first(module):
            self.judge(module, units_of(module))


def containers_of(module: Any) -> Iterator[tuple[str, Any]]:
    """(path, module) of each list, dict and sequence of layers. FSDP2 puts a class before each."""
    for path, inner in module.named_modules():
        if _CONTAINERS & {cls.__name__ for cls in type(inner).__mro__}:
            yield path, inner


def units_of(module: Any) -> list[Unit]:
    """Units with parameters; empty for other modules. The states of FSDP2 know each other."""
    if is_fsdp2(module):
        states = module._get_fsdp_state()._state_ctx.all_states
        return [_second(group) for state in states for group in parameter_groups(state)]
    fsdp_modules = getattr(type(module), "fsdp_modules", None)
    if not callable(fsdp_modules):
        return []
    return [_first(unit) for unit in fsdp_modules(module) if getattr(unit, "_handle", None) is not None]


def holds_unreduced(module: Any) -> bool:
    """Whether FSDP2 keeps gradients of a backward that it did not reduce: the parameters themselves have none then."""
    states = module._get_fsdp_state()._state_ctx.all_states if is_fsdp2(module) else ()
    parameters = (p for state in states for group in parameter_groups(state) for p in group.fsdp_params)
    return any(
        getattr(getattr(p, "_unsharded_param", None), "grad", None) is not None
        or getattr(p, "unsharded_accumulated_grad", None) is not None
        for p in parameters
    )


def kind_of(module: Any) -> str:
    """The script's class of a layer, inside the wrappers of FSDP, checkpointing and torch.compile."""
    while (
        inner := next((getattr(module, name) for name in MODULE_WRAPPERS if name in module._modules), None)
    ) is not None:
        module = inner
    classes = [cls.__name__ for cls in type(module).__mro__]
    return classes[classes.index("FSDPModule") + 1] if "FSDPModule" in classes else classes[0]


def policy_dtype(units: Iterable[Unit]) -> str:
    """`float16` or `bfloat16` where mixed precision computes in it what is trained in a wider type, else empty."""
    asked = {getattr(policy, "param_dtype", None) for u in units if u.trained for policy in u.policies}
    (dtype,) = asked if len(asked) == 1 else (None,)
    if dtype is None or dtype.itemsize != 2 or any(dtype in u.trained for u in units):
        return ""
    return str(dtype).removeprefix("torch.")


def _second(group: Any) -> Unit:
    shares = [(p._module_info.module, p._orig_size.numel()) for p in group.fsdp_params]
    trained = [p for p in group.fsdp_params if p.sharded_param.requires_grad]
    # torch 2.15 keeps it for each parameter, before that the group had it
    policies = [group.mp_policy] if hasattr(group, "mp_policy") else [p.mp_policy for p in trained]
    over = getattr(group.mesh_info, "shard_mesh_size", 1)
    return Unit(group.modules, shares, {p.sharded_param.dtype for p in trained}, policies, over)


def _first(unit: Any) -> Unit:
    handle = unit._handle
    flat = handle.flat_param
    shares = [(info.module, shape.numel()) for info, shape in zip(flat._param_infos, flat._shapes, strict=True)]
    trained = {handle._orig_param_dtype} if flat.requires_grad else set()
    over = unit.process_group.size() if handle.uses_sharded_strategy else 1
    return Unit((unit, unit._fsdp_wrapped_module), shares, trained, [unit.mixed_precision], over)
