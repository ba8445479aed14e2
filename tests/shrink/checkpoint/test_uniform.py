"""The layout of well-known decoders: the same as a probe's, without torch; anything else is left to the probe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distdbg.shrink.checkpoint.source import Folder
from distdbg.shrink.checkpoint.tensors import tensors_of
from distdbg.shrink.checkpoint.uniform import LAYER_CLASSES, uniform_layout
from distdbg.shrink.making import ShrinkRequest, make
from tests.shrink.checkpoints import sharded

CONFIG = {"model_type": "llama", "num_hidden_layers": 4}


def layout(folder: Path, config: dict[str, object], **wanted):
    tensors = tensors_of(Folder(folder))
    assert tensors is not None
    return uniform_layout(config, tensors, wanted.get("layers"), wanted.get("keep", "kinds"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    sharded(tmp_path / "model", 4, of_a_layer=["self_attn.q_proj.weight"])
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path / "model"


def test_layers_are_kept_without_a_process_that_loads_torch(model: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("distdbg.shrink.making.ask", lambda *_a, **_k: pytest.fail("a child process was asked"))
    made = make(Folder(model), tmp_path / "small", ShrinkRequest(keep="1,3", verify="none"))
    assert made["stacks"][0]["kept"] == [1, 3]
    assert json.loads((tmp_path / "small" / "config.json").read_text())["num_hidden_layers"] == 2


@pytest.mark.parametrize(
    "more",
    [
        {"model_type": "gemma2"},
        {"layer_types": ["full_attention"] * 3 + ["sliding_attention"]},
        {"no_rope_layers": [1, 1, 1, 0]},
        {"mlp_only_layers": [1]},
        {"num_hidden_layers": 5},
        {"use_sliding_window": True},
        {"quantization_config": {"quant_method": "fp8"}},
        {"auto_map": {"AutoModel": "modeling.Model"}},
    ],
)
def test_what_says_something_of_single_layers_is_left_to_the_probe(model: Path, more: dict[str, object]) -> None:
    assert layout(model, CONFIG) is not None
    assert layout(model, CONFIG | more) is None


@pytest.mark.slow
@pytest.mark.parametrize("model_type", LAYER_CLASSES)
def test_the_table_says_what_a_probe_finds(model_type: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from distdbg.shrink.checkpoint.config_file import read_config
    from distdbg.shrink.probe.task import probe
    from tests.shrink.models import TINY, save

    folder = save(tmp_path / "model", model_type, **TINY, num_hidden_layers=5)
    source = Folder(folder)
    tensors = tensors_of(source)
    assert tensors is not None
    asked = {"folder": str(folder), "trust": False, "stacks": {}, "narrow": {}, "stored": list(tensors)}
    for layers, keep in ((None, "kinds"), (3, "last"), (None, "3,1,1")):
        known = uniform_layout(read_config(source), tensors, layers, keep)
        found = probe(asked | {"layers": layers, "keep": keep})
        assert known is not None
        for key in known:
            assert key == "aliases" or known[key] == found[key], key
