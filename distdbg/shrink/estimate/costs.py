"""The task `costs`: what a small model costs, in all and by layer, on tensors without data."""

from __future__ import annotations

from collections import Counter
from typing import Any

from distdbg.errors import Refused
from distdbg.shrink.estimate.without_bytes import stand_ins
from distdbg.shrink.probe.building import brief, open_builder
from distdbg.shrink.probe.task import quiet
from distdbg.shrink.verify.inputs import inputs_for
from distdbg.shrink.verify.measuring import measure

#: FSDP2 gathers a layer's parameters before its forward and before its backward, and reduces its gradients
_COLLECTIVES_OF_A_LAYER, _GATHERS_OF_A_LAYER = 3, 2
#: what is in no layer stays gathered between forward and backward
_COLLECTIVES_OF_THE_REST = 2
_FLOAT32 = 4


def run(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: small (folder), stacks, trust, tokens. Returns cost -> [total, {layer path: cost}]; tied weights count
    once.

    Raises Refused if its forward cannot be run without data.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    quiet()
    builder = open_builder(task["small"], task["trust"])
    stacks = [(path, len(stack["kept"])) for stack in task["stacks"] for path in (stack["path"], *stack["also"])]
    paths = [f"{path}.{number}" for path, count in stacks for number in range(count)]
    with FakeTensorMode(), stand_ins():
        try:
            model = builder.with_random_weights(torch.float32).train()
            layers = {path: model.get_submodule(path) for path in paths}
            measured = measure(model, layers, **inputs_for(model, task["tokens"]))
        except Exception as error:
            raise Refused(f"the forward pass cannot be computed without data: {brief(error)}",
                          "Leave --extrapolate out.") from None  # fmt: skip
        parameters: Counter[str] = Counter()
        for name, parameter in model.named_parameters():
            parameters[next((path for path in paths if name.startswith(f"{path}.")), "")] += parameter.numel()
    collectives = Counter(dict.fromkeys(paths, _COLLECTIVES_OF_A_LAYER) | {"": _COLLECTIVES_OF_THE_REST})
    gathered = {path: number * _FLOAT32 * (_GATHERS_OF_A_LAYER if path else 1) for path, number in parameters.items()}
    by_layer = {
        "parameters": parameters,
        "flops": {path: one.flops for path, one in measured.items()},
        "activation_bytes": {path: one.saved for path, one in measured.items() if path},
        "collectives": collectives,
        "gathered_bytes": gathered,
    }
    return {cost: [sum(found.values()), found] for cost, found in by_layer.items()}
