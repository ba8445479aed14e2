"""Only what is kept is read; a cut connection, a kill and a second try lose nothing. No torch in any of it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.errors import EvidenceUnreadable, UsageError
from distdbg.shrink.checkpoint.http_source import Server
from distdbg.shrink.checkpoint.layer_names import all_renumbered
from distdbg.shrink.checkpoint.slicing import pieces
from distdbg.shrink.checkpoint.source import CutOffError, Folder
from distdbg.shrink.checkpoint.staging import refuse_a_full_disk, staged
from distdbg.shrink.checkpoint.tensors import tensors_of
from distdbg.shrink.checkpoint.writing import output_files, write_files
from tests.shrink import checkpoints, models, ranges

KEPT = {"model.layers": [0, 7]}


def expected(data: dict[str, bytes]) -> dict[str, bytes]:
    names = {
        f"model.layers.{old}.{x}": f"model.layers.{new}.{x}"
        for new, old in enumerate(KEPT["model.layers"])
        for x in "ab"
    }
    return {names.get(n, n): v for n, v in data.items() if n in names or "layers" not in n}


def copy(source, folder: Path, **options) -> dict[str, bytes]:
    taken, _ = pieces(tensors_of(source).values(), lambda name: all_renumbered(name, KEPT), {})
    folder.mkdir(exist_ok=True)
    write_files(source, output_files(taken, **options), folder, lambda _n: None)
    return content(folder)


def content(folder: Path) -> dict[str, bytes]:
    return {
        t.name: (folder / t.file).read_bytes()[t.start : t.start + t.length]
        for t in tensors_of(Folder(folder)).values()
    }


def test_only_the_kept_bytes_are_read(tmp_path: Path) -> None:
    data = checkpoints.sharded(tmp_path / "a", 8, shape=(64, 256))
    source = Folder(tmp_path / "a")
    assert copy(source, tmp_path / "b") == expected(data)
    assert source.bytes_read <= 1.05 * sum(len(v) for v in expected(data).values())


def test_safetensors_reads_what_was_written(tmp_path: Path) -> None:
    from safetensors import safe_open

    data = checkpoints.sharded(tmp_path / "a", 8)
    copy(Folder(tmp_path / "a"), tmp_path / "b")
    with safe_open(tmp_path / "b" / "model.safetensors", "np") as file:
        assert {k: file.get_tensor(k).tobytes() for k in file.keys()} == expected(data)


def test_large_results_are_sharded_with_an_index(tmp_path: Path) -> None:
    data = checkpoints.sharded(tmp_path / "a", 8)
    assert copy(Folder(tmp_path / "a"), tmp_path / "b", largest=300) == expected(data)
    index = json.loads((tmp_path / "b" / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) == 3 and index["metadata"]["total_size"] == 5 * 128


def test_without_the_kernels_help(tmp_path: Path) -> None:
    data = checkpoints.sharded(tmp_path / "a", 8)
    assert copy(Folder(tmp_path / "a", in_kernel=False), tmp_path / "b") == expected(data)


@pytest.mark.parametrize("missing", [1, 100, 300, 639, 640, 700, 10**6])
def test_a_second_try_goes_on_where_the_first_ended(tmp_path: Path, missing: int) -> None:
    data = checkpoints.sharded(tmp_path / "a", 8)
    copy(Folder(tmp_path / "a"), tmp_path / "b")
    path = tmp_path / "b" / "model.safetensors"
    os.truncate(path, max(0, path.stat().st_size - missing))
    source = Folder(tmp_path / "a")
    taken, _ = pieces(tensors_of(source).values(), lambda name: all_renumbered(name, KEPT), {})
    before = source.bytes_read
    write_files(source, output_files(taken), tmp_path / "b", lambda _n: None)
    assert content(tmp_path / "b") == expected(data)
    assert source.bytes_read - before == min(missing, 640)


def test_over_http_ranges_with_cut_connections(tmp_path: Path) -> None:
    data = checkpoints.sharded(tmp_path / "a", 8, shape=(300, 256))
    with ranges.served(tmp_path / "a", cut_after=150_000, cuts=3) as url:
        source = Server(url, pause=0.001)
        assert copy(source, tmp_path / "b") == expected(data)
        kept = sum(len(v) for v in expected(data).values())
        assert source.bytes_read < kept + 13 * 100_000
        assert source.requests < 60


def test_a_server_that_stays_away_is_one_sentence(tmp_path: Path) -> None:
    checkpoints.sharded(tmp_path / "a", 8, shape=(300, 256))
    with (
        ranges.served(tmp_path / "a", cut_after=120_000, cuts=10**6) as url,
        pytest.raises(CutOffError, match="6 tries"),
    ):
        source = Server(url, pause=0.001)
        # what comes before a cut counts as progress, so nothing may come at all
        source.ask = lambda *_a: (_ for _ in ()).throw(ConnectionResetError("reset"))
        source.small("config.json")


def test_a_server_without_ranges_is_refused(tmp_path: Path) -> None:
    checkpoints.sharded(tmp_path / "a", 8, shape=(300, 256))
    with ranges.served(tmp_path / "a", ranges=False) as url, pytest.raises(EvidenceUnreadable, match="byte ranges"):
        tensors_of(Server(url, pause=0.001))


@pytest.mark.parametrize("shard", ["../secret.safetensors", "/etc/passwd", "a\\b.safetensors", "x.bin", 7])
def test_shard_names_do_not_leave_the_folder(tmp_path: Path, shard: object) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(EvidenceUnreadable, match=r"no file beside it|as a file"):
        tensors_of(Folder(tmp_path))


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ({"weight_map": {"a": "gone.safetensors"}}, "names 'gone.safetensors', which is not in"),
        ({"weight_map": {"zzz": "rest.safetensors"}}, "'zzz' is in rest.safetensors, but it is not there"),
        ({}, "is no index"),
        ([], "is no index"),
    ],
)
def test_an_index_that_does_not_fit(tmp_path: Path, index: object, says: str) -> None:
    checkpoints.sharded(tmp_path, 2)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(EvidenceUnreadable, match=says):
        tensors_of(Folder(tmp_path))


def test_a_circle_of_links(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("model.safetensors")
    with pytest.raises(EvidenceUnreadable, match="circle"):
        tensors_of(Folder(tmp_path))


def test_a_failure_leaves_nothing_and_a_cut_leaves_what_came(tmp_path: Path) -> None:
    for error, left in ((ValueError("x"), False), (CutOffError("x", "y"), True), (KeyboardInterrupt(), True)):
        with pytest.raises(type(error)), staged(tmp_path / "d", "plan") as folder:
            (folder / "file").write_text("came")
            raise error
        assert not (tmp_path / "d").exists()
        assert (tmp_path / ".d.partial" / "file").exists() is left
    with staged(tmp_path / "d", "plan") as folder:
        assert (folder / "file").read_text() == "came"
    assert [p.name for p in tmp_path.iterdir()] == ["d"] and [p.name for p in (tmp_path / "d").iterdir()] == ["file"]


def test_what_cannot_be_gone_on_with_does_not_stay(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), staged(tmp_path / "d", "plan", resume=False) as folder:
        (folder / "file").write_text("came")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_is_a_sentence_and_what_came_stays(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No space left on device"), staged(tmp_path / "d", "plan") as folder:
        (folder / "file").write_text("came")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "more"))
    assert (tmp_path / ".d.partial" / "file").exists()


def test_another_plan_does_not_go_on_from_it(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), staged(tmp_path / "d", "one") as folder:
        (folder / "file").write_text("came")
        raise KeyboardInterrupt
    with staged(tmp_path / "d", "two") as folder:
        assert not (folder / "file").exists()


def test_two_commands_do_not_write_one_folder(tmp_path: Path) -> None:
    with staged(tmp_path / "d", "p"), pytest.raises(UsageError, match="another command"), staged(tmp_path / "d", "p"):
        pass


def test_a_full_disk_is_reported_before(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="GB free"):
        refuse_a_full_disk(tmp_path / "d", 10**18)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["random", "pickled", "torch", "dcp"])
def test_and_where_a_library_writes(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    from distdbg.shrink.checkpoint import pickled, plain_dcp, plain_torch
    from distdbg.shrink.probe.task import random_weights

    class Full:
        f_bavail, f_frsize = 1, 512

    source = models.llama(tmp_path / "large")
    order = {"folder": str(source), "to": str(tmp_path / "small"), "trust": False, "dtype": None, "seed": 0}
    state = {f"layers.{n}.weight": torch.zeros(1000) for n in range(3)}
    torch.save(state, source / "model.bin")
    dcp.save(state, checkpoint_id=str(tmp_path / "saved"), no_dist=True)
    of_layers = {"order": {"layers": 2, "keep": "first", "pattern": "layers"}}
    monkeypatch.setattr(os, "statvfs", lambda _path: Full)
    with pytest.raises(UsageError, match=r"small needs .* GB and the disk has 0\.00 GB free"):
        if task == "random":
            random_weights(order)
        elif task == "pickled":
            probe = {"stacks": [], "cuts": {}, "entries": {}}
            pickled.run(order | {"source": str(source), "files": ["model.bin"], "probe": probe, "config": str(source)})
        elif task == "torch":
            plain_torch.run(order | of_layers | {"source": str(source / "model.bin")})
        else:
            plain_dcp.run(order | of_layers | {"source": str(tmp_path / "saved")})


def test_the_copier_does_without_torch() -> None:
    code = "import sys, distdbg.shrink.making, distdbg.shrink.checkpoint.opening; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
