"""What SLURM_* say of an allocation."""

import pytest

from distdbg.errors import UsageError
from distdbg.launch.backends.slurm.allocation import allocation_of

JOB = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "gpu[1-2]"}


def test_outside_there_is_none():
    assert allocation_of({}) is None
    assert allocation_of({"SLURM_CONF": "/etc/slurm/slurm.conf"}) is None


def test_the_smallest_node_counts():
    found = allocation_of({**JOB, "SLURM_JOB_CPUS_PER_NODE": "64(x2),32", "SLURM_GPUS_PER_NODE": "h100:4"})
    assert (found.nodes, found.cpus, found.gpus, found.restarts) == (("gpu1", "gpu2"), 32, 4, 0)


def test_gpus_of_a_node_come_before_what_was_asked_for():
    assert allocation_of({**JOB, "SLURM_GPUS_ON_NODE": "2", "SLURM_GPUS_PER_NODE": "4"}).gpus == 2


def test_two_jobs_begin_at_different_ports():
    ports = {allocation_of({**JOB, "SLURM_JOB_ID": str(number)}).port for number in range(1000)}
    assert len(ports) == 1000
    assert min(ports) >= 20_000 and max(ports) < 40_000


@pytest.mark.parametrize(
    ("more", "says"),
    [({"SLURM_HET_SIZE": "2"}, "heterogeneous"), ({"SLURM_JOB_NODELIST": "gpu[1-"}, "SLURM_JOB_NODELIST=.gpu")],
)
def test_refused(more, says):
    with pytest.raises(UsageError, match=says):
        allocation_of({**JOB, **more})
