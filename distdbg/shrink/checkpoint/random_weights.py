"""The task `random`: a small model with the initialisation that its own code gives it, written as a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distdbg.shrink.checkpoint.staging import refuse_a_full_disk


def run(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: folder (with the small config.json; the weights go beside it), to (its later name), trust, dtype or
    None, seed."""
    import torch

    from distdbg.shrink.probe.building import open_builder

    torch.manual_seed(task["seed"])
    builder = open_builder(task["folder"], task["trust"])
    config = builder.config(builder.full)
    dtype = getattr(torch, task["dtype"]) if task["dtype"] else getattr(config, "dtype", None) or torch.float32
    # initialised in the default type and then cast: half precision has no random numbers of its own everywhere
    make = getattr(builder.model_class, "from_config", None) or builder.model_class._from_config
    model = make(config).to(dtype)
    refuse_a_full_disk(Path(task["to"]), sum(p.numel() * p.element_size() for p in model.parameters()))
    model.save_pretrained(task["folder"])
    return {"parameters": sum(p.numel() for p in model.parameters())}
