"""A dump's folder with parts that cannot be right: each is named, none is taken in silence."""

import json
import os
import struct

import pytest

from distdbg.collect.runs.dump_evidence import load_dump_alone
from distdbg.collect.runs.dump_files import load_dump


def written(folder, parts, **manifest):
    (folder / "nodes").mkdir()
    said = {"schema": "distdbg.dump/1", "t": 9.0, "world_size": 4, "ranks": {}, **manifest}
    (folder / "manifest.json").write_text(json.dumps(said))
    for number, ranks in enumerate(parts):
        part = {"node_rank": number, "host": f"n{number}", "ranks": ranks}
        (folder / "nodes" / f"{number:04d}.json").write_text(json.dumps(part))
    return load_dump(folder, "d")


def rank(number, **fields):
    return {"rank": number, "pid": 7, "looks": [{"t": 1.0, "process": {"state": "S"}}], **fields}


def test_ranks_that_cannot_be_used_are_counted(tmp_path):
    dump, unknown = written(tmp_path, [[rank(0), rank(-1), rank(True), rank(10**9), "x", {"rank": 1}]])
    assert list(dump.ranks) == [0]
    (lost,) = [u for u in unknown if u.decisive]
    assert lost.what == "5 of 6 ranks in d/nodes/0000.json"


def test_a_rank_of_two_nodes_is_the_first_ones(tmp_path):
    dump, unknown = written(tmp_path, [[rank(0), rank(1)], [rank(1, pid=99)]])
    assert dump.ranks[1].pid == 7
    assert [u.what for u in unknown] == ["rank 1 in d/nodes/0001.json"]


def test_a_rank_beyond_the_world_is_left_out(tmp_path):
    dump, unknown = written(tmp_path, [[rank(0), rank(5)]])
    assert list(dump.ranks) == [0]
    assert [(u.what, u.because) for u in unknown] == [("rank 5 of d", "the world size is 4")]


@pytest.mark.parametrize("size", [0, -3, 10**12, "4"])
def test_a_world_size_that_no_job_has(tmp_path, size):
    dump, unknown = written(tmp_path, [[rank(0)]], world_size=size, job={"world_size": size})
    assert dump.world_size is None
    assert [u.what for u in unknown] == ["the world size in d/manifest.json"]
    assert len(load_dump_alone(tmp_path).ranks) == 1


def test_json_whose_values_would_fill_the_memory_is_not_parsed(tmp_path):
    written(tmp_path, [[rank(0)]])
    (tmp_path / "nodes" / "0001.json").write_text('{"ranks": [' + "[]," * 20_000_000 + "[]]}")
    dump, unknown = load_dump(tmp_path, "d")
    assert list(dump.ranks) == [0]
    assert any("MiB of memory" in u.because for u in unknown)


def fifo(path):
    os.mkfifo(path)


def noise(path):
    path.write_bytes(bytes(range(128, 256)) * 40)


@pytest.mark.parametrize("name", ["00000.calls", "00000.sites"])
@pytest.mark.parametrize("damage", [fifo, noise])
def test_damaged_calls_are_named(tmp_path, name, damage):
    (tmp_path / "calls").mkdir()
    (tmp_path / "calls" / "00000.calls").write_bytes(struct.pack("@6q", 1, 0, 0, 5, 1 << 32, 0))
    (tmp_path / "calls" / "00000.sites").write_text("barrier\ttrain.py\t3\tstep\t\t\n")
    (tmp_path / "calls" / name).unlink()
    damage(tmp_path / "calls" / name)
    dump, unknown = written(tmp_path, [[rank(0)]])
    assert [u.what for u in unknown] == ["the calls of rank 0 in d"]
    assert [call.line for call in dump.ranks[0].calls] in ([], [0]), "a call without its line, or none"


@pytest.mark.parametrize(
    ("damage", "because"),
    [(fifo, "not a regular file"), (noise, "most of it is not text"), (lambda path: None, "it is missing")],
    ids=["fifo", "noise", "missing"],
)
def test_source_that_cannot_be_read_is_named(tmp_path, damage, because):
    (tmp_path / "nodes").mkdir()
    (tmp_path / "sources").mkdir()
    damage(tmp_path / "sources" / "1-train.py")
    part = {"node_rank": 0, "host": "n0", "ranks": [rank(0)], "sources": {"/me/train.py": "sources/1-train.py"}}
    (tmp_path / "nodes" / "0000.json").write_text(json.dumps(part))
    dump, unknown = load_dump(tmp_path, "d")
    assert dump.sources == {}
    assert [(u.what, u.because) for u in unknown if "sources" in u.what] == [("d/sources/1-train.py", because)]
