"""What each layer gathers and reduces under FSDP2 in a job of many ranks, without one: tensors and peers are fake.

torch's fake process group answers at once, and fake tensors hold no data: the full model's pass costs no memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from distdbg.shrink.probe.building import Builder, brief
from distdbg.shrink.verify.grounds import Fake
from distdbg.shrink.verify.inputs import inputs_for
from distdbg.shrink.verify.kept import PASS, Kept, each_layer
from distdbg.shrink.verify.modalities import inputs_like, inputs_of, modalities
from distdbg.shrink.verify.running import prepared
from distdbg.shrink.verify.values import Values, built

#: ranks of the job that is not there: each costs time, and what is gathered in all is the same for any number
RANKS = 8

#: layer path -> (collective, elements) -> how often
ByLayer = dict[str, Counter[tuple[str, int]]]


def compare_collectives(full: Builder, small: Builder, stacks: Sequence[Kept]) -> str:
    """`pass` where each kept layer gathers and reduces what the one it stands for does, in a pass through both models;
    a warning where another layer of its kind does not.

    A model that takes an image or a sound, in a text where it takes one, is asked with that; what it does not reach,
    in a pass with what does.
    """
    a: ByLayer = {}
    b: ByLayer = {}
    why = ""
    with _fake_job():
        # an image in a text reaches the text's layers as well: what reaches more is asked first
        for modality in (*modalities(full.model(full.full)), ""):
            if not (silent := _silent(stacks, b)):
                break
            heard = [stack.path for stack in stacks if stack not in silent]
            try:
                there, inputs = by_layer(full, silent, whole=True, modality=modality, beside=heard)
                here, _ = by_layer(small, silent, whole=False, modality=modality, beside=heard, known=inputs)
            except Exception as error:
                why = f": {brief(error)}"
                continue
            a, b = {**there, **a}, {**here, **b}
    return _judged(a, b, stacks, why)


def _silent(stacks: Sequence[Kept], found: ByLayer) -> list[Kept]:
    """No collective was seen of any of their layers."""
    return [s for s in stacks if not any(found.get(f"{s.path}.{i}") for i in range(len(s.kept)))]


def _judged(a: ByLayer, b: ByLayer, stacks: Sequence[Kept], why: str) -> str:
    silent = [stack.path for stack in _silent(stacks, b)]
    if len(silent) == len(stacks):
        return f"not run, because no collective was seen of any layer{why}"
    for stack in stacks:
        for new, old in enumerate(stack.kept):
            there, here = a.get(f"{stack.path}.{old}", Counter()), b.get(f"{stack.path}.{new}", Counter())
            if there != here:
                odd, count = next(iter(((there - here) or (here - there)).items()))
                return f"fail: {stack.path}.{new} is unlike layer {old} in {count} x {odd[0]} of {odd[1]} elements"
    for stack in stacks:
        said = each_layer(stack, {"collectives": a})
        if said != PASS:
            return said.replace("warning: ", f"warning: {stack.path}: ", 1)
    return PASS if not silent else f"not run, because no input reaches {', '.join(silent)}{why}; pass for the others"


def costs(small: Builder, stacks: Sequence[Kept]) -> dict[str, list[Any]]:
    """Collectives of a step, and bytes gathered in them, as `[in all, {layer path: of it}]`. Raises what they raise."""
    with _fake_job():
        found, _ = by_layer(small, stacks, whole=False)
    calls = Counter({path: sum(counts.values()) for path, counts in found.items()})
    gathered = Counter(
        {
            path: sum(size * 4 * number for (name, size), number in counts.items() if "gather" in name)
            for path, counts in found.items()
        }
    )
    return {"collectives": [sum(calls.values()), calls], "gathered_bytes": [sum(gathered.values()), gathered]}


def by_layer(
    builder: Builder,
    stacks: Sequence[Kept],
    *,
    whole: bool,
    modality: str = "",
    beside: Sequence[str] = (),
    known: dict[str, Any] | None = None,
) -> tuple[ByLayer, dict[str, Any]]:
    """One forward and backward pass of the model with each layer wrapped, and then all of it; and what it was given.
    Raises what it raises.

    beside: paths of stacks that stay as they are: sharding a layer over so many ranks is most of the work. known: what
    another model was given.
    """
    from torch._subclasses import FakeTensorMode
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    found: ByLayer = defaultdict(Counter)
    inside: list[str] = []
    model: Any = built(lambda: prepared(builder.model(builder.full)))
    # while the model is on meta, where it may try what runs
    if not modality:
        inputs = inputs_for(model)
    else:
        inputs = inputs_like(known, model, modality) if known else inputs_of(model, modality)
    mesh = init_device_mesh("cpu", (RANKS,))
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, ExitStack() as stack:
        values = Values(Fake(fake))
        _as_fake(model, values)
        for one in stacks:
            for number in range(one.layers if whole else len(one.kept)):
                fully_shard(model.get_submodule(f"{one.path}.{number}"), mesh=mesh)
        left = {p for path in beside for p in model.get_submodule(path).parameters()}
        scalars = {p for p in model.parameters() if p.dim() == 0}  # which FSDP2 does not shard
        fully_shard(model, mesh=mesh, ignored_params=left | scalars)
        model.train()
        stack.enter_context(_told_groups(inside))
        stack.enter_context(_mode(found, inside, values))
        stack.enter_context(_numbers())
        output = model(**{name: _on_the_cpu(value) for name, value in inputs.items()})
        sum(t.float().sum() for t in _tensors(output) if t.requires_grad).backward()
    return found, inputs


def _as_fake(model: Any, values: Values) -> None:
    """From meta to fake tensors that say they are on a CPU; weights that are tied stay so."""
    import torch

    known: dict[int, Any] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is None:
                    continue
                if id(tensor) not in known:
                    new = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
                    values.alike(new, tensor)
                    known[id(tensor)] = (tensor, torch.nn.Parameter(new, new.is_floating_point())
                                         if held is module._parameters else new)  # fmt: skip
                held[name] = known[id(tensor)][1]


def _on_the_cpu(value: Any) -> Any:
    import torch

    on_meta = isinstance(value, torch.Tensor) and value.is_meta
    return torch.zeros(value.shape, dtype=value.dtype) if on_meta else value


def _tensors(output: Any) -> Iterator[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    yield from (leaf for leaf in tree_leaves(dict(output)) if isinstance(leaf, torch.Tensor))


@contextmanager
def _told_groups(inside: list[str]) -> Iterator[None]:
    """While FSDP gathers or reduces a layer's parameters, the layer is the last of `inside`."""
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

    plain = {name: getattr(FSDPParamGroup, name) for name in ("unshard", "post_backward")}

    def told(method: Any) -> Any:
        def call(group: Any, *args: Any, **kwargs: Any) -> Any:
            inside.append(group._module_fqn or "")
            try:
                return method(group, *args, **kwargs)
            finally:
                inside.pop()

        return call

    for name, method in plain.items():
        setattr(FSDPParamGroup, name, told(method))
    try:
        yield
    finally:
        for name, method in plain.items():
            setattr(FSDPParamGroup, name, method)


def _mode(found: ByLayer, inside: list[str], values: Values) -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function.namespace in ("c10d", "_c10d_functional") and inside and isinstance(args[0], torch.Tensor):
                found[inside[-1]][str(function._opname), args[0].numel()] += 1
            if inside:  # FSDP's own copies of parameters, whose content nobody knows
                return function(*args, **(kwargs or {}))
            return values.call(function, args, kwargs or {})

    return Mode()


def _numbers() -> Any:
    """`torch.tensor` of tensors takes their numbers: it would read memory that fake ones do not have."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_map_only

    class Mode(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.tensor:
                args = tree_map_only(torch.Tensor, lambda t: t.tolist(), args)
            return function(*args, **(kwargs or {}))

    return Mode()


@contextmanager
def _fake_job() -> Iterator[None]:
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
