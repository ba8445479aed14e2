"""What one pass on meta says of a model."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from distdbg.shrink.verify.measuring import measure


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
    model = TowerAndText(*gives).to("meta")
    found = measure(model, model, {"x": torch.ones(1, 2)}, [])
    assert found.gradients == {f"{part}.weight", f"{part}.bias"}
