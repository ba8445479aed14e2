"""DDP that is given device_ids for a model on the CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument, has_stars, is_constant

#: something moves the model, or may
UNLESS = re.compile(r"cuda|nccl|xpu|hpu|npu|\.to\(|to_empty|device_map|set_default_device|accelerator", re.IGNORECASE)

#: without these words there is nothing to check
NEEDS = ({"device_ids"}, {"DistributedDataParallel", "DDP"}, {"gloo", "mpi"})


def check(context: Context) -> Iterator[Hit]:
    for wrap in context.values.of_kind("ddp"):
        given = argument(wrap, 1, "device_ids")
        if given is None or is_constant(given, None) or has_stars(wrap):
            continue
        if context.script.call_names[wrap].startswith("torch."):
            yield Hit(wrap, "DDP gets device_ids, and nothing here moves the model off the CPU: DDP refuses that")
