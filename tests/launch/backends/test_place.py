"""Where a job runs, and what is said of it."""

import pytest

from distdbg.errors import UsageError
from distdbg.launch import backends
from distdbg.launch.backends.slurm import commands
from distdbg.launch.plan.topology import MachineFacts, share_out
from distdbg.settings import JobSettings

JOB = {
    "SLURM_JOB_ID": "12",
    "SLURM_JOB_NODELIST": "n[1-4]",
    "SLURM_JOB_CPUS_PER_NODE": "8(x4)",
    "SLURM_GPUS_ON_NODE": "2",
}


def place_of(settings, environ, host):
    found = backends.place_of(backends.choose(settings, environ).backend, settings, environ, host)
    return found.place, found.settings, found.notes


def machine(place, settings, environ, here):
    return backends.named("slurm").machine(place, settings, environ, here)[0]


def place(environ, host="login", **settings):
    found, changed, notes = place_of(JobSettings(script="t.py", **settings), environ, host)
    return found.on, found.hosts, changed.nodes, notes


def test_without_slurm_it_is_here():
    assert place({}) == ("local", (), 1, [])
    assert place({}, nodes=3) == ("local", (), 3, [])


def test_all_nodes_of_an_allocation_unless_some_are_asked_for():
    assert place(JOB)[:3] == ("slurm", ("n1", "n2", "n3", "n4"), 4)
    assert place(JOB, nodes=2)[:3] == ("slurm", ("n1", "n2"), 2)
    assert "2 of its 4 nodes" in place(JOB, nodes=2)[3][0]


def test_an_allocation_of_this_host_alone_needs_no_step():
    alone = {**JOB, "SLURM_JOB_NODELIST": "n1"}
    assert place(alone, host="n1")[:2] == ("local", ())
    assert place({**alone, "SLURMD_NODENAME": "n1"}, host="n1.example.org")[:2] == ("local", ())
    assert place(alone, host="login")[:2] == ("slurm", ("n1",))
    assert place(alone, host="n1", on="slurm")[:2] == ("slurm", ("n1",))
    assert place(alone, host="n1", slurm={"container_image": "i"})[:2] == ("slurm", ("n1",))


def test_whoever_brings_the_rendezvous_or_says_local_stays_here():
    assert place(JOB, torchrun={"standalone": ""})[:3] == ("local", (), 1)
    assert place(JOB, torchrun={"node-rank": "0"})[0] == "local"
    assert place(JOB, on="local", nodes=2)[:3] == ("local", (), 2)


@pytest.mark.parametrize(
    ("environ", "settings", "says"),
    [
        ({}, {"on": "slurm"}, "no allocation"),
        (JOB, {"nodes": 5}, "5 nodes are asked for, and Slurm job 12 has 4"),
        ({**JOB, "SLURM_STEP_NUM_TASKS": "4"}, {}, "one of 4 tasks"),
        ({}, {"on": "local", "hosts": ["a", "b"]}, "--on local"),
        (JOB, {"on": "slurm", "hosts": ["a", "b"]}, "--on slurm"),
    ],
)
def test_refused(environ, settings, says):
    with pytest.raises(UsageError, match=says):
        place(environ, **settings)


def test_a_node_is_what_slurm_has_allocated_on_it():
    found, settings, _ = place_of(JobSettings(script="t.py"), JOB, "login")
    facts = machine(found, settings, JOB, MachineFacts(cpus=64, torch="2.13.0"))
    assert (facts.cpus, len(facts.gpus), facts.torch) == (8, 2, "2.13.0")


@pytest.mark.parametrize(
    ("environ", "ranks"),
    [
        ({}, 2),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, 2),  # of a node that is shared, by the machine's own numbers
        ({"CUDA_VISIBLE_DEVICES": "1"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "GPU-12,GPU-34"}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 1),
        ({"SLURM_GPUS_ON_NODE": "", "SLURM_GPUS_PER_TASK": "4"}, 3),  # what the controller says
    ],
)
def test_each_allocated_gpu_has_a_rank(monkeypatch, environ, ranks):
    monkeypatch.setattr(commands, "gpus_of", lambda job: 3 if job == "12" else None)
    environ = {**JOB, "SLURM_GPUS_ON_NODE": "2", **environ}
    settings = JobSettings(script="t.py", nproc_per_node="auto")
    found, settings, _ = place_of(settings, environ, "login")
    facts = machine(found, settings, environ, MachineFacts(cpus=64))
    assert share_out(settings.model_copy(update={"nodes": 1}), facts, environ).nproc_per_node == ranks


@pytest.mark.parametrize(
    ("asked", "says"), [({}, "on this machine"), ({"hosts": ["a"], "nproc_per_node": 2}, "over ssh")]
)
def test_no_job_runs_beside_the_container_that_was_asked_for(asked, says):
    with pytest.raises(UsageError, match=says):
        place({}, slurm={"container_image": "i"}, **asked)


def test_an_image_has_its_own_python_and_torch():
    settings = JobSettings(script="t.py", slurm={"container_image": "i", "container_python": "/opt/python"})
    found, _, notes = place_of(settings, JOB, "login")
    assert found.python == "/opt/python" and "by its /opt/python" in notes[-1]
    assert machine(found, settings, JOB, MachineFacts(cpus=4, torch="2.8.0")).torch is None
