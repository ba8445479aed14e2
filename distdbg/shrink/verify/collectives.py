"""Predict what each layer gathers and reduces under FSDP2 with many ranks, on fake tensors and fake peers.

torch's fake process group answers at once, and fake tensors hold no data: the full model's pass costs no memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from distdbg.shrink.probe.building import Builder, brief, in_short
from distdbg.shrink.verify.inputs import inputs_for
from distdbg.shrink.verify.kept import PASS, KeptStack, each_layer
from distdbg.shrink.verify.modalities import inputs_like, inputs_of, modalities
from distdbg.shrink.verify.values import Fake, KnownValues, function_mode, operator_mode, runnable, tensors_in

#: ranks of the job that is not there: each costs time, and what is gathered in all is the same for any number
RANKS = 8

#: layer path -> (collective, elements) -> how often
ByLayer = dict[str, Counter[tuple[str, int]]]


def compare_collectives(full: Builder, small: Builder, stacks: Sequence[KeptStack], *, sampled: bool = False) -> str:
    """`pass` where each kept layer gathers and reduces what the one it stands for does, in a pass through both models;
    a warning where another layer of its kind does not.

    A model that takes an image or a sound gets one, within a text where it can. Layers that this does not reach get
    another pass, with inputs that reach them.

    sampled: of the layers of a kind that are not kept, the last stands for all.
    """
    alike = {path for stack in stacks for path in stack.in_between()} if sampled else set()
    a: ByLayer = {}
    b: ByLayer = {}
    why = ""
    with _fake_job():
        # an image in a text reaches the text's layers as well: what reaches more is asked first
        for modality in (*modalities(full.bare), ""):
            if not (silent := _silent(stacks, b)):
                break
            reached = [stack.path for stack in stacks if stack not in silent]
            try:
                there, inputs = by_layer(full, silent, whole=True, modality=modality, beside=reached, alike=alike)
            except Exception as error:
                why = f": {in_short(error)}"
                continue
            try:
                here, _ = by_layer(small, silent, whole=False, modality=modality, beside=reached, known=inputs)
            except Exception as error:
                return f"fail: the full model runs under FSDP2, the small one raises {brief(error)}"
            a, b = {**there, **a}, {**here, **b}
    return _judged(a, b, stacks, alike, why)


def _silent(stacks: Sequence[KeptStack], found: ByLayer) -> list[KeptStack]:
    """No collective was seen of any of their layers."""
    return [s for s in stacks if not any(found.get(f"{s.path}.{i}") for i in range(len(s.kept)))]


def _judged(a: ByLayer, b: ByLayer, stacks: Sequence[KeptStack], alike: Collection[str], why: str) -> str:
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
        said = each_layer(stack, {"collectives": a}, alike)
        if said.startswith("warning"):
            return said.replace("warning: ", f"warning: {stack.path}: ", 1)
    return PASS if not silent else f"not run, because no input reaches {', '.join(silent)}{why}; pass for the others"


def costs(small: Builder, stacks: Sequence[KeptStack]) -> dict[str, list[Any]]:
    """Collectives of a step, and bytes gathered in them, as `[in all, {layer path: of it}]`. Raises what they raise."""
    with _fake_job():
        found, _ = by_layer(small, stacks, whole=False)
    calls = Counter({path: sum(counts.values()) for path, counts in found.items()})
    gathered: Counter[str] = Counter()
    for path, counts in found.items():
        gathered[path] = sum(size * 4 * number for (name, size), number in counts.items() if "gather" in name)
    return {"collectives": [sum(calls.values()), calls], "gathered_bytes": [sum(gathered.values()), gathered]}


def by_layer(
    builder: Builder,
    stacks: Sequence[KeptStack],
    *,
    whole: bool,
    modality: str = "",
    beside: Sequence[str] = (),
    alike: Collection[str] = (),
    known: dict[str, Any] | None = None,
) -> tuple[ByLayer, dict[str, Any]]:
    """One forward and backward pass of the model with each layer wrapped, and then all of it; and what it was given.
    Raises what it raises.

    Of a layer that runs several times in a pass, what is gathered counts once.

    beside: paths of stacks that stay as they are: sharding a layer over so many ranks is most of the work. alike: paths
    of layers for which one of their kind is run, as far as these give a tensor like the one they are given. known: what
    another model was given.
    """
    import torch
    from torch._subclasses import FakeTensorMode
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.utils._pytree import tree_map_only

    found: ByLayer = defaultdict(Counter)
    calls: Counter[str] = Counter()
    inside: list[str] = []

    def count(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if function.namespace in ("c10d", "_c10d_functional") and inside and isinstance(args[0], torch.Tensor):
            found[inside[-1]][str(function._opname), args[0].numel()] += 1
        if inside:  # FSDP's own copies of parameters, whose content nobody knows
            return function(*args, **kwargs)
        return values.call(function, args, kwargs)

    def by_number(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """`torch.tensor` of tensors takes their numbers: it would read memory that fake ones do not have."""
        if function is torch.tensor:
            args = tree_map_only(torch.Tensor, lambda t: t.tolist(), args)
        return function(*args, **kwargs)

    def on_the_cpu(value: Any) -> Any:
        return torch.zeros(value.shape, dtype=value.dtype) if value.is_meta else value

    model = runnable(builder, builder.full)
    # while the model is on meta, where it may try what runs
    if not modality:
        inputs = inputs_for(model)
    else:
        inputs = inputs_like(known, model, modality) if known else inputs_of(model, modality)
    mesh = init_device_mesh("cpu", (RANKS,))
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, ExitStack() as stack:
        values = KnownValues(Fake(fake))
        aside = {id(m) for path in alike for m in model.get_submodule(path).modules()}
        turned: dict[int, Any] = {}
        _as_fake([m for m in model.modules() if id(m) not in aside], values, turned)
        for one in stacks:
            layers = [f"{one.path}.{i}" for i in range(one.layers if whole else len(one.kept))]
            run = [path for path in layers if path not in alike]
            for path in run:
                layer = model.get_submodule(path)
                layer.register_forward_pre_hook(lambda _layer, _given, path=path: calls.update([path]))
                fully_shard(layer, mesh=mesh)
            others = [model.get_submodule(path) for path in layers if path in alike]
            _pass_on(model, run, others, lambda layer: _as_fake(layer.modules(), values, turned))
        left = {p for path in (*beside, *alike) for p in model.get_submodule(path).parameters()}
        scalars = {p for p in model.parameters() if p.dim() == 0}  # which FSDP2 does not shard
        fully_shard(model, mesh=mesh, ignored_params=left | scalars)
        model.train()
        stack.enter_context(_named_groups(inside))
        stack.enter_context(operator_mode(count))
        stack.enter_context(function_mode(by_number))
        output = model(**tree_map_only(torch.Tensor, on_the_cpu, inputs))
        sum(t.float().sum() for t in tensors_in(output) if t.requires_grad).backward()
    for path in (path for path, number in calls.items() if number > 1):
        # FSDP gathers such a layer again where it did not keep it: that depends on how many layers there are
        found[path] = Counter(dict.fromkeys(found[path], 1))
    return found, inputs


def _pass_on(model: Any, run: Sequence[str], others: Sequence[Any], prepare: Callable[[Any], None]) -> None:
    """The layers `others` give what they are given, while all that have been `run` gave a tensor like it. Others are
    prepared, and run."""
    import torch

    unlike: list[str] = []
    ready: list[Any] = []

    def look(_layer: Any, given: Any, result: Any) -> None:
        both = bool(given) and isinstance(given[0], torch.Tensor) and isinstance(result, torch.Tensor)
        if not both or (given[0].shape, given[0].dtype) != (result.shape, result.dtype):
            unlike.append("")

    def passing(layer: Any, plain: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if args and not unlike:
                return args[0]
            if layer not in ready:
                prepare(layer)
                ready.append(layer)
            return plain(*args, **kwargs)

        return call

    if others:
        for path in run:
            model.get_submodule(path).register_forward_hook(look)
    for layer in others:
        layer.forward = passing(layer, layer.forward)


def _as_fake(modules: Iterable[Any], values: KnownValues, known: dict[int, Any]) -> None:
    """Turn meta tensors into fake tensors that claim to be on a CPU; tied weights stay tied. `known`: what was turned
    before."""
    import torch

    for module in modules:
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


@contextmanager
def _named_groups(inside: list[str]) -> Iterator[None]:
    """While FSDP gathers or reduces a layer's parameters, the layer is the last of `inside`."""
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

    plain = {name: getattr(FSDPParamGroup, name) for name in ("unshard", "post_backward")}

    def named(method: Any) -> Any:
        def call(group: Any, *args: Any, **kwargs: Any) -> Any:
            inside.append(group._module_fqn or "")
            try:
                return method(group, *args, **kwargs)
            finally:
                inside.pop()

        return call

    for name, method in plain.items():
        setattr(FSDPParamGroup, name, named(method))
    try:
        yield
    finally:
        for name, method in plain.items():
            setattr(FSDPParamGroup, name, method)


@contextmanager
def _fake_job() -> Iterator[None]:
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
