"""A small model is pushed to a hub that is served here; what cannot be pushed is refused before the work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.shrink.checkpoints import sharded
from tests.shrink.fake_hub import TOKEN, FakeHub, fake_hub

pytest.importorskip("huggingface_hub")


def model(folder: Path) -> Path:
    sharded(folder, 4, of_a_layer=["mlp.up_proj.weight"])
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 4}))
    return folder


def push(distdbg, tmp_path: Path, hub: FakeHub, repository: str, token: str = TOKEN):
    env = {"HF_ENDPOINT": hub.url, "HF_TOKEN": token, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1",
           "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}  # fmt: skip
    source = model(tmp_path / "large")
    return distdbg("shrink-model", source, tmp_path / "small", "--no-verify", "--push", repository, env=env)


def test_every_file_comes_to_a_private_repository(tmp_path: Path, distdbg) -> None:
    with fake_hub() as hub:
        done = push(distdbg, tmp_path, hub, "org/small")
    assert done.code == 0, done
    there = {name: text for name, text in hub.files["org/small"].items() if name != ".gitattributes"}
    small = tmp_path / "small"
    assert there == {path.name: path.read_bytes() for path in small.iterdir()} and "model.safetensors" in there
    assert hub.private["org/small"] and f"{hub.url}/org/small" in done.out


def test_a_repository_with_files_is_left_as_it_is(tmp_path: Path, distdbg) -> None:
    with fake_hub() as hub:
        hub.files["org/mine"] = {"model.safetensors": b"precious"}
        done = push(distdbg, tmp_path, hub, "org/mine")
    assert done.code == 2 and "nothing is overwritten" in done.err, done
    assert hub.files["org/mine"] == {"model.safetensors": b"precious"} and not (tmp_path / "small").exists()


@pytest.mark.parametrize(("repository", "token"), [("no name/at all", TOKEN), ("org/small", "hf_of_nobody")])
def test_what_the_hub_would_refuse_is_said_before_the_work(tmp_path: Path, distdbg, repository, token) -> None:
    with fake_hub() as hub:
        done = push(distdbg, tmp_path, hub, repository, token)
    assert done.code == 2 and "--push" in done.err, done
    assert not hub.files and not (tmp_path / "small").exists()


def test_a_push_that_fails_leaves_the_folder(tmp_path: Path, distdbg) -> None:
    with fake_hub() as hub:
        hub.refuses = True
        done = push(distdbg, tmp_path, hub, "org/small")
    assert done.code != 0 and "could not be pushed" in done.err and "hf upload" in done.err, done
    assert (tmp_path / "small" / "model.safetensors").exists()
