"""Which events are worth a word while a job runs, and how often."""

from distdbg.launch.live.remarks import Remarks


def test_a_stopped_rank_is_said_each_time():
    remarks = Remarks("runs/x")
    for _ in range(2):
        assert remarks.on({"event": "rank-stopped", "rank": 3}).startswith("rank 3 was stopped")
        assert remarks.on({"event": "rank-continued", "rank": 3}) == "rank 3 goes on"


def test_what_closes_all_nodes_is_said_once():
    remarks = Remarks("runs/x")
    assert "Yama" in remarks.on({"event": "rungs", "rank": 0, "ptrace": False, "because": "Yama forbids it"})
    assert remarks.on({"event": "rungs", "rank": 4, "ptrace": False, "because": "Yama forbids it"}) == ""
    assert "not installed" in remarks.on({"event": "rungs", "rank": 8, "because": "py-spy is not installed"})


def test_disk_that_refuses_is_named_once_with_its_error():
    remarks = Remarks("runs/x")
    lost = {"event": "log-lost", "rank": 3, "stream": "stdout", "bytes": 7, "because": "Disk quota exceeded"}
    said = remarks.on(lost)
    assert said.startswith("the stdout of rank 3 in runs/x cannot be written: Disk quota exceeded")
    assert remarks.on(lost) == remarks.on_disk(("/runs/x/events.jsonl", "Disk quota exceeded")) == ""


def test_nothing_else_is_said():
    remarks = Remarks("runs/x")
    assert remarks.on({"event": "rungs", "rank": 0, "ptrace": True, "because": ""}) == ""
    assert remarks.on({"event": "metrics", "because": "x"}) == ""
