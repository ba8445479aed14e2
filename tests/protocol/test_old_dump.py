"""A dump that was written before its files were messages of the protocol."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distdbg.collect.runs.dump_files import load_dump

OLD = Path(__file__).with_name("old_dump")


def test_an_old_dump_is_read() -> None:
    dump, unknown = load_dump(OLD, "old")
    assert (dump.reason, dump.world_size, dump.quiet_s, unknown) == ("hang", 4, pytest.approx(6.54, abs=0.01), [])
    assert dump.missing == {2: "its node's part is missing", 3: "its node's part is missing"}
    rank = dump.ranks[0]
    assert (rank.pid, rank.host, len(rank.looks)) == (16092, "node0", 2)
    assert (rank.last.process.state, rank.last.process.syscall) == ("S", "clock_nanosleep")
    assert rank.last.page is not None
    assert (rank.last.page.step, rank.last.page.phase, rank.last.page.heard) == (5, "other", 15)


@pytest.mark.parametrize("field", ["stalled", "looks", "seconds", "world_size", "reason", "ranks"])
def test_a_manifest_without_a_field_is_read(tmp_path: Path, field: str) -> None:
    manifest = json.loads((OLD / "manifest.json").read_text())
    del manifest[field]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    dump, unknown = load_dump(tmp_path, "old")
    assert not unknown
    assert dump.ranks == {}
