"""The table of torchrun's flags against torch's own parser, and the reading of command lines."""

import pytest

from distdbg.errors import UsageError
from distdbg.launch.torchrun_flags import FLAGS, from_environment, normalise

OWN = {"--nodes": True, "--dry-run": False, "--name": True, "--help": False}


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("train.py --lr 1", "-- train.py --lr 1"),
        ("--nproc_per_node 2 train.py", "--nproc-per-node 2 -- train.py"),
        ("--nproc_per_node=2 train.py", "--nproc-per-node 2 -- train.py"),
        ("--nproc-per 2 train.py --nproc 3", "--nproc-per-node 2 -- train.py --nproc 3"),
        ("-m pack.train -m x", "--module -- pack.train -m x"),
        ("-r 3 -t3 train.py", "--redirects 3 --tee 3 -- train.py"),
        ("-r0:1,1:2 train.py", "--redirects 0:1,1:2 -- train.py"),
        ("--nodes 2 --dry-run train.py", "--nodes 2 --dry-run -- train.py"),
        ("--rdzv_conf=timeout=3,read_timeout=5 t.py", "--rdzv-conf timeout=3,read_timeout=5 -- t.py"),
        ("--standalone -- train.py --x", "--standalone -- train.py --x"),
        ("--no_python sh -c ls", "--no-python -- sh -c ls"),
    ],
)
def test_normalise(typed, read):
    assert normalise(typed.split(), OWN) == read.split()


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("--nproc-per-nodes 2 t.py", "--nproc-per-node"),
        ("--rdzv t.py", "could be"),
        ("--master-adr x t.py", "--master-addr"),
        ("--nnodes", "needs a value"),
        ("--standalone=1 t.py", "takes no value"),
        ("-x t.py", "-x"),
    ],
)
def test_what_is_no_flag(typed, says):
    with pytest.raises(UsageError) as error:
        normalise(typed.split(), OWN)
    assert says in str(error.value)


def test_pet_variables_as_torchrun_reads_them():
    environ = {"PET_NNODES": "2", "PET_STANDALONE": "0", "PET_NO_PYTHON": "1", "PET_NODE_RANK": "1", "PETER": "1"}
    assert from_environment(environ) == {"nnodes": "2", "no-python": "", "node-rank": "1"}


@pytest.mark.slow
def test_the_table_is_torchs_own_parser():
    """Every flag, its spellings, and whether it takes a value; and none of ours has a name of theirs."""
    from torch.distributed.run import get_args_parser

    from distdbg.cli.launch import command

    theirs = {}
    for action in get_args_parser()._actions:
        long = next((s for s in action.option_strings if s.startswith("--")), None)
        if long and long != "--help":
            short = next((s[1:] for s in action.option_strings if not s.startswith("--")), None)
            theirs[long[2:].replace("_", "-")] = (action.nargs != 0, short)
    table = {flag.name: (flag.takes_value, flag.short) for flag in FLAGS}
    assert {name: table.get(name) for name in theirs} == theirs
    own = {opt for p in command.params if not p.name.startswith("torchrun_") for opt in p.opts}
    assert not own & {f"--{name}" for name in table}
