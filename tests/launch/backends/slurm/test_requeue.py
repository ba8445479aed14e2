"""Who goes back into the queue, and which nodes are left out."""

import json

import pytest

from distdbg.errors import DistdbgError
from distdbg.launch.backends.slurm import commands, requeue
from distdbg.launch.backends.slurm.requeue import culprits, decide
from distdbg.rundir import create_run_dir


def finding(id="node-lost", nodes=("node2",), confidence="certain"):
    return {"findings": [{"id": id, "nodes": list(nodes), "confidence": confidence}]}


WARNED = "Slurm warned it of its end"


@pytest.mark.parametrize(
    ("given", "wanted", "why"),
    [
        ({}, False, ""),
        ({"warned": WARNED}, True, "Slurm warned it of its end"),
        ({"warned": WARNED, "cancelled": True}, False, "it was cancelled"),
        ({"warned": WARNED, "restarts": 3}, False, "it was requeued 3 times, and --max-requeues is 3"),
        ({"culprits": ["node2"]}, True, "the verdict names node2, left out: node2"),
        ({"warned": WARNED, "culprits": ["a", "b"]}, True, "Slurm warned it of its end, left out: a, b"),
    ],
)
def test_the_decision(given, wanted, why):
    asked = {"warned": "", "restarts": 0, "most": 3, "cancelled": False, "culprits": [], **given}
    assert decide(**asked) == (wanted, why)


def test_a_machines_fault_names_a_culprit():
    nodes = ["node1.cluster", "node2.cluster"]
    assert culprits(finding(), nodes) == ["node2.cluster"]
    assert culprits(finding(nodes=("node2.cluster",)), ["node1", "node2"]) == ["node2"]


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"findings": []},
        {"findings": ["x"]},
        finding(id="rank-exception"),
        finding(confidence="possible"),
        finding(nodes=("node9",)),
        {"findings": [{"id": "rank-exception"}, finding()["findings"][0]]},
    ],
)
def test_nothing_else_does(report):
    assert culprits(report, ["node1", "node2"]) == []


@pytest.mark.parametrize(
    ("fails", "restarts", "last", "said"),
    [
        ("requeue", 0, "finished", "could not be requeued"),
        ("requeue", 1, "requeued", ""),  # Slurm was faster
        ("exclude", 0, "requeued", "node2 could not be left out"),
    ],
)
def test_a_job_that_is_back_in_the_queue_is_not_said_to_have_ended(
    tmp_path, monkeypatch, capsys, fails, restarts, last, said
):
    def silent(*_):
        raise DistdbgError("Job is pending execution", "Wait.")

    monkeypatch.setattr("signal.signal", lambda *_: None)  # it ignores SIGTERM from then on, and so would other tests
    monkeypatch.setattr(commands, "requeue", lambda *_: None)
    monkeypatch.setattr(commands, "exclude", lambda *_: None)
    monkeypatch.setattr(commands, "restarts", lambda _: restarts)
    monkeypatch.setattr(commands, fails, silent)
    run = create_run_dir("t", explicit=tmp_path / "run")
    requeue._requeue(run, 12, 0, "the verdict names node2", ["node2"], code=7)
    assert json.loads(run.events.read_text().splitlines()[-1])["event"] == last
    assert said in (err := capsys.readouterr().err) and ("could not" in err) == bool(said)
