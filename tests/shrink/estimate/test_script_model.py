"""An estimate of a model that a function makes: its kinds are what arithmetic says, and what it does wrong is said."""

import json
import sys
from dataclasses import asdict

import pytest

from distdbg.errors import Refused, UsageError
from distdbg.shrink.estimate import tracking
from distdbg.shrink.estimate.estimating import EstimateRequest

pytestmark = pytest.mark.slow

M = 1 << 20
TRAIN = """
import torch
from torch import nn
from helpers import width                     # beside the script, as Python finds it

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width, bias=False) for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x

def make(batch):
    model, x = Net(), torch.zeros(batch, width)
    return model, lambda: model(x).square().mean()

def only_a_model():
    return Net()

def reads():
    model = Net()
    return model, lambda: model(torch.zeros(1, width)).mean() * torch.ones(1).item()

def many():
    model = Net()
    return model, lambda: model(torch.zeros(2, width))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("script")
    (made / "train.py").write_text(TRAIN)
    (made / "helpers.py").write_text("width = 1024\n")
    return made


def test_the_kinds_are_those_of_the_functions_model_and_batch(folder, distdbg):
    done = distdbg("memory", "estimate", "train.py:make", "--batch", "512", "--card", "200MiB", "--json", cwd=folder)
    assert done.code == 0, done
    result = json.loads(done.out)
    # four matrices of 4 MiB, AdamW's two for each and the square roots of one of them, which foreach makes for all
    assert (result["kinds"]["parameters"], result["kinds"]["gradients"]) == (16 * M, 16 * M)
    assert result["kinds"]["optimizer state"] == pytest.approx(48 * M, rel=0.01) and result["when"] == "optimizer"
    # 512 x 1024 numbers are 2 MiB: 200 MiB / 1.1 hold 48 MiB of the model's and some 8000 rows of 4 + 1 layers
    assert result["fits"]["sequence"] is result["fits"]["layers"] is None and 2000 < result["fits"]["batch"] < 10_000


def test_what_a_function_does_wrong_is_a_sentence(folder, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, error, said in (
        ("only_a_model", Refused, "returns no model with its loss"),
        ("many", Refused, "is no single number"),
        ("reads", Refused, "the loss of .*:reads fails"),
        ("nobody", UsageError, "has no function 'nobody'"),
    ):
        with pytest.raises(error, match=said) as caught:
            tracking.run({"script": f"{folder}/train.py:{name}", "wanted": asdict(EstimateRequest())})
        assert caught.value.remedy
    with pytest.raises(UsageError, match="cannot be imported"):
        tracking.run({"script": "no.such.module:make", "wanted": asdict(EstimateRequest())})
