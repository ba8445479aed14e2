"""Processors beside a small model: loaded, and tried with an image and a sound; a missing package is named."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("transformers")

from distdbg.shrink.checkpoint.opening import open_source
from distdbg.shrink.making import ShrinkRequest, make
from distdbg.shrink.verify import processing
from tests.shrink import models

pytestmark = pytest.mark.slow

CLIP = {"image_processor_type": "CLIPImageProcessor", "crop_size": 32, "size": {"shortest_edge": 32}}
WHISPER = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 8, "chunk_length": 2}


def tried(folder, said):
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    assert processing.has_processor(str(folder))
    return processing.try_processor(str(folder), False)


def test_an_image_processor(tmp_path):
    pytest.importorskip("PIL")
    said = tried(tmp_path, CLIP)
    assert said.startswith("pass; CLIPImageProcessor") and said.endswith(", with an image")


def test_a_feature_extractor(tmp_path):
    assert tried(tmp_path, WHISPER) == "pass; WhisperFeatureExtractor, with a sound"


def test_a_model_without_one(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert not processing.has_processor(str(tmp_path))


def test_what_is_missing_is_named_in_a_short_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(processing.importlib.util, "find_spec", lambda name: None)

    def fails(*_args, **_kwargs):
        raise ValueError("Unrecognized processing class")

    monkeypatch.setattr("transformers.AutoProcessor.from_pretrained", fails)
    assert tried(tmp_path, CLIP) == "not run, because pillow is not installed"


def test_one_that_does_not_load(tmp_path):
    assert tried(tmp_path, {"feature_extractor_type": "NoSuchExtractor"}).startswith(
        "not run, because transformers does"
    )


@pytest.mark.usefixtures("in_process")
def test_a_processor_is_copied_and_tried_with_the_small_model(tmp_path):
    pytest.importorskip("PIL")
    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2}
    source = models.save(tmp_path / "large", "vit", "AutoModelForImageClassification", **size, image_size=16,
                         patch_size=8)  # fmt: skip
    file = source / "preprocessor_config.json"
    file.write_text(json.dumps({"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}}))
    made = make(open_source(str(source)), tmp_path / "small", ShrinkRequest(layers=2))
    assert made["verified"]["processor"].endswith(", with an image")
    assert (tmp_path / "small" / file.name).read_bytes() == file.read_bytes()
