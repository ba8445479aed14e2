"""A block that layers share is in a checkpoint once, under one layer's name, with a list that has an entry a use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.shrink import models

pytestmark = pytest.mark.slow

ZAMBA2 = {
    **models.TINY, "num_key_value_heads": 4, "attention_head_dim": 16, "mamba_d_state": 8, "n_mamba_heads": 4,
    "mamba_headdim": 16, "mamba_ngroups": 1, "adapter_rank": 4, "chunk_size": 16, "num_hidden_layers": 12,
    "layers_block_type": ["mamba", "mamba", "hybrid"] * 4,
}  # fmt: skip


def test_the_block_goes_by_the_name_of_a_layer_that_stays(tmp_path: Path, distdbg) -> None:
    import torch
    from safetensors.torch import load_file

    source = models.save(tmp_path / "large", "zamba2", **ZAMBA2)
    done = distdbg("shrink-model", source, tmp_path / "small", "--keep", "0,5,8")
    assert done.code == 0, done
    said = json.loads((tmp_path / "small" / "shrink.json").read_text())["verified"]
    assert {said[check] for check in ("kinds", "ops", "gradients", "names_and_shapes", "save_and_reload")} == {"pass"}
    small, full = (load_file(tmp_path / name / "model.safetensors") for name in ("small", "large"))
    adapters = "shared_transformer.feed_forward.gate_up_proj_adapter_list"
    for use, before in ((0, 1), (1, 2)):  # of the four uses of the block, those in the layers 5 and 8
        new, old = f"model.layers.1.{adapters}.{use}.0.weight", f"model.layers.2.{adapters}.{before}.0.weight"
        assert torch.equal(small[new], full[old]), new
    assert f"model.layers.1.{adapters}.2.0.weight" not in small
