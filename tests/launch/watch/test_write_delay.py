"""How long the run directory takes to show what a node writes, and for how long an answer is waited for then."""

import json
import time
from pathlib import Path

import pytest

from distdbg.launch.watch import requested_dump
from distdbg.launch.watch import write_delay as showing
from distdbg.launch.watch.requested_dump import DumpOptions, dump_run
from distdbg.launch.watch.write_delay import WriteDelay, file_system, patience
from distdbg.rundir import RunDir

ROOT = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,resuid=65534\n"
NFS = ROOT + "40 22 0:52 / /home/my\\040runs rw,relatime shared:9 - {} server:/export rw,vers=4.2,{}hard\n"


class FakeJournal:
    def __init__(self):
        self.notes = []

    def note(self, message):
        self.notes.append({"event": message.spec.name, **message.fields()})


def noted(journal, seen, count):
    end = time.monotonic() + 60
    while len(journal.notes) < count:
        assert time.monotonic() < end, journal.notes
        seen.tick()
        time.sleep(0.01)
    return journal.notes


def test_the_time_from_an_agents_word_to_its_file(tmp_path, monkeypatch):
    """The second node's folder is late; that is said once, and asked for again by nobody."""
    monkeypatch.setattr(showing, "_PROMISED_S", 0.3)
    run, journal, said = RunDir(tmp_path), FakeJournal(), []
    seen = WriteDelay(run, journal, said.append)
    write = {node: run.attempt(1).node(node, "h").events for node in (0, 1)}
    for path in write.values():
        path.parent.mkdir(parents=True)
    line = json.dumps({"event": "agent-started"})
    write[0].write_text(line)
    for node in (0, 1, 0):
        seen.hear(node, {"event": "agent-started", "host": "h"})
    begun = time.monotonic()
    assert noted(journal, seen, 1)[0]["node_rank"] == 0
    assert said == []
    time.sleep(0.4)
    write[1].write_text(line)
    late = noted(journal, seen, 2)[1]
    assert (late["event"], late["node_rank"]) == ("shown", 1)
    assert 0.4 <= late["after_s"] <= time.monotonic() - begun + 0.01
    (sentence,) = said
    assert sentence.startswith(f"the run directory shows here after {late['after_s']:.1f} s what node 1 writes (")


@pytest.mark.parametrize(
    ("mounts", "found"),
    [
        (ROOT, ("ext4", None)),
        (NFS.format("nfs4", ""), ("nfs4", 60.0)),
        (NFS.format("nfs", "acregmin=1,acregmax=5,acdirmin=1,acdirmax=7,"), ("nfs", 7.0)),
        (NFS.format("nfs", "acdirmax=5,"), ("nfs", 60.0)),
        (NFS.format("nfs4", "noac,"), ("nfs4", 0.0)),
        (NFS.format("lustre", ""), ("lustre", None)),
        (NFS.format("nfs4", "") + "50 40 0:60 / /home/my\\040runs/a rw - tmpfs none rw\n", ("tmpfs", None)),
        ("no mount at all\n", ("its type is not known", None)),
    ],
)
def test_what_the_mounts_tell(mounts, found):
    assert file_system(Path("/home/my runs/a/b"), mounts) == found
    assert file_system(Path("/home/my runs-else"), mounts)[1] is None


@pytest.mark.parametrize(
    ("after", "on", "seconds"),
    [([0.02, 0.1], None, 4.0), ([0.1, 3.5], None, 9.0), ([], None, 4.0), ([], 60.0, 62.0), ([0.1], 60.0, 4.0)],
)
def test_an_answer_is_waited_for_as_was_measured(tmp_path, monkeypatch, after, on, seconds):
    monkeypatch.setattr(showing, "file_system", lambda path: ("any", on))
    notes = [{"event": "shown", "node_rank": node, "after_s": after_s} for node, after_s in enumerate(after)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    assert patience(RunDir(tmp_path)) == seconds


def test_hang_dump_does_without_an_agent_after_that_time_and_not_before(tmp_path, monkeypatch):
    run = RunDir(tmp_path)
    node = run.attempt(1).node(0, "h")
    node.folder.mkdir(parents=True)
    node.events.write_text(json.dumps({"event": "rank-started", "rank": 0, "pid": 1}) + "\n")
    run.control.touch()
    tried = []
    monkeypatch.setattr(requested_dump, "patience", lambda run: 0.5)
    monkeypatch.setattr(requested_dump, "_SHOWS_WITHIN_S", 0.1)
    monkeypatch.setattr(requested_dump, "_capture_from_here", lambda *_: tried.append(time.monotonic()))
    begun = time.monotonic()
    folder = dump_run(run, DumpOptions(within=0.2), lambda text: None)
    assert len(tried) == 1 and tried[0] - begun >= 0.5
    why = json.loads((folder / "manifest.json").read_text())["ranks"]["0"]
    assert why == {"not_tried": "the agent of node 0 (h) did not answer within 0.7 s"}
