"""`distdbg.watch()` and `--watch` on models that nothing wraps, in real launches on the CPU."""

import json

import pytest

pytestmark = pytest.mark.slow

#: At step 5 the logarithm of zero; the model is saved as a whole after the second.
TRAIN = """
import torch
class Log(torch.nn.Module):
    def forward(self, x):
        return torch.log(x)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.log, self.last = torch.nn.Linear(4, 4), Log(), torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.last(self.log(self.first(x).abs() * x.amin()))
torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
{asked}
for step in range(7):
    x = torch.rand(2 + step, 4) + 0.1
    if step == 4:
        x[0, 0] = 0
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 1:
        torch.save(model, "model.pt")
"""


@pytest.fixture
def trained(distdbg, tmp_path):
    def launch(*options, asked=""):
        (tmp_path / "train.py").write_text(TRAIN.format(asked=asked))
        done = distdbg("launch", *options, "--nproc-per-node", "1", tmp_path / "train.py", timeout=120)
        assert done.code == 0, done
        assert b"distdbg" not in next(done.cwd.rglob("model.pt")).read_bytes()
        return done

    return launch


def findings(done):
    return {f["id"]: f for f in json.loads(done.run.report_json.read_text())["findings"]}


def facts(done, kind):
    lines = done.run.attempt(1).rank(0).facts.read_text().splitlines()
    return [fact for line in lines if (fact := json.loads(line)).get("kind") == kind]


def test_a_model_that_the_script_names_is_watched_after_it_was_saved(trained):
    asked = "import distdbg; distdbg.watch(model, levels='numerics,shapes')"
    done = trained("--watch", "numerics", "--on-nonfinite", "dump", asked=asked)
    found = findings(done)["non-finite"]
    assert "at step 5 the output of log is the first" in found["summary"], found
    rank = done.run.attempt(1).rank(0)
    assert (rank.nonfinite / "batch.pt").is_file() and (rank.nonfinite / "model.pkl").is_file()
    assert rank.shapes.read_text().count("At step") == 6, "all but the sixth, after the dump has saved the model"


def test_a_script_begins_numerics_and_gradients_and_is_warned_of_what_there_is_not(trained):
    done = trained(asked="import distdbg; distdbg.watch(model); distdbg.watch(levels=['gradient', 'shapes'])")
    rank = done.run.attempt(1).rank(0)
    assert "at step 5 the output of log" in findings(done)["non-finite"]["summary"]
    assert [fact["layers"] for fact in facts(done, "gradient-layers")] == [["first", "last"]]
    assert rank.gradients.is_file() and rank.shapes.is_file()
    assert "train.py:15: UserWarning: distdbg.watch: there is no level 'gradient' to watch" in done.err, done.err
    assert facts(done, "watch-failed") == []


def test_a_launch_finds_the_model_without_a_word_of_the_script(trained):
    done = trained("--watch", "numerics,gradients,shapes")
    assert "at step 5 the output of log" in findings(done)["non-finite"]["summary"]
    assert [fact["layers"] for fact in facts(done, "gradient-layers")] == [["first", "last"]]
    assert done.run.attempt(1).rank(0).shapes.read_text().startswith("At step 2")
    for kind in ("watch-failed", "subscriber-dropped", "not-hooked"):
        assert facts(done, kind) == []


def test_a_launch_that_watches_one_level_begins_no_other(trained):
    done = trained("--watch", "numerics")
    rank = done.run.attempt(1).rank(0)
    assert "non-finite" in findings(done)
    assert not rank.gradients.exists() and not rank.shapes.exists()
