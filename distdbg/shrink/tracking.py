"""The task `memory`: what one training step of a model needs, by torch's own MemTracker on tensors without bytes.

Two steps are tracked, because the first has no optimizer state yet; the second is told, its forward with its backward
apart from its optimizer's step. FakeTensorMode computes shapes only: a model of billions takes seconds and no memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from distdbg.errors import Refused, ToolMissing
from distdbg.shrink.config_leaves import Config, changed
from distdbg.shrink.estimating import Wanted
from distdbg.shrink.fitting import Looked, fits
from distdbg.shrink.probe.building import Builder, open_builder
from distdbg.shrink.probe.controls import Group, find_groups
from distdbg.shrink.probe.edits import edits_for, followers, lists_a_layer
from distdbg.shrink.probe.task import quiet

#: MemTracker's kinds, in our words
_KINDS = {"PARAM": "parameters", "BUFFER": "buffers", "GRAD": "gradients", "OPT": "optimizer state",
          "ACT": "activations", "TEMP": "workspace", "OTH": "other"}  # fmt: skip


def run(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: folder, wanted (estimating.Wanted); to know what fits, ranks, fsdp and room (bytes), too.

    Returns `step`, bytes by kind of each part of a step, and `fits`, fields of fitting.Fit, where `room` was given.
    """
    quiet()
    wanted = Wanted(**task["wanted"])
    builder = open_builder(task["folder"], wanted.trust)
    step = _tracked(builder, builder.full, wanted)
    if "room" not in task:
        return {"step": step}
    longest = getattr(builder.config(builder.full), "max_position_embeddings", None)
    positions, group = longest if isinstance(longest, int) else None, _layers_of(builder)

    def look(asked: Sequence[Wanted]) -> Looked:
        steps = tuple(_step(builder, group, one) for one in asked)
        return Looked(steps, positions, group.layers if group else None)

    return {
        "step": step,
        "fits": [asdict(one) for one in fits(wanted, task["ranks"], task["fsdp"], task["room"], look)],
    }


def _step(builder: Builder, group: Group | None, wanted: Wanted) -> dict[str, Any]:
    values = builder.full if wanted.layers is None else _with_layers(builder, group, wanted.layers)
    return {"because": values} if isinstance(values, str) else _tracked(builder, values, wanted)


def _tracked(builder: Builder, values: Config, wanted: Wanted) -> dict[str, Any]:
    import torch

    try:
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.distributed._tools import MemTracker
    except ImportError:
        raise ToolMissing("this torch has no MemTracker", "Use torch 2.5 or newer.") from None
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "amp": torch.float32}[wanted.dtype]
    with FakeTensorMode():
        model = _model(builder, values, dtype).train()
        if wanted.checkpointing:
            _checkpoint(model)
        optimizer = _optimizer(model, wanted.optimizer)
        batch = _batch(model, wanted.batch, wanted.sequence)

        def forward_backward() -> None:
            with torch.autocast("cpu", torch.bfloat16, enabled=wanted.dtype == "amp"):
                loss = model(**batch).loss
            loss.backward()

        def tracked(call: Callable[[], Any]) -> dict[str, int]:
            tracker = MemTracker()
            tracker.track_external(model, optimizer)
            with tracker:
                call()
            return _peak(tracker)

        forward_backward()
        optimizer.step()
        optimizer.zero_grad()
        first = tracked(forward_backward)
        second = tracked(optimizer.step)
        gradients = sum(p.grad.untyped_storage().nbytes() for p in model.parameters() if p.grad is not None)
    return {"forward and backward": first, "optimizer": second, "gradients": gradients, **_parts(model)}


def _layers_of(builder: Builder) -> Group | None:
    """The stack with the most layers of those that a field of the config resizes."""
    groups, _ = find_groups(builder)
    return max(groups, key=lambda group: group.layers, default=None)


def _with_layers(builder: Builder, group: Group | None, layers: int) -> Config | str:
    """The config with so many layers, the model's own from the first one, over again; or why there is none."""
    if group is None:
        return "nothing in the config decides how many layers the model has"
    keep = [at % group.layers for at in range(layers)]
    edits = edits_for(builder, group, keep, lists_a_layer(builder, group), [])
    values = changed(builder.full, edits | followers(builder, group, edits))
    found = builder.anatomy(values)
    if isinstance(found, Exception) or found.lists.get(group.stacks[0]) != layers:
        return f"the model cannot be built with {layers} layers"
    return values


def _model(builder: Builder, values: Config, dtype: Any) -> Any:
    """Made in this dtype: tensors without bytes cannot be turned into others in their place."""
    config = builder.config(values)
    if hasattr(builder.model_class, "from_config"):
        return builder.model_class.from_config(config, trust_remote_code=builder.trust, torch_dtype=dtype)
    return builder.model_class._from_config(config, torch_dtype=dtype)


def _checkpoint(model: Any) -> None:
    if not getattr(model, "supports_gradient_checkpointing", False):
        raise Refused(f"{type(model).__name__} has no gradient checkpointing", "Leave --checkpointing out.")
    model.gradient_checkpointing_enable({"use_reentrant": False})


def _optimizer(model: Any, name: str) -> Any:
    import torch

    if name == "adamw":
        return torch.optim.AdamW(model.parameters(), foreach=True)
    return torch.optim.SGD(model.parameters(), momentum=0.9, foreach=True)


def _batch(model: Any, size: int, length: int) -> dict[str, Any]:
    """Token ids that are their own labels."""
    import torch

    takes = inspect.signature(model.forward).parameters
    if not {"input_ids", "labels"} <= set(takes):
        raise Refused(
            f"{type(model).__name__} is not trained on tokens with labels", "Only such models are estimated so far."
        )
    longest = getattr(model.config, "max_position_embeddings", None)
    if isinstance(longest, int) and length > longest:
        raise Refused(f"the model knows {longest} positions, and {length} are asked for", "Lower --seq.")
    ids = torch.zeros(size, length, dtype=torch.long)
    more = {"use_cache": False} if "use_cache" in takes else {}
    return {"input_ids": ids, "labels": ids.clone(), **more}


def _peak(tracker: Any) -> dict[str, int]:
    import torch

    told = tracker.get_tracker_snapshot("peak").get(torch.device("cpu"), {})
    found = {str(kind).rpartition(".")[2].upper(): int(size) for kind, size in told.items()}
    return {words: found.get(kind, 0) for kind, words in _KINDS.items()}


def _parts(model: Any) -> dict[str, Any]:
    """Bytes of parameters: in all, of each layer of the longest list of layers, and of what is in none of them."""
    from torch import nn

    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) > 1]
    layers: Any = max(lists, key=len, default=[])
    sizes = [_bytes(layer.parameters()) for layer in layers]
    whole = _bytes(model.parameters())
    return {"parameters": whole, "layers": sizes, "outside": whole - sum(sizes)}


def _bytes(parameters: Any) -> int:
    return sum({id(p): p.numel() * p.element_size() for p in parameters}.values())
