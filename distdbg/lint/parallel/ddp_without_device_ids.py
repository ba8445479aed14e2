"""DDP over GPUs without device_ids, in a process that never chose a device."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument, has_stars

#: a GPU is chosen, or there may be none
UNLESS = re.compile(
    r"[\"']gloo[\"']|set_device|CUDA_VISIBLE_DEVICES|cuda:\{|cuda\(\w*rank|to\(\w*rank|device_id|torch\.device\([\"']cuda[\"'],"
)

#: without these words there is nothing to check
NEEDS = ({"nccl"}, {"DistributedDataParallel", "DDP"})


def check(context: Context) -> Iterator[Hit]:
    if context.frameworks:
        return
    for wrap in context.values.of_kind("ddp"):
        if context.script.call_names[wrap].startswith("torch.") and not has_stars(wrap):
            on_gpu = any(_on_gpu(c) for c in context.script.calls("cuda", "to"))
            nccl = re.search(r"[\"']nccl[\"']", context.script.text)
            if argument(wrap, 1, "device_ids") is None and on_gpu and nccl:
                yield Hit(wrap, "DDP gets no device_ids, and nothing here chooses a GPU: every rank's default is GPU 0")


def _on_gpu(call: ast.Call) -> bool:
    """`.cuda()` or `.to('cuda')`: the default device."""
    last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    first = call.args[0] if call.args else None
    return (last == "cuda" and first is None) or (isinstance(first, ast.Constant) and first.value == "cuda")
