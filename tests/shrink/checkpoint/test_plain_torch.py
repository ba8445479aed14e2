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


def test_names_of_megatron_with_what_is_no_tensor(tmp_path, distdbg):
    """Fused tensors, arguments in a Namespace, and a state beside the weights of each layer that is no tensor."""
    import argparse

    torch.manual_seed(0)
    names = ("self_attention.linear_qkv.weight", "mlp.linear_fc1.weight", "mlp.linear_fc2.weight")
    whole = {f"decoder.layers.{i}.{name}": torch.randn(3, 4) for i in range(5) for name in names}
    states = {f"decoder.layers.{i}.self_attention._extra_state": f"of {i}" for i in range(5)}
    torch.save({"model": whole | states, "args": argparse.Namespace(num_layers=5)}, tmp_path / "model_optim_rng.pt")
    done = distdbg("shrink-model", "model_optim_rng.pt", "small", "--keep", "0,4")
    assert done.code == 0, done
    with torch.serialization.safe_globals([argparse.Namespace]):
        small = torch.load(tmp_path / "small" / "model_optim_rng.pt", weights_only=True)
    assert small["args"].num_layers == 5
    said = {name: value for name, value in small["model"].items() if isinstance(value, str)}
    assert list(said.values()) == ["of 0", "of 4"] and list(said)[1] == "decoder.layers.1.self_attention._extra_state"
    for name in names:
        assert torch.equal(small["model"][f"decoder.layers.1.{name}"], whole[f"decoder.layers.4.{name}"])


def test_all_layers_in_one_tensor(tmp_path, distdbg):
    """Megatron's sharded checkpoints: the weights, and the optimizer's states with the same names."""
    import torch.distributed.checkpoint as dcp

    torch.manual_seed(0)
    names = [f"{at}decoder.layers.{name}.weight" for at in ("", "optimizer.state.exp_avg.")
             for name in ("self_attention.linear_qkv", "mlp.linear_fc1")]  # fmt: skip
    whole = {name: torch.randn(6, 3, 4) for name in names} | {"embedding.word_embeddings.weight": torch.randn(6, 2)}
    dcp.save(whole, checkpoint_id=str(tmp_path / "whole"), no_dist=True)
    unknown = distdbg("shrink-model", "whole", "small", "--keep", "0,5")
    assert unknown.code == 3 and "--pattern decoder.layers" in unknown.err, unknown
    done = distdbg("shrink-model", "whole", "small", "--keep", "0,5", "--pattern", "decoder.layers")
    assert done.code == 0, done
    found = {name: torch.empty(2, 3, 4) for name in names} | {"embedding.word_embeddings.weight": torch.empty(6, 2)}
    dcp.load(found, checkpoint_id=str(tmp_path / "small"), no_dist=True)
    equal(found, {name: t[[0, 5]] if t.dim() == 3 else t for name, t in whole.items()})
    made = json.loads((tmp_path / "small" / "shrink.json").read_text())
    assert made["sliced"]["decoder.layers.mlp.linear_fc1.weight"] == {"from": [6, 3, 4], "to": [2, 3, 4]}
