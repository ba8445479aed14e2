"""Every rank is put on one and the same GPU, by a number that is written down."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument

#: each rank sees a GPU of its own
UNLESS = re.compile(r"CUDA_VISIBLE_DEVICES|SLURM_|gpus[-_]per[-_]task|gpu-bind")

#: without these words there is nothing to check
NEEDS = ({"init_process_group"}, {"set_device", "device_ids", "DistributedDataParallel", "DDP"})


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    if context.frameworks or not script.calls("init_process_group"):
        return
    chosen: list[ast.Call] = []
    for call in script.calls("set_device"):
        given = argument(call, 0, "device")
        if script.call_names[call] == "torch.cuda.set_device" and _is_number(given):
            chosen.append(call)
    for wrap in context.values.of_kind("ddp"):
        match argument(wrap, 1, "device_ids"):
            case ast.List(elts=[one]) if _is_number(one):
                chosen.append(wrap)
    for call in chosen:
        if not context.ranks.guarded(call):
            yield Hit(call, f"{script.source(call)[:60]} puts every rank of a node on one GPU")


def _is_number(node: ast.expr | None) -> bool:
    match node:
        case ast.Constant(value=int() as value):
            return not isinstance(value, bool)
        case ast.Constant(value=str(text)):
            return re.fullmatch(r"cuda:\d+", text) is not None
    return False
