"""The tasks `probe`, which finds what to change in a folder's config, and `random`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distdbg.shrink.checkpoint.source import Folder
from distdbg.shrink.checkpoint.staging import refuse_a_full_disk
from distdbg.shrink.probe.building import open_builder
from distdbg.shrink.probe.conversions import module_names
from distdbg.shrink.probe.loading import load
from distdbg.shrink.probe.narrowing import narrowed
from distdbg.shrink.probe.report import as_json
from distdbg.shrink.probe.shrinking import WantedLayers, shrink
from distdbg.shrink.probe.sizing import sized
from distdbg.shrink.tokenizer import tokenizer_of


def probe(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: folder (with the tokenizer's files where the vocabulary may be cut), trust, layers (number or None),
    keep, stacks, narrow, size, uncut (there is a tokenizer, but none that can be cut), stored (names in the
    checkpoint)."""
    quiet()
    builder = open_builder(task["folder"], task["trust"])
    modules = module_names(builder.bare, task["stored"]) if task["stored"] else {}
    tokenizer = tokenizer_of(Folder(Path(task["folder"])))
    fewer = narrowed(builder, task["narrow"], tokenizer)
    wanted = WantedLayers(task["layers"], task["keep"], task["stacks"])
    if task.get("size"):
        fewer += sized(builder, task["size"], wanted, task["narrow"], tokenizer, uncut=task["uncut"])
    return as_json(builder, shrink(builder, wanted), fewer) | {"modules": modules}


def quiet() -> None:
    """Switch off the messages of transformers: it would print one for each probe that a config refuses."""
    import logging
    import warnings

    load({})
    import transformers

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()


def random_weights(task: dict[str, Any]) -> dict[str, Any]:
    """The small model with the initialisation that its own code gives it, written as a checkpoint.

    `task`: folder (with the small config.json; the weights go beside it), to (its later name), trust, dtype or None,
    seed.
    """
    import torch

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
