"""The task `plain`: reduce a torch.save file to its kept layers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from distdbg.shrink.checkpoint.config_file import COUNTS
from distdbg.shrink.checkpoint.layer_names import all_renumbered
from distdbg.shrink.checkpoint.pickled import load_safely, save
from distdbg.shrink.checkpoint.plain_names import PlainOrder
from distdbg.shrink.checkpoint.plain_plan import Keys, answer, part, plan_of, put, same_bits, split_name
from distdbg.shrink.checkpoint.staging import refuse_a_full_disk

REMEDY = "Save its state dicts alone, and name that file."


def run(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: source, folder, to (its later name), order. The answer has what shrink.json says of it."""
    source, folder, to = (Path(task[name]) for name in ("source", "folder", "to"))
    whole = load_safely(source, REMEDY)
    tensors = dict(_tensors(whole, ()))
    names = {".".join(keys): keys for keys in tensors}
    forms = {name: (tuple(tensors[keys].shape), str(tensors[keys].dtype)) for name, keys in names.items()}
    plan = plan_of(forms, PlainOrder(**task["order"]))
    small: dict[str, Any] = {}
    _copy_the_rest(whole, small, plan, ())
    for name, keys in names.items():
        for new in plan["new"][name]:
            put(small, split_name(new, keys), part(tensors[keys], plan, name))
    path = folder / source.name
    refuse_a_full_disk(to, sum(tensor.nbytes for _, tensor in _tensors(small, ())))
    save(small, path)
    again = dict(_tensors(load_safely(path, REMEDY), ()))
    differ = [n for n, keys in names.items() for new in plan["new"][n]
              if not same_bits(again[split_name(new, keys)], part(tensors[keys], plan, n))]  # fmt: skip
    return answer(plan, differ, source.stat().st_size)


def _tensors(value: Mapping[Any, Any], at: Keys) -> Iterator[tuple[Keys, Any]]:
    import torch

    for key, inner in value.items():
        if isinstance(key, str) and isinstance(inner, torch.Tensor):
            yield (*at, key), inner
        elif isinstance(key, str) and isinstance(inner, Mapping):
            yield from _tensors(inner, (*at, key))


def _copy_the_rest(value: Mapping[Any, Any], small: dict[Any, Any], plan: Mapping[str, Any], at: Keys) -> None:
    """Values that are no tensors are kept, or dropped with their layer (`layers.3._extra_state`). States by number
    (an optimizer's) name no layer: they are dropped."""
    import torch

    for key, inner in value.items():
        here = (*at, key)
        if isinstance(inner, torch.Tensor):
            continue
        if not isinstance(key, str):
            small[key] = inner
            continue
        for new in (split_name(name, here)[-1] for name in all_renumbered(".".join(here), plan["kept"])):
            if not isinstance(inner, Mapping):
                small[new] = _recounted(new, inner, plan)
            elif any(not isinstance(k, str) for k in inner):
                plan["warnings"].append(f"{'.'.join(here)} is left out: its states have numbers and no names")
            else:
                small[new] = {}
                _copy_the_rest(inner, small[new], plan, here)


def _recounted(key: str, value: Any, plan: Mapping[str, Any]) -> Any:
    """A number of layers among the arguments in the file follows (`n_layer` of nanoGPT, `num_layers` of Megatron)."""
    if isinstance(value, argparse.Namespace):
        return argparse.Namespace(**{k: _recounted(k, v, plan) for k, v in vars(value).items()})
    left = {stack["layers"]: len(stack["kept"]) for stack in plan["stacks"]}
    return left[value] if key in COUNTS and type(value) is int and value in left else value
