"""Processors beside a small model: loaded, and tried with what they are for; a missing package is named."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("transformers")

from distdbg.shrink.checkpoint.opening import open_source
from distdbg.shrink.making import ShrinkRequest, make
from distdbg.shrink.verify import processing
from tests.shrink import models
from tests.shrink.trained_tokenizers import save_tokenizer

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


class Part:
    """Of a processor; it takes what it is made for."""

    sampling_rate = 100
    model_input_names = ("input_ids", "pixel_values")

    def __init__(self, shape, **required):
        self.shape, self.required = shape, required

    def __call__(self, given, **options):
        assert (given.shape, options) == (self.shape, {"return_tensors": "np", **self.required})


class OfVideosAlone(Part):
    sample_frames = None


IMAGE, VIDEO = Part((64, 64, 3)), Part((4, 64, 64, 3), do_sample_frames=False)
SOUND = Part((100,), sampling_rate=100)


@pytest.mark.parametrize(
    ("processor", "through"),
    [
        (SimpleNamespace(image_processor=IMAGE, tokenizer=None), "an image"),
        (SimpleNamespace(image_processor=IMAGE, video_processor=VIDEO), "an image and a video"),
        (SimpleNamespace(image_processor=IMAGE, video_processor=VIDEO, feature_extractor=SOUND),
         "an image, a video and a sound"),
        (SimpleNamespace(video_processor=VIDEO), "a video"),
        (OfVideosAlone((4, 64, 64, 3), do_sample_frames=False), "a video"),
        (IMAGE, "an image"),
    ],
)  # fmt: skip
def test_each_part_gets_what_it_is_made_for(tmp_path, monkeypatch, processor, through):
    monkeypatch.setattr("transformers.AutoProcessor.from_pretrained", lambda *_args, **_options: processor)
    assert tried(tmp_path, CLIP) == f"pass; {type(processor).__name__}, with {through}"


def test_a_processor_of_several_parts(tmp_path):
    """LLaVA's: `processor_config.json` says how many places an image has in the text."""
    pytest.importorskip("PIL")
    save_tokenizer(tmp_path, "BPE")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava"}))
    said = {"processor_class": "LlavaProcessor", "patch_size": 8, "image_token": "<|user|>"}
    (tmp_path / "processor_config.json").write_text(json.dumps(said))
    assert tried(tmp_path, CLIP) == "pass; LlavaProcessor, with an image"


def test_videos_need_a_package_that_is_named(tmp_path, monkeypatch):
    def fails(*_args, **_kwargs):
        raise ImportError("Qwen2VLVideoProcessor requires the Torchvision library but it was not found in your")

    monkeypatch.setattr("transformers.AutoProcessor.from_pretrained", fails)
    monkeypatch.setattr(processing.importlib.util, "find_spec", lambda name: name)
    assert tried(tmp_path, CLIP) == "not run, because torchvision is not installed"


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
