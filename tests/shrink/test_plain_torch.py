"""torch.save files and distributed checkpoints: the kept layers, bit for bit, in the form they had."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow


def state(layers=5):
    torch.manual_seed(0)
    names = [f"layers.{i}.{w}" for i in range(layers) for w in ("attention.wq.weight", "feed_forward.w1.weight")]
    return {name: torch.randn(3, 4) for name in ("tok_embeddings.weight", *names)}


def expected(whole, old, new):
    return {
        name.replace(f"layers.{old}.", f"layers.{new}."): tensor
        for name, tensor in whole.items()
        if name.startswith((f"layers.{old}.", "tok"))
    }


def equal(a, b):
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_torch_file_with_more_than_weights(tmp_path, distdbg):
    whole = state()
    torch.save({"model": whole, "step": 7, "optimizer": {"state": {0: {"exp_avg": torch.zeros(2)}}, "lr": 0.1}},
               tmp_path / "last.pt")  # fmt: skip
    done = distdbg("shrink-model", "last.pt", "small", "--keep", "0,4")
    assert done.code == 0, done
    small = torch.load(tmp_path / "small" / "last.pt", weights_only=True)
    equal(small["model"], expected(whole, 0, 0) | expected(whole, 4, 1))
    assert small["step"] == 7 and small["optimizer"] == {"lr": 0.1}
    assert "optimizer.state is left out" in done.err and "weights: pass" in done.out
    made = json.loads((tmp_path / "small" / "shrink.json").read_text())
    assert made["renamed"]["model.layers.4.attention.wq.weight"] == "model.layers.1.attention.wq.weight"


def test_a_distributed_checkpoint(tmp_path, distdbg):
    import torch.distributed.checkpoint as dcp

    whole = state()
    dcp.save({"model": whole, "step": 7}, checkpoint_id=str(tmp_path / "whole"), no_dist=True)
    done = distdbg("shrink-model", "whole", "small", "--keep", "2,3")
    assert done.code == 0, done
    wanted = expected(whole, 2, 0) | expected(whole, 3, 1)
    found = {f"model.{name}": torch.empty_like(tensor) for name, tensor in wanted.items()}
    dcp.load(found, checkpoint_id=str(tmp_path / "small"), no_dist=True)
    equal({name.removeprefix("model."): tensor for name, tensor in found.items()}, wanted)


def test_what_is_no_checkpoint_runs_nothing(tmp_path, distdbg):
    class Evil:
        def __reduce__(self):
            return (Path(tmp_path / "ran").touch, ())

    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / ".metadata").write_bytes(pickle.dumps(Evil()))
    (tmp_path / "evil.pt").write_bytes(pickle.dumps(Evil()))
    for source in ("whole", "evil.pt"):
        done = distdbg("shrink-model", source, "small")
        assert done.code == 5 and len(done.err.splitlines()) == 2, done
        assert not (tmp_path / "ran").exists() and not (tmp_path / "small").exists()
    assert sys.modules["torch"] is torch
