"""Builders of tiny models, and the checks that run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import transformers

from distdbg.shrink.probe.building import Builder, model_class
from distdbg.shrink.probe.task import quiet
from distdbg.shrink.verify.kept import KeptStack
from distdbg.shrink.verify.running import RealRun

TINY = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 256}


def builder(model_type: str = "llama", **fields: Any) -> Builder:
    return builder_of(model_type, {**TINY, **fields})


def builder_of(model_type: str, fields: dict[str, Any]) -> Builder:
    quiet()
    config = transformers.CONFIG_MAPPING[model_type](**fields)
    return Builder(config, model_class(config, None, False))


def real_run(full: Builder, small: Builder, stacks: Sequence[KeptStack]) -> dict[str, str]:
    """The checks of a small model with random weights."""
    return RealRun(small.with_random_weights(), full, stacks, {}).checks(step=False)
