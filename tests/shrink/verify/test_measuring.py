"""What one pass shows of the layers of a model, and which results a loss is made of."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from distdbg.shrink.verify.measuring import measure
from distdbg.shrink.verify.running import _gradients

SIZE, ROWS = 4, 3


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.unused = torch.nn.Linear(SIZE, SIZE), torch.nn.Linear(SIZE, SIZE)

    def forward(self, x):
        return self.up(x).relu()


def test_operators_bytes_flops_and_gradients_are_those_of_the_layer():
    model = torch.nn.Sequential(Layer(), torch.nn.Linear(SIZE, SIZE))
    found = measure(model, {"0": model[0]}, torch.ones(ROWS, SIZE))
    layer, rest = found["0"], found[""]
    assert layer.ops["aten.relu.default [3, 4]"] == 1 and "aten.relu.default [3, 4]" not in rest.ops
    assert layer.saved == 2 * ROWS * SIZE * 4  # the layer's input, and the result of relu
    assert layer.flops == rest.flops == 2 * ROWS * SIZE * SIZE
    assert layer.gradients == {"up.weight": 1, "up.bias": 1}


class TowerAndText(torch.nn.Module):
    """It gives what its tower gave beside what a loss is made of, and the tower reaches no text."""

    def __init__(self, *gives):
        super().__init__()
        self.tower, self.text, self.gives = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2), gives

    def forward(self, x):
        made = {
            "logits": self.text(x),
            "image_outputs": {"pooled": self.tower(x)},
            "image_hidden_states": self.tower(x),
        }
        return {name: made[name] for name in self.gives}


@pytest.mark.parametrize(
    ("gives", "part"),
    [
        (("logits", "image_outputs"), "text"),
        (("logits", "image_hidden_states"), "text"),
        (("image_hidden_states",), "tower"),  # a tower by itself
    ],
)
def test_gradients_are_those_of_what_a_loss_is_made_of(gives, part):
    assert _gradients(TowerAndText(*gives), {"x": torch.ones(1, 2)}) == {f"{part}.weight", f"{part}.bias"}
