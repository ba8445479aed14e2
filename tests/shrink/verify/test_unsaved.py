"""What transformers would save is compared with what it has loaded; what is another, or cannot be seen, is no match."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from distdbg.shrink.verify.unsaved import equal_bits, is_saved_as_it_is
from tests.shrink import models

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return models.llama(tmp_path / "model", 2, save_max_shard_size="20KB")


def seen(folder: Path, again: Path, change=None, unused=()) -> bool:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    if change is not None:
        with torch.no_grad():
            change(model)
    return is_saved_as_it_is(model, str(folder), str(again), {*unused})


def test_a_model_as_it_was_loaded_and_its_shards_are_found_again(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    assert seen(folder, again)
    assert {p.name for p in again.glob("*.safetensors")} == {p.name for p in folder.glob("*.safetensors")}
    assert all(p.is_symlink() for p in again.glob("*.safetensors"))
    transformers.AutoModelForCausalLM.from_pretrained(again)


def test_a_number_that_was_written_over_is_noticed(folder: Path, tmp_path: Path) -> None:
    assert not seen(folder, tmp_path / "again", lambda model: model.model.norm.weight[3].add_(1))


def test_a_tensor_that_is_not_saved_is_noticed_unless_nothing_uses_it(folder: Path, tmp_path: Path) -> None:
    def drop(model) -> None:
        model.lm_head = torch.nn.Identity()

    assert not seen(folder, tmp_path / "one", drop)
    assert seen(folder, tmp_path / "two", drop, unused=["lm_head.weight"])


def test_numbers_that_are_none_are_equal_to_themselves() -> None:
    nan = torch.tensor([float("nan"), -0.0])
    assert equal_bits(nan, nan.clone()) and not equal_bits(nan, torch.tensor([float("nan"), 0.0]))
