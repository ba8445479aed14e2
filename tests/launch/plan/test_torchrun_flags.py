"""The table of torchrun's flags against torch's own parser, and the reading of command lines."""

import argparse
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdbg.errors import UsageError
from distdbg.launch.plan.torchrun_flags import FLAGS, OTHER, check_names, from_environment, grace_note, normalise

OWN = {"--nodes": True, "--dry-run": False, "--name": True, "--help": False}


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("train.py --lr 1", "-- train.py --lr 1"),
        ("--nproc_per_node 2 train.py", "--nproc-per-node=2 -- train.py"),
        ("--nproc_per_node=2 train.py", "--nproc-per-node=2 -- train.py"),
        ("--nproc-per 2 train.py --nproc 3", "--nproc-per-node=2 -- train.py --nproc 3"),
        ("-m pack.train -m x", "--module -- pack.train -m x"),
        ("-r 3 -t3 train.py", "--redirects=3 --tee=3 -- train.py"),
        ("-r0:1,1:2 train.py", "--redirects=0:1,1:2 -- train.py"),
        ("--nodes 2 --dry-run train.py", "--nodes=2 --dry-run -- train.py"),
        ("--rdzv_conf=timeout=3,read_timeout=5 t.py", "--rdzv-conf=timeout=3,read_timeout=5 -- t.py"),
        ("--standalone -- train.py --x", "--standalone -- train.py --x"),
        ("--no_python sh -c ls", "--no-python -- sh -c ls"),
        ("-r=3 --max-restarts -1 t.py", "--redirects=3 --max-restarts=-1 -- t.py"),
        ("--rdzv-conf=-x t.py", "--rdzv-conf=-x -- t.py"),
        ("t.py -- a -- b", "-- t.py a -- b"),
        ("-- t.py -- a", "-- t.py -- a"),
        ("--log_d /x --tee=3 t.py", "--log-dir=/x --tee=3 -- t.py"),
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
        ("--nnodes --tee 3 t.py", "needs a value, and '--tee' follows"),
        ("-tx=3 -mx t.py", "-mx"),
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


def test_a_switch_that_is_no_number_and_an_empty_variable():
    with pytest.raises(UsageError, match="PET_STANDALONE='yes' is not a number"):
        from_environment({"PET_STANDALONE": "yes"})
    environ = {"PET_RDZV_ENDPOINT": "", "PET_LOGS_SPECS": "mine", "PET_NUMA_BINDING": "node", "PET_TEE": "3"}
    assert from_environment(environ) == {"tee": "3"}, "what torchrun does not read, and what leaves its default"


def test_a_flag_that_only_the_installed_torch_has(monkeypatch, tmp_path):
    """A newer torch: its run.py is read, not imported."""
    package = tmp_path / "torch"
    (package / "distributed").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('torch was imported')")
    (package / "distributed" / "run.py").write_text(
        "import torch\n"
        "parser.add_argument('--warp-factor', '--warp_factor', action=env, type=int)\n"
        "parser.add_argument('--shields', action=check_env)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    read = normalise(["--warp_factor", "9", "--shield", "--nnodes=1", "t.py"], OWN)
    assert read == [OTHER, "warp-factor=9", OTHER, "shields", "--nnodes=1", "--", "t.py"]
    assert check_names({"warp-factor": "9"}) == []
    assert grace_note(30) == []
    assert "torchrun kills its ranks 30 s after" in grace_note(300)[0], "it has no --shutdown-timeout"


def test_the_torchrun_part_of_a_job_file():
    assert check_names({"max-restarts": "1", "standalone": "", "nnodes": "1:4"}) == []
    for flags, says in [
        ({"max-restart": "1"}, "did you mean 'max-restarts'"),
        ({"standalone": "x"}, "is a switch"),
        ({"tee": ""}, "needs a value"),
        ({"nnodes": "2"}, "`nodes: N`"),
    ]:
        ((name, sentence),) = check_names(flags)
        assert name in flags
        assert says in sentence


def same_to_argparse(words):
    """What a parser built as torchrun's is makes of the words: (flags, script, arguments)."""
    parser = argparse.ArgumentParser(add_help=False)
    for flag in FLAGS:
        names = [f"-{flag.short}"] if flag.short else []
        names += [f"--{flag.name}"] + ([f"--{flag.name.replace('-', '_')}"] if "-" in flag.name else [])
        parser.add_argument(*names, dest=flag.name, **({} if flag.takes_value else {"action": "store_true"}))
    parser.add_argument("script")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    read = vars(parser.parse_args(words))
    script, rest = read.pop("script"), read.pop("rest")
    return {n: v for n, v in read.items() if v not in (None, False)}, script, rest


FLAG_WORDS = [
    w
    for flag in FLAGS
    for name in (f"--{flag.name}", f"--{flag.name.replace('-', '_')}")
    for w in ([[f"{name}=a"], [name, "1:2"], [name, "-3"], [name, "a b"]] if flag.takes_value else [[name]])
] + [["-m"], ["-r", "3"], ["-r3"], ["-t0:1,1:2"], ["-t=3"]]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(FLAG_WORDS), max_size=6),
    st.booleans(),
    st.lists(st.sampled_from(["--lr", "1", "--", "-m", "--nnodes=3", "x y", "-", ""]), max_size=5),
)
def test_command_lines_are_read_as_argparse_reads_them(flags, dashes, rest):
    words = [w for group in flags for w in group] + (["--"] if dashes else []) + ["train.py", *rest]
    expected, script, arguments = same_to_argparse(words)
    read = normalise(words, OWN)
    cut = read.index("--")
    found = {}
    for word in read[:cut]:
        name, equals, value = word[2:].partition("=")
        found[name] = value if equals else True
    assert (found, read[cut + 1 :]) == (expected, [script, *arguments])


@pytest.mark.slow
def test_the_table_is_torchs_own_parser():
    """Every flag, its spellings, and whether it takes a value; and none of ours has a name of theirs."""
    from torch.distributed.run import get_args_parser

    from distdbg.cli.commands.launch import command

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
    assert not [o for o in own for name in table if f"--{name}".startswith(o)], "none is the beginning of theirs either"
