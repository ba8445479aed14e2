"""The judge of shrink_sweep.py, which has no code in common with the check that it judges."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")

import torch

from benchmarks.shrink_outputs import compare_outputs
from distdbg.shrink.checkpoint.opening import open_source
from distdbg.shrink.making import ShrinkRequest, make
from tests.shrink import own_models

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]


def judged(folder: Path, *, silent: bool = False, **fields: object) -> str:
    """Of a copy of the layers 0 and 3, which nothing has verified."""
    source = own_models.save(folder / "large", **fields)
    made = make(open_source(str(source)), folder / "small", ShrinkRequest(keep="0,3", verify="none"))
    assert made["stacks"][0]["kept"] == [0, 3]
    full, small = (own_models.OwnForCausalLM.from_pretrained(folder / name) for name in ("large", "small"))
    if silent:
        for layer in (*full.layers, *small.layers):
            for part in (layer.down, layer.mixer):
                torch.nn.init.zeros_(part.weight), torch.nn.init.zeros_(part.bias)
    return compare_outputs(full, small, {"layers": (6, [0, 3])}, {"input_ids": torch.arange(8)[None]})


def test_exact_copy_passes(tmp_path: Path) -> None:
    assert judged(tmp_path) == "pass"


def test_scale_by_the_layers_place_is_wrong(tmp_path: Path) -> None:
    assert judged(tmp_path, placed=True).startswith("wrong: logits differs by ")


def test_layers_without_an_effect_prove_nothing(tmp_path: Path) -> None:
    assert judged(tmp_path, silent=True) == "pass; no output depends on layers"
