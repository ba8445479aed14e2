"""The task `memory`: what one training step of a model needs, by torch's own MemTracker on tensors without bytes.

Two steps are tracked, because the first has no optimizer state yet; the second is reported, its forward and backward
apart from its optimizer's step. FakeTensorMode computes shapes only: a model of billions takes seconds and no memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from distdbg.errors import Refused, ToolMissing
from distdbg.shrink.estimate.estimating import EstimateRequest, Made
from distdbg.shrink.estimate.fitting import TrackedSteps, fits
from distdbg.shrink.estimate.without_bytes import stand_ins

#: MemTracker's kinds, in our words
_KINDS = {"PARAM": "parameters", "BUFFER": "buffers", "GRAD": "gradients", "OPT": "optimizer state",
          "ACT": "activations", "TEMP": "workspace", "OTH": "other"}  # fmt: skip


class ModelSource(Protocol):
    """A source of models. `positions` and `layers` are None where they are not known."""

    @property
    def positions(self) -> int | None: ...
    @property
    def layers(self) -> int | None: ...
    def make(self, wanted: EstimateRequest) -> Made | str: ...


def run(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: folder (of a config.json) or script (`module:function`), wanted; to know what fits, ranks, fsdp and room.

    Returns `step`, bytes by kind of each part of a step, and with `room` (bytes) `fits`, fields of fitting.LargestFit.
    """
    wanted = EstimateRequest(**task["wanted"])
    source = _source(task, wanted)
    step = _step(source, wanted)
    if "room" not in task:
        return {"step": step}

    def look(asked: Sequence[EstimateRequest]) -> TrackedSteps:
        return TrackedSteps(tuple(_step(source, one) for one in asked), source.positions, source.layers)

    found = fits(wanted, task["ranks"], task["fsdp"], task["room"], look)
    return {"step": step, "fits": [asdict(one) for one in found]}


def _source(task: dict[str, Any], wanted: EstimateRequest) -> ModelSource:
    if "script" in task:
        from distdbg.shrink.estimate.script_model import ScriptModel

        return ScriptModel(task["script"], wanted)
    from distdbg.shrink.estimate.config_model import ConfigModel

    return ConfigModel(task["folder"], wanted.trust)


def _step(source: ModelSource, wanted: EstimateRequest) -> dict[str, Any]:
    """`because` where there is no such model."""
    import torch

    try:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.distributed._tools import MemTracker  # noqa: F401
    except ImportError:
        raise ToolMissing("this torch has no MemTracker", "Use torch 2.5 or newer.") from None
    with FakeTensorMode(), stand_ins():
        made = source.make(wanted)
        if isinstance(made, str):
            return {"because": made}
        model = made.model
        layers = {id(layer) for layer in wrapped(model)}
        names = {f"{type(model).__name__}.{name}" for name, module in model.named_modules() if id(module) in layers}
        if wanted.checkpointing:
            if not getattr(model, "supports_gradient_checkpointing", False):
                raise Refused(f"{type(model).__name__} has no gradient checkpointing", "Leave --checkpointing out.")
            model.gradient_checkpointing_enable({"use_reentrant": False})
        optimizer = _optimizer(model, wanted.optimizer)

        def forward_backward() -> None:
            with torch.autocast("cpu", torch.bfloat16, enabled=wanted.dtype == "amp"):
                loss = made.loss()
            loss.backward()

        def tracked(call: Callable[[], Any]) -> Any:
            tracker = _tracker(names)
            tracker.track_external(model, optimizer)
            with tracker:
                call()
            return tracker

        forward_backward()
        optimizer.step()
        optimizer.zero_grad()
        first = tracked(forward_backward)
        second = tracked(optimizer.step)
        gradients = sum(p.grad.untyped_storage().nbytes() for p in model.parameters() if p.grad is not None)
    return {"forward and backward": first.highest(), "within layers": first.highest(True),
            "outside layers": first.highest(False), "optimizer": second.highest(), "gradients": gradients,
            "unheard": made.unheard, **_parts(model)}  # fmt: skip


def _tracker(layers: Collection[str]) -> Any:
    """torch's MemTracker, which also keeps the highest point while one of `layers` is computed, and while none is."""
    import torch
    from torch.distributed._tools import MemTracker

    class Tracker(MemTracker):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._found: dict[bool, dict[Any, int]] = {}

        def _update_peak_stats(self, peak_state: Any) -> None:
            super()._update_peak_stats(peak_state)
            now = self._curr_mem_snap.get(torch.device("cpu"), {})
            within = any(name in self._mod_tracker.parents for name in layers)
            if now and self._found.get(within, {}).get("Total", 0) < now["Total"]:
                self._found[within] = dict(now)

        def highest(self, within: bool | None = None) -> dict[str, int]:
            """The peak; also where no point of this kind was seen, as of a model without layers."""
            peak = self.get_tracker_snapshot("peak").get(torch.device("cpu"), {})
            return _kinds(peak if within is None else self._found.get(within) or peak)

    return Tracker()


def _optimizer(model: Any, name: str) -> Any:
    import torch

    if name == "adamw":
        return torch.optim.AdamW(model.parameters(), foreach=True)
    return torch.optim.SGD(model.parameters(), momentum=0.9, foreach=True)


def _kinds(sizes: dict[Any, int]) -> dict[str, int]:
    """Bytes by kind, from a snapshot of MemTracker; its kinds are members of an enumeration, or words."""
    found = {str(kind).rpartition(".")[2].upper(): int(size) for kind, size in sizes.items()}
    return {words: found.get(kind, 0) for kind, words in _KINDS.items()}


def _parts(model: Any) -> dict[str, Any]:
    """Bytes of parameters: in all, of each layer that FSDP2 is given, and of what is in none of them."""
    layers = wrapped(model)
    inside = {id(p) for layer in layers for p in layer.parameters()}
    outside = [p for p in model.parameters() if id(p) not in inside]
    sizes = [_bytes(layer.parameters()) for layer in layers]
    return {"parameters": _bytes(model.parameters()), "layers": sizes, "outside": _bytes(outside)}


def _bytes(parameters: Any) -> int:
    return sum({id(p): p.numel() * p.element_size() for p in parameters}.values())


def wrapped(model: Any) -> list[Any]:
    """The entries of the stacks: of those whose blocks the model names itself (`_no_split_modules`, which Accelerate
    goes by), else of the outermost. Blocks are modules that consist of modules; of plain ones, the longest list."""
    named = set(getattr(model, "_no_split_modules", None) or ())
    found = _outermost(model, named) or (_outermost(model, set()) if named else [])
    return found or max((entries for m in model.modules() if (entries := _entries(m))), key=len, default=[])


def _outermost(module: Any, named: set[str]) -> list[Any]:
    """Blocks of lists, none within another; with `named` of lists that hold one of such a class."""
    blocks = _blocks(module)
    if blocks and (not named or any(type(block).__name__ in named for block in blocks)):
        return blocks
    return [block for child in module.children() for block in _outermost(child, named)]


def _blocks(module: Any) -> list[Any]:
    """Of a dict or a sequence, which may hold all of a model (nanoGPT's), those of a class that is there again."""
    from torch import nn

    entries = _entries(module)
    if not any(list(entry.children()) for entry in entries):
        return []
    if isinstance(module, nn.ModuleList):
        return entries
    often = Counter(type(entry) for entry in entries)
    return [entry for entry in entries if often[type(entry)] > 1 and list(entry.children())]


def _entries(module: Any) -> list[Any]:
    """What a container holds, where that is more than one module with parameters."""
    from torch import nn

    if not isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential):
        return []
    entries = [child for child in module.children() if next(child.parameters(), None) is not None]
    return entries if len(entries) > 1 else []
