"""Extrapolate the cost of the full model from the layers of a small one: kinds times their layers, and the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: a parameter, its gradient and AdamW's two moments, all in single precision
ADAMW_BYTES = 16


def extrapolated(total: float, by_layer: Mapping[str, float], stacks: Sequence[Mapping[str, Any]]) -> float:
    """The full model's cost, where `total` is the small one's and `by_layer` (layer path -> cost) its layers'.

    A layer that is not kept costs what the kept one of its kind does. Raises LookupError where a kind has none.
    """
    found = total
    for stack in stacks:
        new = {old: at for at, old in enumerate(stack["kept"])}
        for path in (stack["path"], *stack["also"]):
            for kind in stack["kinds"]:
                if not kind["kept"]:
                    raise LookupError(f"no layer stands for layers {kind['layers'][:5]} of {path}")
                cost = by_layer.get(f"{path}.{new[kind['kept'][-1]]}", 0)
                found += cost * (len(kind["layers"]) - len(kind["kept"]))
    return found


def extrapolation_lines(full: Mapping[str, float], tokens: int) -> Iterator[str]:
    """Lines for a terminal; `full` has parameters, flops and activation_bytes, and where known the collectives."""
    parameters = full["parameters"]
    yield "the full model, from the small one's layers:"
    yield f"  parameters            {parameters:,.0f}"
    state, kept = _size(parameters * ADAMW_BYTES), _size(full["activation_bytes"])
    yield f"  training state        {state}B (float32 weights, gradients, AdamW's moments)"
    yield f"  activations           {kept}B kept by its layers, float32, 1 x {tokens} tokens"
    yield f"  forward pass          {_size(full['flops'])}FLOP, 1 x {tokens} tokens"
    if "collectives" in full:
        size = _size(full["gathered_bytes"])
        yield f"  FSDP2, a step         {full['collectives']:,.0f} collectives, {size}B gathered (float32)"
    else:
        yield "  FSDP2, a step         not known: the model does not run under it with fake tensors"


def _size(number: float) -> str:
    """`128.00 G`, to be followed by B or FLOP."""
    for unit in ("k", "M", "G"):
        number /= 1000
        if number < 1000:
            return f"{number:,.2f} {unit}"
    return f"{number / 1000:,.2f} T"
