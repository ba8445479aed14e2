"""The task `probe`: a folder with a config in, what to change in it out."""

from __future__ import annotations

from typing import Any

from distdbg.shrink.probe.building import open_builder
from distdbg.shrink.probe.ladder import WantedLayers, shrink
from distdbg.shrink.probe.narrowing import narrowed
from distdbg.shrink.probe.report import as_json


def run(task: dict[str, Any]) -> dict[str, Any]:
    """`task`: folder, trust, layers (number or None), keep, stacks, narrow."""
    quiet()
    builder = open_builder(task["folder"], task["trust"])
    fewer = narrowed(builder, task["narrow"])
    wanted = WantedLayers(task["layers"], task["keep"], task["stacks"])
    return as_json(builder, shrink(builder, wanted), fewer)


def quiet() -> None:
    """Every probe that a config refuses would be told to the person otherwise."""
    import logging
    import warnings

    import transformers

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
