"""Nothing outside of a model's folder is read: links, names in index files and names of modules that leave it."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from distdbg.errors import EvidenceUnreadable, Refused
from distdbg.shrink.checkpoint.config_file import code_and_config
from distdbg.shrink.checkpoint.http_source import Server
from distdbg.shrink.checkpoint.megatron_arguments import TRACKER, iteration_of
from distdbg.shrink.checkpoint.opening import open_source
from distdbg.shrink.checkpoint.pickled import PICKLED, pickled_files
from distdbg.shrink.checkpoint.source import Folder
from distdbg.shrink.checkpoint.tensors import tensors_of
from distdbg.shrink.checkpoint.writing import copy_others
from tests.shrink import checkpoints

SECRET = "root:$6$secret"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 4}))
    checkpoints.write(folder / "model.safetensors", [f"model.layers.{n}.a" for n in range(4)])
    (tmp_path / "secret").write_text(SECRET)
    return folder


@pytest.mark.parametrize("target", ["{}/secret", "../secret", "hop"])
def test_link_out_of_the_folder_is_refused_by_name(model: Path, target: str) -> None:
    (model / "hop").symlink_to(model.parent / "secret")
    (model / "tokenizer.json").symlink_to(target.format(model.parent))
    with pytest.raises(Refused, match=r"tokenizer\.json is a link to .*secret") as found:
        Folder(model).small("tokenizer.json")
    assert SECRET not in found.value.message


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors", "model.safetensors.index.json", "config.json",
                                  "README.md", "modeling.py", "beside"])  # fmt: skip
def test_command_copies_nothing_that_a_link_leads_to(model: Path, distdbg, name: str) -> None:
    outside = model.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text((model / name).read_text(errors="replace") if (model / name).exists() else SECRET)
    (model / name).unlink(missing_ok=True)
    (model / name).symlink_to(outside if name == "beside" else outside / "file")
    done = distdbg("shrink-model", model, model.parent / "small", "--layers", "2", "--no-verify")
    assert done.code == 6 and f"{model / name} is a link to {outside}" in done.err, done
    assert not (model.parent / "small").exists() and not list(model.parent.glob(".small*"))


def test_links_within_the_folder_are_followed(model: Path) -> None:
    (model / "tokenizer.json").symlink_to("config.json")
    (model.parent / "called").symlink_to(model)
    assert Folder(model.parent / "called").small("tokenizer.json") == (model / "config.json").read_bytes()


@pytest.mark.parametrize("blobs", ["hub/models--org--tiny/blobs", "hub/blobs/ab"])
def test_snapshot_of_the_hub_cache_is_read(model: Path, blobs: str) -> None:
    """The blobs of one repository, and those that all repositories of a cache share."""
    cache = model.parent
    snapshot = cache / "hub" / "models--org--tiny" / "snapshots" / "0123"
    (snapshot / "sub").mkdir(parents=True)
    (cache / blobs).mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (model / name).rename(cache / blobs / name)
        (snapshot / "sub" / name).symlink_to(os.path.relpath(cache / blobs / name, snapshot / "sub"))
        (snapshot / name).symlink_to(os.path.relpath(cache / blobs / name, snapshot))
    assert len(tensors_of(Folder(snapshot)) or {}) == 4
    assert Folder(snapshot).small("sub/config.json") == Folder(snapshot).small("config.json")
    (snapshot / "tokenizer.json").symlink_to(cache / "secret")
    with pytest.raises(Refused):
        Folder(snapshot).small("tokenizer.json")


def test_blobs_folder_that_is_a_link_itself_is_refused(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--tiny" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text(SECRET)
    (tmp_path / "models--org--tiny" / "blobs").symlink_to(tmp_path / "private")
    (snapshot / "tokenizer.json").symlink_to("../../blobs/key")
    with pytest.raises(Refused):
        Folder(snapshot).small("tokenizer.json")


def test_file_that_the_user_names_may_be_a_link(model: Path, distdbg) -> None:
    other = model.parent / "other"
    other.mkdir()
    for name in ("config.json", "model.safetensors"):
        (other / name).symlink_to(model / name)
    assert open_source(str(other / "config.json")).small("config.json") == (model / "config.json").read_bytes()
    options = ["--layers", "2", "--pattern", "model.layers"]
    done = distdbg("shrink-model", other / "model.safetensors", model.parent / "small", *options)
    assert done.code == 0, done
    assert len(tensors_of(Folder(model.parent / "small")) or {}) == 2


@pytest.mark.parametrize("name", ["../stolen.json", "/tmp/stolen.json", "sub/../../stolen.py"])
def test_server_that_lists_files_outside_is_refused(tmp_path: Path, name: str) -> None:
    """Otherwise a file would be written beside DST."""
    server = Server("http://127.0.0.1:9/", listed=["config.json", name])
    with pytest.raises(EvidenceUnreadable, match="stolen"):
        copy_others(server, tmp_path / "small", ())
    assert not list(tmp_path.rglob("stolen*"))


@pytest.mark.parametrize("module", ["/tmp/evil.Config", "../evil.Config"])
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_trusted_code_is_in_the_folder(model: Path, tmp_path: Path, file: str, module: str) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / file).write_text(json.dumps(config | {"auto_map": {"AutoConfig": [None, module]}}))
    (tmp_path / "to").mkdir()
    with pytest.raises(Refused, match=f"'auto_map' in {file}"):
        code_and_config(Folder(model), tmp_path / "to", trust=True)
    (model / file).write_text(json.dumps(config | {"auto_map": {"AutoConfig": "org/code--evil.Config"}}))
    code_and_config(Folder(model), tmp_path / "to", trust=True)


def test_iterations_of_megatron_are_in_the_folder(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "checkpoints"
    for at in (outside / "iter_0000001", folder):
        at.mkdir(parents=True)
    (outside / "tracker").write_text("1")
    (folder / TRACKER).symlink_to(outside / "tracker")
    with pytest.raises(Refused, match=TRACKER):
        iteration_of(folder)
    (folder / TRACKER).unlink()
    (folder / TRACKER).write_text("1")
    (folder / "iter_0000001").symlink_to(outside / "iter_0000001")
    with pytest.raises(Refused, match="iter_0000001"):
        iteration_of(folder)


@pytest.mark.slow
@pytest.mark.parametrize("link", [True, False])
def test_parts_of_a_distributed_checkpoint_are_in_the_folder(tmp_path: Path, link: bool) -> None:
    """What is not a tensor is copied as bytes: a name in `.metadata` could copy any file."""
    import torch
    import torch.distributed.checkpoint as dcp

    from distdbg.shrink.checkpoint import plain_dcp

    state = {f"layers.{n}.weight": torch.zeros(100) for n in range(3)}
    dcp.save(state, checkpoint_id=str(tmp_path / "saved"), no_dist=True)
    (part,) = (tmp_path / "saved").glob("*.distcp")
    part.rename(tmp_path / "stolen.distcp")
    if link:
        part.symlink_to(tmp_path / "stolen.distcp")
    else:
        file = tmp_path / "saved" / ".metadata"
        metadata = pickle.loads(file.read_bytes())
        stored = {
            index: replace(info, relative_path="../stolen.distcp") for index, info in metadata.storage_data.items()
        }
        file.write_bytes(pickle.dumps(replace(metadata, storage_data=stored)))
    task = {"source": str(tmp_path / "saved"), "folder": str(tmp_path / "small"), "to": str(tmp_path / "to"),
            "order": {"layers": 2, "keep": "first", "pattern": "layers"}}  # fmt: skip
    (tmp_path / "small").mkdir()
    with pytest.raises((Refused, EvidenceUnreadable), match="stolen"):
        plain_dcp.run(task)
    assert not list((tmp_path / "small").iterdir())


def test_deeply_nested_index_is_no_index():
    with pytest.raises(EvidenceUnreadable, match="is no index"):
        pickled_files([PICKLED], b'{"weight_map": ' + b"[" * 100_000)


def test_tracker_with_thousands_of_digits_names_no_iteration(tmp_path):
    (tmp_path / TRACKER).write_text("7" * 4500)
    with pytest.raises(EvidenceUnreadable, match="names no iteration"):
        iteration_of(tmp_path)
