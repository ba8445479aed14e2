"""`distdbg shrink-model` from end to end: a folder in, a smaller one out that transformers loads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.shrink import models, ranges

pytestmark = pytest.mark.slow


def loaded(folder: Path):
    import transformers

    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    return model


def test_two_layers_of_six_are_what_they_were(tmp_path: Path, distdbg) -> None:
    import torch

    source = models.llama(tmp_path / "large")
    (source / "chat_template.jinja").write_text("{{ messages }}")
    done = distdbg("shrink-model", source, tmp_path / "small", "--keep", "0,5", "--extrapolate", "--tokens", "32")
    assert done.code == 0, done
    assert "model.layers: kept 0,5 of 6 layers" in done.out and done.out.count("verified: ") == 3
    parameters = sum(p.numel() for p in loaded(source).parameters())
    assert f"parameters            {parameters:,}\n" in done.out
    small, full = loaded(tmp_path / "small").state_dict(), loaded(source).state_dict()
    assert len(small) < len(full)
    for name, value in small.items():
        assert torch.equal(value, full[name.replace("layers.1.", "layers.5.")]), name
    made = json.loads((tmp_path / "small" / "shrink.json").read_text())
    assert set(made["verified"]) >= {"ops", "gradients", "stored_names", "weights"}
    assert made["schema"] == "distdbg.shrink/1" and made["stacks"][0]["kept"] == [0, 5]
    assert made["renamed"]["model.layers.5.mlp.up_proj.weight"] == "model.layers.1.mlp.up_proj.weight"
    assert (tmp_path / "small" / "chat_template.jinja").read_text() == "{{ messages }}"


def test_a_model_of_the_hub_is_read_by_ranges_and_from_its_cache(tmp_path: Path, distdbg) -> None:
    """A server speaks the hub's protocol. Then it is gone, and a cache is there."""
    sha = "0123456789abcdef0123456789abcdef01234567"
    source = models.llama(tmp_path / "large")
    model_info = {"id": "org/tiny", "modelId": "org/tiny", "sha": sha, "siblings": [
        {"rfilename": file.name} for file in source.iterdir()]}  # fmt: skip
    api, files = tmp_path / "hub" / "api" / "models" / "org", tmp_path / "hub" / "org" / "tiny" / "resolve"
    api.mkdir(parents=True)
    files.mkdir(parents=True)
    (api / "tiny").write_text(json.dumps(model_info))
    (files / sha).symlink_to(source)
    home = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"}
    with ranges.served(tmp_path / "hub") as url:
        env = {**home, "HF_ENDPOINT": url.rstrip("/")}
        done = distdbg("shrink-model", "org/tiny", tmp_path / "small", "--layers", "2", env=env)
        assert done.code == 0, done
        none = distdbg("shrink-model", "org/none", tmp_path / "none", env=env)
        assert none.code == 2 and "the hub does not give it" in none.err
    made = json.loads((tmp_path / "small" / "shrink.json").read_text())
    assert made["stacks"][0]["kept"] == [0, 1] and made["verified"]["weights"].startswith("pass")
    cache = tmp_path / "hf" / "hub" / "models--org--tiny"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text(sha)
    (cache / "snapshots").mkdir()
    source.rename(cache / "snapshots" / sha)
    env = {**home, "HF_ENDPOINT": url.rstrip("/"), "HF_HUB_OFFLINE": "1"}
    done = distdbg("shrink-model", "org/tiny", tmp_path / "again", "--layers", "2", "--no-verify", env=env)
    assert done.code == 0, done
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        tmp_path / "small" / "model.safetensors"
    ).read_bytes()


def test_a_config_alone_gives_random_weights(tmp_path: Path, distdbg) -> None:
    source = models.llama(tmp_path / "large")
    options = ["--layers", "3", "--random", "--dtype", "bfloat16", "--json"]
    done = distdbg("shrink-model", source / "config.json", tmp_path / "s", *options)
    assert done.code == 0, done
    assert json.loads(done.out) == json.loads((tmp_path / "s" / "shrink.json").read_text())
    model = loaded(tmp_path / "s")
    assert model.config.num_hidden_layers == 3 and str(model.dtype) == "torch.bfloat16"


def test_nothing_is_overwritten(tmp_path: Path, distdbg) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine").write_text("precious")
    done = distdbg("shrink-model", models.llama(tmp_path / "large"), tmp_path / "there")
    assert done.code == 2 and "is not empty" in done.err, done
    assert [p.name for p in (tmp_path / "there").iterdir()] == ["mine"]


def test_the_end_that_slurm_sends_leaves_what_was_written_and_nothing_else(tmp_path: Path) -> None:
    source, partial, folder = models.llama(tmp_path / "large"), tmp_path / ".small.partial", tmp_path / "tmp"
    folder.mkdir()
    command = [sys.executable, "-m", "distdbg", "shrink-model", str(source), str(tmp_path / "small")]
    job = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(folder)}, stderr=subprocess.PIPE, text=True)
    while not (partial / "model.safetensors").exists():
        assert job.poll() is None
        time.sleep(0.05)
    job.terminate()  # while it verifies
    said = job.communicate(timeout=60)[1]
    assert job.returncode == 128 + signal.SIGTERM
    assert f"{partial}; the same command goes on from it" in said
    assert partial.is_dir() and list(folder.iterdir()) == []


def test_the_anatomy_writes_nothing(tmp_path: Path, distdbg) -> None:
    source = models.llama(tmp_path / "large")
    done = distdbg("shrink-model", "--anatomy", source)
    assert done.code == 0, done
    assert "model.layers: 6 layers, counted by num_hidden_layers" in done.out
    assert "AAAAAA\n  ^^\n" in done.out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["home", "large"] or not (tmp_path / "home").exists()
