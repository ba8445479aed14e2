"""`--watch shapes` inside rank 0: one table for what the model gets, another where that changes; no hook between."""

import io
from pathlib import Path

import pytest
import torch

from distdbg.worker.hooks.bus import Bus
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.page import PageWriter
from distdbg.worker.watch.root import RootWatch
from distdbg.worker.watch.shapes import ShapeWatch, describe, signature

pytestmark = pytest.mark.slow  # torch in this process


class Ears(Bus):
    """A bus that listens to no torch."""

    def _install_later(self, point):
        pass


class Rank:
    """What a session is to a watch. `text` is what the agent would have moved into the run directory last."""

    def __init__(self, folder, rank=0):
        self.rank, self.stem, self.reported = rank, f"{folder}/00000", []
        self.page = PageWriter(str(folder / "page"), 0, 1)
        self.bus = Ears(ImportWatch(lambda *_: None), lambda *what: self.reported.append(what))
        self.link, self.text, self.messages = self, "", 0
        self.root = RootWatch(self)
        self.watch = ShapeWatch(self, self.root)

    def fact(self, *what, **more):
        self.reported.append((what, more))
        return True

    def send(self, op, fields, **_how):
        (file,) = fields["files"]
        assert (op, file["name"]) == ("shapes", "shapes.txt")
        self.text = (Path(self.stem).parent / file["file"]).read_text()
        self.messages += 1
        return True


class Output(dict):
    """As transformers' ModelOutput is."""


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
        self.unused = torch.nn.Linear(2, 2)

    def forward(self, batch, *, scale=2, mask=None):
        x, (y, _) = batch["x"], batch["more"]
        if x.shape[0] == 13:
            raise ValueError(x.shape)
        return Output(logits=self.inner(x) + self.inner(y) * scale, mask=mask)


@pytest.fixture
def rank(tmp_path):
    made = Rank(tmp_path)
    yield made
    made.watch.end()
    assert made.reported == []


def batch(size):
    return {"x": torch.randn(size, 4), "more": (torch.randn(size, 4), None)}


def hooks(net):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules())


def test_a_table_names_every_module_with_what_it_took_and_gave(rank):
    net = Net()
    rank.watch.model(net)
    net(batch(3), mask=torch.ones(3, dtype=torch.bool))
    lines = [" ".join(line.split()) for line in rank.text.splitlines()]
    assert lines[0] == "At step 1, 46 parameters"
    assert lines[2] == (
        "the model Net {x: float32[3, 4], more: (float32[3, 4], None)}, mask=bool[3] "
        "Output{logits: float32[3, 8], mask: bool[3]} 0"
    )
    assert lines[3:6] == [
        "inner x2 Sequential float32[3, 4] float32[3, 8] 0",
        "inner.0 x2 Linear float32[3, 4] float32[3, 8] 40",
        "inner.1 x2 ReLU float32[3, 8] float32[3, 8] 0",
    ]
    assert lines[6] == "not called, or compiled: unused"
    assert hooks(net) == 1, "that which looks at the batch"


def test_another_shape_is_another_table_up_to_twenty(rank):
    net = Net()
    rank.watch.model(net)
    for size in (2, 3, 2, 2, 3, 4):
        net(batch(size))
    assert rank.messages == 3 and rank.text.count("At step") == 3
    for size in range(20, 60):
        net(batch(size))
    assert rank.messages == 20
    assert hooks(net) == 0, "nobody listens any more"


def test_a_forward_that_raises_is_reported_as_far_as_it_came(rank):
    net = Net()
    rank.watch.model(net)
    with pytest.raises(ValueError, match="13"):
        net(batch(13))
    assert rank.text == ""
    net(batch(2))
    assert "the forward did not finish" in rank.text.splitlines()[0]
    assert rank.text.count("At step") == 2


def test_a_model_that_is_saved_or_compiled_meets_none_of_it(rank):
    net = Net()
    rank.watch.model(net)
    rank.bus.channel("save")[0](None)
    file = io.BytesIO()
    torch.save(net.inner, file)
    assert hooks(net) == 0 and b"distdbg" not in file.getvalue()
    rank.bus.channel("forward")[0](net)
    compiled = torch.compile(lambda x: net.inner(x) + 1, backend="eager", fullgraph=True)
    assert compiled(torch.randn(2, 4)).shape == (2, 8)
    compiled = torch.compile(lambda x: net({"x": x, "more": (x, None)})["logits"], backend="eager", fullgraph=True)
    assert compiled(torch.randn(2, 4)).shape == (2, 8)
    assert rank.messages == 0


def test_other_ranks_look_at_nothing(tmp_path):
    other = Rank(tmp_path, rank=3)
    net = Net()
    other.watch.model(net)
    net(batch(2))
    assert other.messages == 0 and hooks(net) == 0


def test_words_for_nested_values_stay_short():
    assert describe([torch.zeros(2, dtype=torch.bfloat16)] * 10).endswith("bfloat16[2], … 2 more]")
    assert describe({"a": object(), "b": {"c": {"d": {"e": {"f": torch.ones(1)}}}}}).count("{") == 4
    assert len(describe({f"key{n}": "x" * 100 for n in range(8)})) <= 240
    assert signature((torch.ones(2), {"n": 1})) == signature((torch.zeros(2), {"n": 2})) != signature((torch.ones(3),))
