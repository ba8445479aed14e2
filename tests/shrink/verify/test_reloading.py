"""Quantized weights that transformers cannot place on meta are loaded; what it cannot save is said."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from distdbg.shrink.checkpoint.plain_plan import same_bits
from distdbg.shrink.verify import reloading

torch = pytest.importorskip("torch")

QUANTIZED = SimpleNamespace(full={"quantization_config": {"quant_method": "bitsandbytes"}})
FOUND = {"missing_keys": [], "mismatched_keys": [], "unexpected_keys": []}


class Model:
    def save_pretrained(self, _folder):
        raise NotImplementedError


def loader(model):
    def load(_folder, _builder, _trust, **options):
        if options.get("device_map") == "meta":
            raise RuntimeError("no weights to unpack")
        return model, FOUND

    return load


def test_weights_that_are_unpacked_as_they_load(monkeypatch, tmp_path):
    monkeypatch.setattr(reloading, "load_model", loader(Model()))
    assert reloading.loads(str(tmp_path), QUANTIZED, False, ()) == {"names_and_shapes": "pass"}
    said = reloading.round_trip(str(tmp_path), QUANTIZED, False, everything=False)["save_and_reload"]
    assert said.startswith("not run, because") and "cannot save them" in said


def test_a_plain_model_that_does_not_load_fails(monkeypatch, tmp_path):
    monkeypatch.setattr(reloading, "load_model", loader(Model()))
    plain = SimpleNamespace(full={})
    assert reloading.loads(str(tmp_path), plain, False, ())["names_and_shapes"].startswith("fail")


def test_numbers_that_are_none_are_equal_to_themselves():
    nan = torch.tensor([float("nan"), -0.0])
    assert same_bits(nan, nan.clone()) and not same_bits(nan, torch.tensor([float("nan"), 0.0]))


def test_a_number_that_saving_changes_fails(monkeypatch, tmp_path):
    before, after = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    models = iter((before, after))
    before.save_pretrained = lambda _folder: None
    monkeypatch.setattr(reloading, "load_model", lambda *_given, **_options: (next(models), FOUND))
    said = reloading.round_trip(str(tmp_path), SimpleNamespace(full={}), False, everything=False)["save_and_reload"]
    assert said == "fail: weight is another after saving and loading"
