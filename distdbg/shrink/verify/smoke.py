"""The task `smoke`: one forward and backward pass, one step of an optimizer, and a few tokens, with the weights."""

from __future__ import annotations

from typing import Any

from distdbg.shrink.probe.building import brief, in_short, open_builder
from distdbg.shrink.probe.task import quiet
from distdbg.shrink.verify.inputs import inputs_for
from distdbg.shrink.verify.kept import PASS
from distdbg.shrink.verify.reloading import load_model
from distdbg.shrink.verify.task import on_meta
from distdbg.shrink.verify.values import tensors_in

_TOKENS = 4


def smoke(task: dict[str, Any]) -> str:
    """`task`: small (folder), trust. `pass; …`, `fail: …`, `warning: …` or `not run, because …`."""
    quiet()
    builder = open_builder(task["small"], task["trust"])
    try:
        inputs = _real(inputs_for(on_meta(builder)))
    except Exception as error:
        return f"not run, because of {in_short(error)}"
    try:
        model, _ = load_model(task["small"], builder, task["trust"])
        _train(model, inputs)
    except Exception as error:
        return f"fail: {brief(error)}"
    done = f"{PASS}; forward, backward and a step of SGD gave finite numbers"
    if not model.can_generate():
        return done
    try:
        given = {name: value for name, value in inputs.items() if name != "use_cache"}
        model.eval().generate(**given, max_new_tokens=_TOKENS, do_sample=False)
    except Exception as error:
        return f"warning: generate raises {brief(error)}; {done.removeprefix(f'{PASS}; ')}"
    return f"{done}; generate gave {_TOKENS} tokens"


def _real(inputs: dict[str, Any]) -> dict[str, Any]:
    """What was on meta has a content: ones."""
    import torch

    return {
        name: torch.ones(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) and value.is_meta else value
        for name, value in inputs.items()
    }


def _train(model: Any, inputs: dict[str, Any]) -> None:
    """Raises ArithmeticError where a number is not finite."""
    import torch

    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    outputs = [t for t in tensors_in(model(**inputs)) if t.requires_grad]
    if not all(bool(t.isfinite().all()) for t in outputs):
        raise ArithmeticError("an output is not finite")
    sum(t.float().square().mean() for t in outputs).backward()
    optimizer.step()
    odd = [name for name, p in model.named_parameters() if not bool(p.isfinite().all())]
    if odd:
        raise ArithmeticError(f"{odd[0]} is not finite after a step")
