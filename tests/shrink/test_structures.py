"""What a layer is may follow from other things than a list with an entry each: a correct copy, or the true reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from distdbg.errors import Refused
from distdbg.shrink.checkpoint.opening import open_source
from distdbg.shrink.making import ShrinkRequest, make
from tests.shrink import models, own_models

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]


def shrunk(source: Path, **order) -> dict:
    return make(open_source(str(source)), source.parent / "small", ShrinkRequest(**order))


def config(source: Path) -> dict:
    return json.loads((source.parent / "small" / "config.json").read_text())


def test_list_that_repeats_keeps_the_entries_of_the_kept(tmp_path: Path) -> None:
    source = own_models.save(tmp_path / "large", pattern=["recurrent", "recurrent", "attention"], num_hidden_layers=7)
    made = shrunk(source, keep="0,5")
    assert made["stacks"][0]["kept"] == [0, 5] and made["verified"]["outputs"] == "pass"
    assert config(source)["pattern"] == ["recurrent", "attention"]


def test_numbers_of_layers_that_others_take_from_follow(tmp_path: Path) -> None:
    source = own_models.save(tmp_path / "large", sources=[0, 1, 1, 3, 4, 5])
    made = shrunk(source, keep="0,5")
    assert config(source)["sources"] == [0, 1] and made["verified"]["outputs"] == "pass"


def test_source_that_is_not_kept_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        shrunk(own_models.save(tmp_path / "large", sources=[0, 1, 1, 3, 4, 5]), keep="0,2")


def test_number_of_layers_of_a_kind_follows(tmp_path: Path) -> None:
    source = own_models.save(tmp_path / "large", num_hidden_layers=12, adapters=3)
    made = shrunk(source)
    assert made["stacks"][0]["kept"] == [0, 3] and config(source)["adapters"] == 1
    assert made["verified"]["outputs"] == "pass"


def test_number_of_a_kind_that_is_rounded_follows(tmp_path: Path) -> None:
    """Of 32 layers each fourth has an adapter, with 8 of them as with 7."""
    source = own_models.save(tmp_path / "large", num_hidden_layers=32, adapters=8)
    made = shrunk(source)
    assert made["stacks"][0]["kept"] == [0, 3] and config(source)["adapters"] == 1
    assert made["verified"]["outputs"] == "pass"


def test_refusal_names_the_field_that_decides_which_layers_have_a_part(tmp_path: Path) -> None:
    """The size of an adapter follows from hidden_size; that a layer has one does not."""
    source = own_models.save(tmp_path / "large", num_hidden_layers=32, adapters=8)
    with pytest.raises(Refused) as found:
        shrunk(source, keep="0,3,4")
    assert "adapter" in found.value.message and "it follows from adapters," in found.value.message
    assert "--layers auto, which keeps 0,3," in found.value.remedy


def test_layers_that_take_from_others_are_one_kind(tmp_path: Path) -> None:
    source = own_models.save(tmp_path / "large", sources=[0, 0, 2, 2, 4, 4])
    made = shrunk(source)
    assert made["stacks"][0]["kept"] == [0, 1] and config(source)["sources"] == [0, 0]
    assert made["verified"]["outputs"] == "pass"


def test_layers_that_run_several_times_are_alike(tmp_path: Path) -> None:
    made = shrunk(own_models.save(tmp_path / "large", cycles=3))
    assert made["stacks"][0]["kept"] == [0, 1]
    assert {made["verified"][check] for check in ("ops", "each_layer", "outputs")} == {"pass"}


def test_refusal_names_the_attribute_and_what_works(tmp_path: Path) -> None:
    source = own_models.save(tmp_path / "large", pattern=["recurrent", "attention"], stores=True)
    with pytest.raises(Refused) as found:
        shrunk(source, keep="0,1")
    assert "stores would be True, and is False" in found.value.message
    assert "hidden_size" not in found.value.message and "--layers auto, which keeps 0-1,4-5" in found.value.remedy
    assert shrunk(source)["stacks"][0]["kept"] == [0, 1, 4, 5]


def test_layer_named_by_its_distance_from_the_end_keeps_the_last(tmp_path: Path) -> None:
    """LLaVA takes what comes before the last layer of its tower: the small tower's last layer must be that one."""
    text = {"model_type": "llama", **models.TINY, "num_hidden_layers": 4}
    tower = {"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2,
             "num_hidden_layers": 5, "image_size": 28, "patch_size": 14}  # fmt: skip
    source = models.save(tmp_path / "large", "llava", "AutoModelForImageTextToText", text_config=text,
                         vision_config=tower, image_token_index=60, vision_feature_layer=-2)  # fmt: skip
    made = shrunk(source)
    assert {s["layers"]: s["kept"] for s in made["stacks"]} == {4: [0, 1], 5: [0, 4]}
    assert made["verified"]["outputs"] == made["verified"]["runs"] == "pass"


def test_layers_named_from_both_ends_stay(tmp_path: Path) -> None:
    """VipLLaVA takes states from the end and from the front: a positive number counts from the front in both models."""
    text = {"model_type": "llama", **models.TINY, "num_hidden_layers": 4}
    tower = {"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2,
             "num_hidden_layers": 12, "image_size": 28, "patch_size": 14}  # fmt: skip
    source = models.save(tmp_path / "large", "vipllava", "AutoModelForImageTextToText", text_config=text,
                         vision_config=tower, image_token_index=60, vision_feature_layers=[-2, -5, 2])  # fmt: skip
    made = shrunk(source)
    assert {s["layers"]: s["kept"] for s in made["stacks"]} == {4: [0, 1], 12: [0, 1, 8, 9, 10, 11]}
    assert made["verified"]["outputs"] == made["verified"]["runs"] == "pass"


def test_index_of_a_label_names_no_layer(tmp_path: Path) -> None:
    """`ignore_index` is -100 in many configs; of 120 layers that would be a distance from the end."""
    source = models.llama(tmp_path / "large", 120, ignore_index=-100)
    made = shrunk(source, verify="none", random=True)
    assert made["stacks"][0]["kept"] == [0, 1]


def test_number_of_layers_may_be_the_last_ones(tmp_path: Path) -> None:
    """Both layers are the last of their kind, which layers 0 and 1 are not."""
    made = shrunk(own_models.save(tmp_path / "large", pattern=["recurrent", "attention"], stores=True), layers=2)
    assert made["stacks"][0]["kept"] == [4, 5] and made["verified"]["outputs"] == "pass"
    assert [w for w in made["warnings"] if "the kind of layers 0, 2 is not kept" in w]
