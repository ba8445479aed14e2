"""The training scripts that ship: the loss falls, a save cut short costs nothing, and a resumed run is the same run."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "launch"
COUNTS = Path(__file__).with_name("threads_at_the_end.py")
DIE_IN_SAVE = Path(__file__).with_name("die_in_save.py")
#: Small batches, for speed; 52 steps are one checkpoint at step 50 and one at the end.
SMALL = ("--batch-size", 4, "--accumulate", 2, "--steps", 52)


def losses(output: str) -> dict[str, str]:
    """What a run printed as its losses, without the rates: {"step 10/52": "3.1415", "step 50/52 validation": …}."""
    return dict(re.findall(r"(step \d+/\d+(?:  validation)?)\s+loss (\d+\.\d+)", output))


@pytest.mark.slow
def test_no_thread_is_left_that_could_abort_the_end(distdbg, tmp_path):
    """One of gloo's that is there while Python ends may abort the process: `distdbg findings abort-at-exit`. FSDP2
    leaves some: torch's caches of DTensor keep the mesh and its group."""
    words = ("--worker-side", "off", COUNTS, SCRIPTS / "ddp.py", "--out", tmp_path / "out", "--steps", 1)
    done = distdbg("launch", "--nproc-per-node", 1, *words, env={"PYTHONPATH": os.devnull})
    _, before, after = next(line for line in done.out.splitlines() if line.startswith("threads")).split()
    assert (done.code, after) == (0, "0") and int(before), done


@pytest.mark.slow
@pytest.mark.parametrize(("script", "victim"), [("ddp.py", 0), ("fsdp.py", 1)])
def test_two_nodes_train_survive_a_kill_amid_a_save_and_resume_exactly(distdbg, tmp_path, monkeypatch, script, victim):
    import torch

    monkeypatch.syspath_prepend(str(SCRIPTS))
    from gpt import GPT, Config

    launch = ("launch", "--nodes", 2)
    whole = distdbg(*launch, SCRIPTS / script, "--out", tmp_path / "whole", *SMALL)
    assert whole.code == 0, whole
    expected = losses(whole.run.attempt(1).rank(0).stdout.read_text())
    assert float(expected["step 1/52"]) > 5, "an untrained model knows nothing: ln 256 = 5.5"
    assert float(expected["step 52/52  validation"]) < 3.2
    ranks = json.loads(whole.run.report_json.read_text())["ranks"]
    assert [rank["step"] for rank in ranks] == [52, 52], "optimizer steps, as the worker side counted them"

    # The victim has synced one file of step 50's checkpoint (rank 0 under FSDP two), and dies at the next.
    cut = distdbg(*launch, DIE_IN_SAVE, victim, 2, SCRIPTS / script, "--out", tmp_path / "cut", *SMALL)
    assert cut.code == 137, cut
    resumed = distdbg(*launch, SCRIPTS / script, "--out", tmp_path / "cut", *SMALL, "--resume")
    assert resumed.code == 0, resumed
    said = resumed.run.attempt(1).rank(0).stdout.read_text()
    assert "resumed at step 50" in said
    after = losses(said)
    assert after.keys() == {"step 52/52  validation"}
    assert float(after["step 52/52  validation"]) == pytest.approx(float(expected["step 52/52  validation"]), abs=2e-4)

    weights = {
        name: torch.load(tmp_path / name / ("checkpoint.pt" if script == "ddp.py" else "model.pt"), weights_only=True)
        for name in ("whole", "cut")
    }
    if script == "ddp.py":
        weights = {name: checkpoint["model"] for name, checkpoint in weights.items()}
    GPT(Config()).load_state_dict(weights["whole"])  # strict: neither `module.` nor `_orig_mod.` before the names
    for name, weight in weights["whole"].items():
        torch.testing.assert_close(weights["cut"][name], weight, rtol=0, atol=1e-5, msg=name)
    sys.modules.pop("gpt")

    on_three = ("--batch-size", 4, "--accumulate", 2, "--steps", 53, "--resume")
    done = distdbg("launch", "--nproc-per-node", 3, SCRIPTS / script, "--out", tmp_path / "cut", *on_three)
    assert done.code == 0 and "resumed at step 52" in done.out, done


@pytest.mark.slow
@pytest.mark.parametrize("script", ["ddp", "fsdp"])
def test_on_many_ranks_nobody_is_without_validation_and_no_job_without_training(monkeypatch, script):
    import torch

    monkeypatch.syspath_prepend(str(SCRIPTS))
    module, gpt = importlib.import_module(script), importlib.import_module("gpt")
    monkeypatch.setattr(gpt, "Text", functools.cache(gpt.Text))
    windows = len(gpt.Text("validation", gpt.Config.context))
    for world in (1, 24, 1000):
        monkeypatch.setattr(module.dist, "get_world_size", lambda world=world: world)
        seen, counts = set(), set()
        for rank in range(world):
            monkeypatch.setattr(module.dist, "get_rank", lambda rank=rank: rank)
            batches = gpt.loader("validation", 16)
            seen |= set(batches.sampler)
            counts.add(len(batches))
        assert len(seen) == windows and len(counts) == 1 and counts != {0}, world
    with pytest.raises(SystemExit, match="1000 ranks: take a smaller --batch-size"):
        gpt.loader("train", 16)

    class Mean(torch.nn.Module):
        def forward(self, x, _y):
            return x.mean()

    monkeypatch.setattr(module.dist, "all_reduce", lambda _total: None)
    batches = [(torch.ones(3, 1), torch.ones(3, 1)), (torch.zeros(1, 1), torch.zeros(1, 1))]
    more = (contextlib.nullcontext(),) if script == "ddp" else ()
    assert module.validate(Mean(), batches, torch.device("cpu"), *more) == 0.75
    for name in (script, "gpt"):
        sys.modules.pop(name)
