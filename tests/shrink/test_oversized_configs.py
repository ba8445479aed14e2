"""A config that asks for a larger model than its weights, or than any, is refused with the numbers, and soon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from distdbg.errors import Refused
from distdbg.shrink.checkpoint.opening import open_source
from distdbg.shrink.making import ShrinkRequest, make
from distdbg.shrink.probe import building
from tests.shrink import models
from tests.shrink.test_probe import builder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]


def refusal(folder: Path, **fields: object) -> str:
    """Of a Llama with the weights of 4 layers and another config."""
    source = models.llama(folder / "large", layers=4)
    config = json.loads((source / "config.json").read_text()) | fields
    (source / "config.json").write_text(json.dumps(config))
    with pytest.raises(Refused) as refused:
        make(open_source(str(source)), folder / "small", ShrinkRequest())
    return refused.value.message


def test_more_layers_than_the_weights_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(building, "examine", lambda model: built.append(model) or pytest.fail("it was built"))
    message = refusal(tmp_path, num_hidden_layers=99_999)
    assert "num_hidden_layers is 99999, and the checkpoint has 39 tensors, of 4 layers ('model.layers')" in message
    assert built == []


def test_one_layer_more_than_the_weights_have(tmp_path: Path) -> None:
    message = refusal(tmp_path, num_hidden_layers=5)
    assert message == "the config makes 5 layers of 'model.layers', and the checkpoint has tensors of 4 of them"


def test_size_that_torch_cannot_have(tmp_path: Path) -> None:
    message = refusal(tmp_path, hidden_size=10**30, num_attention_heads=5)
    assert f"hidden_size is {10**30}" in message and "frame" not in message and "c10" not in message


def test_cpp_frames_are_left_out_of_reasons() -> None:
    error = RuntimeError(
        "Overflow\nException raised from unpack at numbers.h:79 (most recent call first):\nframe #0: c10"
    )
    assert building.brief(error) == "RuntimeError: Overflow"


def test_models_of_one_search_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from distdbg.shrink.probe.shrinking import WantedLayers, shrink

    monkeypatch.setattr(building, "MAX_MODULES_BUILT", 600)
    with pytest.raises(Refused, match="600 modules in all"):
        shrink(builder("llama"), WantedLayers())
