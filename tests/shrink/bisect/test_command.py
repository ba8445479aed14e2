"""What of a command line is changed, and what is left as it was typed."""

import pytest

from distdbg.cli.commands.bisect import _parsed
from distdbg.errors import UsageError
from distdbg.shrink.bisect.command import Varied, varied


@pytest.mark.parametrize(
    "words",
    [
        "distdbg launch --nproc_per_node 4 train.py --seq-len 64 --lr 1",
        "/usr/bin/distdbg launch --nproc-per-node=4 train.py --seq-len 64 --lr 1",
        "python3 -m distdbg launch --nproc-per-node 4 train.py --seq-len 64 --lr 1",
        "torchrun --nproc-per-node 4 train.py --seq-len 64 --lr 1",
    ],
)
def test_a_launch_in_all_its_spellings(words):
    command = _parsed(tuple(words.split()))
    assert command.text == "distdbg launch --nproc-per-node=4 train.py --seq-len 64 --lr 1"
    smaller = command.with_option("--nproc-per-node", 2).with_option("--keep-layers", 1).with_argument("--seq-len", 8)
    assert smaller.text == "distdbg launch --nproc-per-node=2 --keep-layers=1 train.py --seq-len 8 --lr 1"


def test_nnodes_is_nodes():
    command = _parsed(("torchrun", "--nnodes", "2", "train.py"))
    assert command.option("--nodes") == "2"
    assert command.with_option("--nodes", 1).text == "distdbg launch --nodes=1 train.py"


@pytest.mark.parametrize(
    ("typed", "flag", "after"),
    [
        ("train.py --n 5", "--n", "train.py --n 3"),
        ("train.py --n=5 x", "--n", "train.py --n=3 x"),
        ("train.py model.n=5", "model.n", "train.py model.n=3"),
        ("train.py --n 5 --n 6", "--n", "train.py --n 5 --n 3"),
        ("train.py", "--n", "train.py --n 3"),
        ("train.py", "model.n", "train.py model.n=3"),
    ],
)
def test_the_programs_own_arguments(typed, flag, after):
    command = _parsed(("distdbg", "launch", *typed.split()))
    assert command.with_argument(flag, 3).program == tuple(after.split())


def test_another_command_is_one_whole():
    command = _parsed(("make", "test", "N=3"))
    assert (command.launcher, command.argument("N")) == ((), "3")


def test_vary():
    assert varied("--seq-len=64:4096") == Varied("--seq-len", 64, 4096, 1)
    assert varied("model.n=1:9:2") == Varied("model.n", 1, 9, 2)
    assert varied("--n=1") == Varied("--n", 1, None, 1)


@pytest.mark.parametrize(
    "text", ["--n", "--n=", "--n=a:b", "--n=9:1", "--n=1:9:0", "=1:2", "--n=1:2:3:4", "--n=-1:5", "--n=1:" + "9" * 5000]
)
def test_vary_that_says_nothing(text):
    with pytest.raises(UsageError, match="--vary"):
        varied(text)


@pytest.mark.parametrize("words", [("distdbg", "launch"), ("torchrun", "--nproc-per-node", "2")])
def test_a_launch_of_nothing(words):
    with pytest.raises(UsageError, match="launches no script"):
        _parsed(words)
