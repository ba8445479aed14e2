"""Where a launch runs when nobody says it, and what is said of that."""

import pytest

from distdbg.launch.backends import choose
from distdbg.launch.backends.slurm import backend, commands
from distdbg.launch.backends.slurm.allocation import can_submit
from distdbg.settings import JobSettings

INSIDE = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "node[1-2]"}


def chosen(on="auto", nodes=1, environ=None, *, submits=True, up=True, **more):
    asked = []
    made = JobSettings(script="x", on=on, nodes=nodes, **more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "can_submit", lambda _: submits)
        patch.setattr(commands, "answers", lambda: asked.append(1) or up)
        found = choose(made, environ or {})
    return found.submits, found.note, bool(asked)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"on": "local", "nodes": 4},
        {"nodes": 2, "hosts": ["a", "b"]},
        {"on": "ssh", "hosts": ["a"]},
        {"nodes": 4, "submits": False},
        {"nodes": 2, "torchrun": {"node-rank": "1"}},
        {"nodes": 2, "environ": INSIDE},
        {"on": "slurm", "nodes": 2, "environ": INSIDE},
    ],
)
def test_it_runs_from_here_and_the_controller_is_not_asked(given):
    assert chosen(**given) == (False, "", False)


def test_several_nodes_where_sbatch_is_are_submitted():
    batch, note, asked = chosen(nodes=2)
    assert batch and asked and "submitted to Slurm (--on local stays on this machine)" in note


def test_a_controller_that_does_not_answer_leaves_them_here():
    batch, note, _ = chosen(nodes=2, up=False)
    assert not batch and "does not answer: the 2 nodes run on this machine" in note


def test_slurm_where_it_was_asked_for():
    assert chosen(on="slurm", submits=False) == (True, "", False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"environ": INSIDE}, "no job is submitted to Slurm, and nothing comes of max_requeues, time"),
        ({}, "no job is submitted to Slurm (--on slurm submits one), and nothing comes of max_requeues, time"),
        ({"environ": INSIDE | {"DISTDBG_JOIN_RUN": "/runs/1"}}, ""),
    ],
    ids=["in an allocation", "one node", "in the job that was submitted"],
)
def test_options_of_a_job_that_nobody_submits(given, expected):
    assert chosen(**given, slurm={"time": "10", "max_requeues": 2}) == (False, expected, False)


def test_options_of_the_container_are_the_steps():
    asked = {"container_image": "i", "container_python": "p", "options": {"container-mounts": "/d"}}
    assert chosen(environ=INSIDE, slurm=asked) == (False, "", False)
    assert "nothing comes of options" in chosen(environ=INSIDE, slurm={"options": {"mem": "1G"}})[1]


def test_sbatch_without_a_cluster_submits_nothing(tmp_path):
    """Debian installs the commands without a configuration."""
    tool = tmp_path / "bin" / "sbatch"
    tool.parent.mkdir()
    tool.touch(mode=0o755)
    environ = {"PATH": str(tool.parent), "SLURM_CONF": str(tmp_path / "slurm.conf")}
    assert not can_submit({"PATH": str(tmp_path)}) and not can_submit(environ)
    (tmp_path / "slurm.conf").touch()
    assert can_submit(environ)
    assert not can_submit({"PATH": str(tool.parent)})
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "slurm.conf").touch()
    assert can_submit({"PATH": str(tool.parent)})
