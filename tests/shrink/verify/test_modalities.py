"""An image in the text reaches what connects the tower to it, and a shrink that cuts it off is seen."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers")

from distdbg.shrink.verify.kept import KeptStack
from distdbg.shrink.verify.running import RealRun
from tests.shrink.verify.builders import builder_of, real_run

pytestmark = pytest.mark.slow

TEXT = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 64, "head_dim": 8}  # fmt: skip
ROPE = {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 1e4}
IMAGE = {"image_token_id": 60, "video_token_id": 61, "vision_start_token_id": 62, "vision_end_token_id": 63}
VISION = {"hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32, "patch_size": 4,
          "num_position_embeddings": 16}  # fmt: skip


def model(model_type, **config):
    return builder_of(model_type, config)


def gradients(full, small, stacks):
    said = real_run(full, small, stacks)
    return {check: words for check, words in said.items() if check.startswith("gradients_")}


def qwen3_vl(text, vision, taps):
    return model("qwen3_vl", text_config={**TEXT, "num_hidden_layers": text, "rope_parameters": ROPE}, **IMAGE,
                 vision_config={**VISION, "depth": vision, "deepstack_visual_indexes": taps})  # fmt: skip


def stacks(text, vision):
    return [KeptStack("model.language_model.layers", 6, text), KeptStack("model.visual.blocks", 7, vision)]


def test_a_text_stack_shorter_than_the_taps_of_the_tower_is_seen():
    """Each of the first text layers takes in one tap; with two layers the third tap's merger gets no gradient."""
    full = qwen3_vl(6, 7, [1, 3, 5])
    good = gradients(full, qwen3_vl(3, 4, [1, 2, 3]), stacks([0, 1, 2], [0, 1, 3, 5]))
    assert good == {"gradients_image": "pass", "gradients_video": "pass"}
    bad = gradients(full, qwen3_vl(2, 4, [1, 2, 3]), stacks([0, 1], [0, 1, 3, 5]))
    assert bad["gradients_image"].startswith("fail: model.visual.deepstack_merger_list.2.")


def llava(text, vision):
    return model(
        "llava",
        text_config={"model_type": "llama", **TEXT, "num_hidden_layers": text},
        vision_config={"model_type": "clip_vision_model", "hidden_size": 16, "intermediate_size": 32,
                       "num_hidden_layers": vision, "num_attention_heads": 2, "image_size": 16, "patch_size": 8},
        image_token_index=60,
    )  # fmt: skip


@pytest.mark.parametrize(("kept", "is_same"), [([0, 4], True), ([0, 1], False)])
def test_a_tower_whose_last_layer_is_not_used(kept, is_same):
    """What comes before the last layer is taken: the small tower's last one must be the full one's."""
    full, small = llava(4, 5), llava(2, 2)
    vision = next(path.rpartition(".")[0] for path, _ in full.bare.named_modules() if path.endswith("encoder.layers.0"))
    said = real_run(full, small, [KeptStack("model.language_model.layers", 4, [0, 1]), KeptStack(vision, 5, kept)])
    assert (said["gradients_image"] == "pass") == (said["outputs"] == "pass") == is_same


SPECTRUM = {"d_model": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32, "vocab_size": 64, "decoder_layers": 2}  # fmt: skip


def whisper(layers):
    return model("whisper", **SPECTRUM, encoder_layers=layers, max_source_positions=20, pad_token_id=0,
                 decoder_start_token_id=1)  # fmt: skip


def test_a_sound_reaches_what_is_before_and_behind_the_layers():
    full, small, kept = whisper(4), whisper(2), [KeptStack("model.encoder.layers", 4, [0, 3])]
    assert gradients(full, small, kept) == {"gradients_audio": "pass"}
    cut_off = small.with_random_weights()
    cut_off.model.encoder.conv1.forward = lambda x, forward=cut_off.model.encoder.conv1.forward: forward(x).detach()
    said = RealRun(cut_off, full, kept, {}).checks(step=False)["gradients_audio"]
    assert said == "fail: model.encoder.conv1.bias gets no gradient, unlike in the full model"


@pytest.mark.parametrize(
    ("model_type", "config"),
    [
        ("wav2vec2", {"num_hidden_layers": 2}),  # samples, and a parameter that is never on the default device
        ("audio-spectrogram-transformer", {"num_hidden_layers": 2}),  # spectra under the samples' name
        ("speech_to_text", {**SPECTRUM, "encoder_layers": 2}),  # time before bins
        ("parakeet_ctc", {"encoder_config": {"num_hidden_layers": 2}}),  # bins are known to the encoder's config alone
    ],
)
def test_sounds_of_every_shape(model_type, config):
    full = model(model_type, **config)
    assert gradients(full, full, []) == {"gradients_audio": "pass"}


def test_text_alone_has_no_other_modality():
    full = model("llama", **TEXT, num_hidden_layers=2)
    assert gradients(full, full, []) == {}
