import pytest

from distdbg.errors import UsageError
from distdbg.launch.plan.topology import Gpu, MachineFacts, share_out, visible_gpus
from distdbg.settings import JobSettings

FOUR = tuple(Gpu(i, f"GPU-{i}{i}-x") for i in range(4))
MIG = (Gpu(0, "GPU-a", ("MIG-1", "MIG-2")), Gpu(1, "GPU-b"))


def shares(gpus=(), cpus=8, environ=None, **settings):
    return share_out(JobSettings(script="t.py", **settings), MachineFacts(cpus, gpus), environ or {})


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (None, "0 1 2 3"),
        ("2,0", "2 0"),
        (" 1 , 3 ", "1 3"),
        ("", ""),
        ("-1", ""),
        ("NoDevFiles", ""),
        ("0,-1,1", "0"),
        ("0,9,1", "0"),
        ("0,0", ""),
        ("1gpu", "1"),
        ("GPU-22", "GPU-22"),
        ("GPU-22-x,GPU-00-x", "GPU-22-x GPU-00-x"),
        ("GPU-", ""),
        ("GPU-99", ""),
        ("MIG-1", ""),
    ],
)
def test_cuda_visible_devices(listed, expected):
    environ = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    assert " ".join(visible_gpus(FOUR, environ)) == expected


@pytest.mark.parametrize(
    ("listed", "expected"),
    [(None, "MIG-1 MIG-2 1"), ("0", "MIG-1 MIG-2"), ("MIG-2", "MIG-2"), ("MIG-9", ""), ("GPU-a", "MIG-1 MIG-2")],
)
def test_mig(listed, expected):
    environ = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    assert " ".join(visible_gpus(MIG, environ)) == expected


def test_nothing_is_visible_where_nothing_is():
    assert visible_gpus((), {"CUDA_VISIBLE_DEVICES": "0,1"}) == ()


def test_auto_is_the_gpus_of_a_node_and_one_where_there_is_none():
    assert shares(FOUR).nproc_per_node == 4
    assert shares(FOUR, nodes=2).nproc_per_node == 2
    assert shares().nproc_per_node == 1
    assert shares(FOUR, environ={"CUDA_VISIBLE_DEVICES": "1"}).nproc_per_node == 1
    assert shares(FOUR, env={"CUDA_VISIBLE_DEVICES": ""}, nproc_per_node=3).gpus == ()
    assert shares(nproc_per_node="cpu").nproc_per_node == 8
    assert (shares(nproc_per_node="xpu").nproc, shares(nproc_per_node="xpu").nproc_per_node) == ("xpu", None)
    with pytest.raises(UsageError, match="shows no GPU"):
        shares(nproc_per_node="gpu")


def test_gpus_are_dealt_out_in_equal_shares():
    assert shares(FOUR, nodes=2).gpus == (("0", "1"), ("2", "3"))
    assert shares(FOUR, nodes=2, nproc_per_node=1).gpus == (("0", "1"), ("2", "3")), "a rank may use two"
    assert shares(FOUR, nodes=2, environ={"CUDA_VISIBLE_DEVICES": "GPU-33,GPU-00"}).gpus == (("GPU-33",), ("GPU-00",))
    odd = shares(FOUR, nodes=3)
    assert odd.gpus == (("0",), ("1",), ("2",))
    assert "no node uses GPU 3" in odd.notes[0]
    assert shares(FOUR).gpus == (), "one node has them all anyway"
    assert shares(FOUR).omp_threads is None


@pytest.mark.parametrize(
    ("gpus", "settings", "says"),
    [
        (FOUR, {"nproc_per_node": 5}, "1 node x 5 ranks need 5 GPUs and 4 are visible"),
        (FOUR, {"nproc_per_node": 3, "nodes": 2}, "2 nodes x 3 ranks need 6 GPUs"),
        (FOUR, {"nodes": 5}, "5 nodes x 1 rank need 5 GPUs"),
        (FOUR[:1], {"nproc_per_node": 2}, "1 is visible"),
        (MIG[:1], {"nproc_per_node": 2}, "a process sees one MIG instance"),
    ],
)
def test_more_ranks_than_gpus_are_refused(gpus, settings, says):
    with pytest.raises(UsageError) as error:
        shares(gpus, **settings)
    assert says in str(error.value)
    assert "CUDA_VISIBLE_DEVICES=" in str(error.value)
    assert error.value.exit_code == 2


def test_who_asks_for_the_cpu_gets_it():
    for settings in (
        {"args": ["--backend", "gloo"]},
        {"args": ["--backend=gloo"]},
        {"env": {"ACCELERATE_USE_CPU": "true"}},
    ):
        found = shares(FOUR, nproc_per_node=8, **settings)
        assert (found.nproc_per_node, found.omp_threads) == (8, 1)
        assert "ask for the CPU" in found.notes[0]


def test_mig_instances_are_one_a_process():
    assert shares(MIG[:1]).nproc_per_node == 1
    assert shares(MIG[:1], torchrun={"virtual-local-rank": ""}).nproc_per_node == 2
    assert shares(MIG[:1], nodes=2).gpus == (("MIG-1",), ("MIG-2",))


def test_threads_are_shared_out_on_the_cpu_unless_the_user_says():
    assert shares(nodes=2, nproc_per_node=2).omp_threads == 2
    assert shares(nproc_per_node=100).omp_threads == 1
    assert "OMP_NUM_THREADS=2: 8 CPUs" in shares(nproc_per_node=4).notes[0]
    assert shares(nproc_per_node=4, environ={"OMP_NUM_THREADS": "7"}).omp_threads is None
    assert shares(nproc_per_node=4, env={"OMP_NUM_THREADS": "7"}).omp_threads is None
    assert shares().omp_threads is None, "one rank is left as torchrun leaves it"


def test_absurd_numbers():
    assert shares(cpus=1, nproc_per_node=64).nproc_per_node == 64
    with pytest.raises(UsageError, match="1 node x 65 ranks are 65 processes on 1 CPU"):
        shares(cpus=1, nproc_per_node=65)
