"""The task `costs`: what the small model costs, in all and by layer, measured on the meta device."""

from __future__ import annotations

from collections import Counter
from typing import Any

from distdbg.shrink.probe.building import open_builder
from distdbg.shrink.probe.task import quiet
from distdbg.shrink.verify import collectives
from distdbg.shrink.verify.inputs import inputs_for
from distdbg.shrink.verify.kept import kept_of
from distdbg.shrink.verify.measuring import measure
from distdbg.shrink.verify.task import on_meta


def run(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: small (folder), stacks, trust, tokens. Cost -> [total, {layer path: cost}]; tied weights count once.

    Collectives are left out where the model does not run under FSDP2.
    """
    quiet()
    builder = open_builder(task["small"], task["trust"])
    model = on_meta(builder)
    stacks = [(path, len(s["kept"])) for s in task["stacks"] for path in (s["path"], *s["also"])]
    layers = [f"{path}.{i}" for path, count in stacks for i in range(count)]
    found = measure(model, model, inputs_for(model, task["tokens"]), layers)
    parameters: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        parameters[next((p for p in layers if name.startswith(f"{p}.")), "")] += parameter.numel()
    kept = kept_of(task["stacks"], {})
    try:
        told = collectives.costs(builder, kept)
    except Exception:
        told = {}
    return told | {
        "parameters": [sum(parameters.values()), parameters],
        "flops": [sum(found.flops.values()), found.flops],
        "activation_bytes": [sum(found.saved.values()), found.saved],
    }
