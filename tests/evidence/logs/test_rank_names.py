import pytest

from distdbg.evidence.logs.rank_names import rank_of_name, rank_that_is_said


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_3", 3), ("/tmp/x/host7_12", 12), ("host7-0012.json", 12), ("rank5.json", 5), ("17", 17),
        ("RANK_2.pyspy.txt", 2), ("fr.rank-8.pickle", 8), ("rank3.2.json", 3), ("stacks/00003.1.json", 3),
        ("logs/none_x/attempt_0/6/stderr.log", None), ("run/ranks/00011/stderr.log", 11), ("node2/trace_4.bin", 4),
        ("trace", None), ("trace_12345678", None), ("v2.txt.x", None), ("a/3/trace", None), ("rank_12_of_rank_64", 64),
        ("nccl_trace_rank_-1", None), ("-1", None), ("x--1", None), ("fr_-3.json", None), ("host-7", 7),
        ("nccl_trace_rank_9999999", None), ("9999999", None), ("trace-²", None),
    ],
)  # fmt: skip
def test_the_rank_stands_in_the_name(name, rank):
    assert rank_of_name(name) == rank


def test_a_pid_is_no_rank():
    assert rank_of_name("pyspy-4242.txt", not_these={4242}) is None


def test_a_rank_may_be_the_number_of_a_pid():
    """A container's first process has pid 1."""
    assert rank_of_name("rank1.json", not_these={1}) == 1


@pytest.mark.parametrize(("name", "rank"), [("slurm-4242.out", None), ("train_20261121.log", None), ("rank3.log", 3)])
def test_a_logs_trailing_number_may_be_anything(name, rank):
    assert rank_that_is_said(name) == rank
