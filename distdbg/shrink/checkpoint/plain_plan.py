"""What the tasks share that reduce a checkpoint without a config: new names, and tensors' parts and bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distdbg.shrink.checkpoint.layer_names import all_renumbered
from distdbg.shrink.checkpoint.plain_names import PlainOrder, plain_stacks, rows_kept

#: keys from the top of a checkpoint to a value
Keys = tuple[str, ...]


def plan_of(forms: Mapping[str, Any], order: PlainOrder) -> dict[str, Any]:
    """stacks, kept (prefix -> layers), new (name -> new names), rows (name -> rows that stay), sliced, warnings."""
    stacks = plain_stacks(forms, order)
    kept = {stack["path"]: stack["kept"] for stack in stacks}
    new = {name: all_renumbered(name, kept) for name in forms}
    rows = rows_kept(forms, stacks)
    sliced = {n: {"from": list(forms[n][0]), "to": [len(kept), *forms[n][0][1:]]} for n, kept in rows.items()}
    return {"stacks": stacks, "kept": kept, "new": new, "rows": rows, "sliced": sliced, "warnings": []}


def part(tensor: Any, plan: Mapping[str, Any], name: str) -> Any:
    """A copy of what stays of a tensor."""
    rows = plan["rows"].get(name)
    return tensor.clone() if rows is None else tensor[rows]


def answer(plan: dict[str, Any], differ: list[str], read: int) -> dict[str, Any]:
    """What the task answers. `differ`: names whose bits are not the source's."""
    new, _, _ = (plan.pop(key) for key in ("new", "kept", "rows"))
    origins = {b: a for a, names in new.items() for b in names}
    return plan | {"origins": origins, "dropped": [a for a, names in new.items() if not names],
                   "weights": said_of(differ), "bytes_read": read}  # fmt: skip


def said_of(differ: list[str]) -> str:
    return f"fail: {differ[0]} differs" if differ else "pass"


def same_bits(a: Any, b: Any) -> bool:
    """Whether two tensors have one type, shape and content; NaN is as good as any."""
    import torch

    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    one, other = (tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (a, b))
    return bool(torch.equal(one, other))


def split_name(name: str, keys: Keys) -> Keys:
    """A dotted name as keys again; each key has as many parts as it had."""
    parts = name.split(".")
    found = []
    for key in keys:
        count = key.count(".") + 1
        found.append(".".join(parts[:count]))
        parts = parts[count:]
    return tuple(found)


def put(small: dict[str, Any], keys: Keys, value: Any) -> None:
    """Set a value below nested keys."""
    for key in keys[:-1]:
        small = small.setdefault(key, {})
    small[keys[-1]] = value
