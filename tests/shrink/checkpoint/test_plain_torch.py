"""torch.save files and distributed checkpoints: the kept layers, bit for bit, in the form they had."""

from __future__ import annotations

import argparse
import json
import pickle
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from distdbg.errors import Refused
from distdbg.shrink.checkpoint.opening import open_source
from distdbg.shrink.checkpoint.plain import make_plain
from distdbg.shrink.checkpoint.plain_names import PlainOrder

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
    assert "optimizer.state is left out" in done.err
    made = json.loads((tmp_path / "small" / "shrink.json").read_text())
    assert made["verified"]["weights"].startswith("pass")
    assert made["renamed"]["model.layers.4.attention.wq.weight"] == "model.layers.1.attention.wq.weight"


def test_a_distributed_checkpoint(tmp_path, distdbg):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    whole = state()
    rates = {f"layers.{i}.w": rate for i, rate in enumerate([0.0, 0.0, 0.1, 0.2, 0.3])}
    dcp.save({"model": whole, "step": 7, "lr": rates}, checkpoint_id=str(tmp_path / "whole"), no_dist=True)
    done = distdbg("shrink-model", "whole", "small", "--keep", "2,3")
    assert done.code == 0, done
    wanted = expected(whole, 2, 0) | expected(whole, 3, 1)
    found = {f"model.{name}": torch.empty_like(tensor) for name, tensor in wanted.items()}
    dcp.load(found, checkpoint_id=str(tmp_path / "small"), no_dist=True)
    equal({name.removeprefix("model."): tensor for name, tensor in found.items()}, wanted)
    dcp_to_torch_save(str(tmp_path / "small"), str(tmp_path / "small.pt"))
    again = torch.load(tmp_path / "small.pt", weights_only=True)
    equal(again.pop("model"), wanted)
    assert again == {"step": 7, "lr": {"layers.0.w": 0.1, "layers.1.w": 0.2}}


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
    assert small["args"].num_layers == 2
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


def test_the_number_of_layers_among_the_arguments_follows(tmp_path: Path) -> None:
    """nanoGPT keeps `n_layer` beside the weights, Megatron a namespace."""
    weights = {f"transformer.h.{i}.{n}": torch.rand(2) for i in range(9) for n in ("w", "b")}
    arguments = {"n_layer": 9, "n_head": 9, "block_size": 64}
    torch.save({"model": weights, "model_args": arguments, "args": argparse.Namespace(num_layers=9)}, tmp_path / "c.pt")
    make_plain(str(tmp_path / "c.pt"), tmp_path / "small", PlainOrder(2, "ends"))
    with torch.serialization.safe_globals([argparse.Namespace]):
        small = torch.load(tmp_path / "small" / "c.pt", weights_only=True)
    assert small["model_args"] == {"n_layer": 2, "n_head": 9, "block_size": 64} and small["args"].num_layers == 2
    assert torch.equal(small["model"]["transformer.h.1.w"], weights["transformer.h.8.w"])


def test_a_gguf_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(Refused, match="GGUF"):
        open_source(str(tmp_path / "m.gguf"))
