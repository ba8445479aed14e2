"""A dump's folder with parts that cannot be right: each is named, none is taken in silence."""

import json

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
