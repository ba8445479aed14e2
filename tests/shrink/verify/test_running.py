"""The small model is run for real, and its outputs are those of the full one whose other layers are identities."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from distdbg.errors import Refused
from distdbg.shrink.checkpoint.opening import open_source
from distdbg.shrink.making import ShrinkRequest, make
from distdbg.shrink.proved import proved
from tests.shrink import models, own_models

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]

HYBRID = ["recurrent", "recurrent", "attention"]


def shrunk(source: Path, **order) -> dict:
    return make(open_source(str(source)), source.parent / "small", ShrinkRequest(**order))


def refusal(source: Path, **order) -> Refused:
    with pytest.raises(Refused) as found:
        shrunk(source, **order)
    assert not (source.parent / "small").exists()
    return found.value


def kept(made: dict) -> list[int]:
    return made["stacks"][0]["kept"]


def test_outputs_are_compared_and_the_defaults_are_run(tmp_path: Path) -> None:
    made = shrunk(own_models.save(tmp_path / "large", pattern=HYBRID))
    assert kept(made) == [0, 2]
    assert [made["verified"][check].partition(";")[0] for check in ("runs", "outputs", "generate")] == ["pass"] * 3
    assert any("outputs are those of the full model" in line for line in proved(made["verified"]))


def test_layer_whose_number_is_part_of_its_scale_stays_in_place(tmp_path: Path) -> None:
    """Layer 3 as layer 1 would scale its residual by another number."""
    source = own_models.save(tmp_path / "large", pattern=["recurrent"] * 3 + ["attention"] * 3, placed=True)
    made = shrunk(source)
    assert kept(made) == [0, 1, 2, 3] and made["verified"]["outputs"] == "pass" and made["warnings"] == []


def test_scale_by_place_is_refused_where_it_was_picked(tmp_path: Path) -> None:
    source = own_models.save(tmp_path / "large", pattern=["recurrent"] * 3 + ["attention"] * 3, placed=True)
    found = refusal(source, keep="0,3")
    assert "outputs: " in found.message and "layers.1.residual_index is 4, and 8 in the full model" in found.message
    made = shrunk(source, keep="0,3", verify="none")
    assert [w for w in made["warnings"] if "residual_index is 4 where it was 8" in w]


def test_scale_by_the_layers_own_number_is_seen_in_the_outputs(tmp_path: Path) -> None:
    """GPT-2 may divide attention by the layer's number, which in other models only finds the layer's cache."""
    size = {"n_embd": 32, "n_head": 4, "n_layer": 5, "vocab_size": 64, "n_positions": 32}
    for scaled, name in ((True, "scaled"), (False, "plain")):
        (tmp_path / name).mkdir()
        source = models.save(tmp_path / name / "large", "gpt2", **size, scale_attn_by_inverse_layer_idx=scaled,
                             initializer_range=0.3)  # fmt: skip
        if scaled:
            assert "outputs: logits differs" in refusal(source, keep="0,4").message
        else:
            assert shrunk(source, keep="0,4")["verified"]["outputs"] == "pass"


@pytest.mark.parametrize(
    ("by_depth", "words"), [("layer", "scale is 0.5, and 0.288675"), ("config", "num_hidden_layers is 2, and 6")]
)
def test_scale_by_the_number_of_layers_is_a_warning(tmp_path: Path, by_depth: str, words: str) -> None:
    made = shrunk(own_models.save(tmp_path / "large", by_depth=by_depth))
    assert made["verified"]["outputs"].startswith("warning: ") and words in made["verified"]["outputs"]
    moved = [w for w in made["warnings"] if "scale is 0.5 where it was 0.288675" in w]
    assert bool(moved) == (by_depth == "layer")


def test_number_by_place_without_effect_is_not_blamed(tmp_path: Path) -> None:
    """The scale by the number of layers explains the outputs. What a layer's place decides scales nothing."""
    source = own_models.save(tmp_path / "large", by_depth="layer", placed="unused")
    outputs = shrunk(source, keep="0,3")["verified"]["outputs"]
    assert (
        outputs.startswith("warning: ") and "scale is 0.5, and 0.288675" in outputs and "residual_index" not in outputs
    )


@pytest.mark.parametrize("fails", [True, False])
def test_full_model_that_cannot_be_built_is_not_said_to_have_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    from distdbg.shrink.verify import running

    def refuse(*_arguments) -> None:
        raise RuntimeError("no memory for buffers")

    monkeypatch.setattr(running, "FullModel", refuse)
    verified = shrunk(own_models.save(tmp_path / "large", pattern=["recurrent"], needs_attention=fails))["verified"]
    unbuilt = "the full model cannot be built: RuntimeError: no memory for buffers"
    if fails:
        why = "forward raises ValueError: the cache has no attention layer"
        assert verified["runs"] == f"not run, because {why}, and {unbuilt}"
    else:
        assert verified["runs"] == "pass" and verified["outputs"] == f"not run, because {unbuilt}"


def test_default_forward_that_raises_is_refused(tmp_path: Path) -> None:
    source = own_models.save(tmp_path / "large", pattern=HYBRID, needs_attention=True)
    found = refusal(source, layers=2, keep="first")
    assert "runs: forward" in found.message and "the cache has no attention layer" in found.message
    assert "--layers auto" in found.remedy
    assert shrunk(source)["verified"]["runs"] == "pass"


def test_what_the_full_model_cannot_do_is_not_held_against_the_small(tmp_path: Path) -> None:
    source = own_models.save(tmp_path / "large", pattern=["recurrent"], needs_attention=True)
    made = shrunk(source)
    assert made["verified"]["runs"].startswith("not run, because the full model does not do forward, either")


def test_run_with_text_counts_if_no_image_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distdbg.shrink.verify import running

    def refuse(*_arguments) -> None:
        raise LookupError("no picture")

    monkeypatch.setattr(running, "modalities", lambda _model: ["image"])
    monkeypatch.setattr(running, "inputs_of", refuse)
    verified = shrunk(own_models.save(tmp_path / "large"), smoke=True)["verified"]
    assert verified["runs"] == "pass; with image: not run, because of LookupError: no picture"
    assert verified["outputs"] == "pass" and verified["smoke_test"].startswith("pass")


def test_what_is_said_of_other_layers_leaves_out_lost_kinds(tmp_path: Path) -> None:
    source = own_models.save(tmp_path / "large", pattern=HYBRID)
    made = shrunk(source, layers=2, keep="first")
    assert made["verified"]["each_layer"] == "pass; of the kinds of layers.2,5 no layer is kept"
    line = next(proved(made["verified"]))
    assert "every other layer does" not in line and "layers.2,5" in line


def test_smoke_test_takes_a_step(tmp_path: Path) -> None:
    made = shrunk(own_models.save(tmp_path / "large"), smoke=True)
    assert made["verified"]["smoke_test"].startswith("pass") and "generate" in made["verified"]["smoke_test"]


def test_model_that_is_too_large_runs_with_less_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distdbg.shrink.verify import running

    monkeypatch.setattr(running, "_TIMES_IN_MEMORY", 10**12)
    made = shrunk(own_models.save(tmp_path / "large", hidden_size=32))
    for check in ("runs", "outputs", "generate"):
        assert made["verified"][check].startswith("pass") and "0.25 of the width" in made["verified"][check]


def test_quantized_weights_that_cannot_be_loaded_are_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distdbg.shrink.verify import running

    def refuse(*_arguments) -> None:
        raise ImportError("its package is missing")

    monkeypatch.setattr(running, "load_model", refuse)
    monkeypatch.setattr(running, "is_quantized", lambda _builder: True)
    verified = shrunk(own_models.save(tmp_path / "large"))["verified"]
    for check in ("ops", "gradients", "each_layer", "runs", "outputs"):
        assert verified[check].startswith("pass; with random weights: the quantized ones cannot be loaded here")
