"""Slurm's commands: bounded in time, and their complaints as sentences. test_submitted.py asks the real ones."""

import time

import pytest

from distdbg.errors import NothingToAnalyse, ToolMissing, UsageError
from distdbg.launch.backends.slurm import batch_job, commands
from distdbg.launch.backends.slurm.batch_job import SlurmJob, because
from distdbg.launch.backends.slurm.commands import JobState, SlurmSilent
from distdbg.launch.live.follow import Following
from distdbg.rundir import create_run_dir
from tests.made_run import note


@pytest.fixture
def tool(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(name, text):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    return make


def test_a_command_that_hangs_is_given_up(tool, monkeypatch):
    tool("squeue", "exec sleep 60")
    monkeypatch.setattr(commands.call, "__kwdefaults__", {"within": 0.3, "environment": None})
    begun = time.monotonic()
    with pytest.raises(SlurmSilent, match="squeue took longer"):
        commands.job_state(12)
    assert time.monotonic() - begun < 5


def test_no_slurm_here(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing, match="there is no squeue on PATH"):
        commands.job_state(12)
    assert not commands.answers()


def test_a_job_as_squeue_shows_it(tool):
    tool("squeue", "test $SLURM_TIME_FORMAT = %s && echo '12|PENDING|Resources|1700000000|2|'")
    assert commands.job_state(12) == JobState(12, "PENDING", "Resources", 1.7e9, "", 2)
    tool("squeue", "echo '12|RUNNING|None|1700000000|3|node[1-2],gpu7'")
    assert commands.job_state("12_1") == JobState(12, "RUNNING", "", 1.7e9, "node[1-2],gpu7", 3)
    tool("squeue", "echo '12|PENDING|Priority|N/A|2|'")
    assert commands.job_state(12).start is None
    tool("squeue", "")
    assert commands.job_state(12) is None
    tool("squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert commands.job_state(12) is None


def test_a_submitted_job_keeps_its_users_language(tool, monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.delenv("SLURM_TIME_FORMAT", raising=False)
    for command in ("sbatch", "squeue"):
        tool(command, 'echo "$LC_ALL $SLURM_TIME_FORMAT"')
    assert commands.call("sbatch") == "de_DE.UTF-8 \n"
    assert commands.call("squeue") == "C %s\n"


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        (" Nodes=n[1-2] CPU_IDs=0-7 Mem=0 GRES=gpu:h100:4(IDX:0-3) Nodes=n3 CPU_IDs=0 Mem=0 GRES=gpu:h100:1(IDX:2)", 1),
        (" Nodes=n1 CPU_IDs=0 Mem=4000 GRES=gpu:a:2(IDX:0-1),gpu:b:1(IDX:2),shard:8(0/8)", 3),
        (" Nodes=n1 CPU_IDs=0 Mem=4000 GRES=gpu:2(IDX:0-1)", 2),
        (" Nodes=n1 CPU_IDs=0 Mem=4000 GRES=", 0),
        ("", None),
    ],
)
def test_gpus_of_a_job_as_the_controller_shows_them(tool, nodes, found):
    tool("scontrol", f"echo 'JobId=12 TresPerNode=gres:gpu:9{nodes} MinCPUsNode=1'")
    assert commands.gpus_of("12") == found


@pytest.mark.parametrize(
    ("said", "kind", "says"),
    [
        (
            "invalid partition specified: nope\nsbatch: error: Batch job submission failed",
            UsageError,
            "no partition 'nope'",
        ),
        ("Unable to contact slurm controller (connect failure)", SlurmSilent, "does not answer"),
        ("Batch job submission failed: Socket timed out on send/recv operation", SlurmSilent, "does not answer"),
        (
            "Batch job submission failed: Invalid account or account/partition combination specified",
            UsageError,
            "account",
        ),
        ("Batch job submission failed: Access/permission denied", ToolMissing, "does not allow it"),
        (
            "Batch job submission failed: User's group not permitted to use this partition",
            UsageError,
            "not permitted to",
        ),
        ("unrecognized option '--frob'", UsageError, "no option '--frob'"),
        ("something new", UsageError, "sbatch failed: something new"),
    ],
)
def test_what_sbatch_complains_of(tool, said, kind, says):
    tool("sbatch", f'echo "sbatch: error: {said}" >&2; exit 1')
    with pytest.raises(kind, match=says):
        commands.submit("x", {})


def test_the_number_of_a_job_behind_a_sites_own_words(tool):
    tool("sbatch", "echo 'Welcome to the cluster'; echo '123;alps'")
    assert commands.submit("x", {}) == 123


def test_the_nodes_of_a_partition(tool):
    tool("sinfo", "printf 'main|main*|2\\nmain|main*|6\\ngpu|gpu|4\\n'")
    assert commands.nodes_of(None) == ("main", 8)
    assert commands.nodes_of("gpu") == ("gpu", 4)
    assert commands.nodes_of("gpu,main") is None


@pytest.mark.parametrize(("code", "is_"), [("3:0", 3), ("0:9", 137), ("0:0", 0)])
def test_a_jobs_exit_code(tool, code, is_):
    tool("scontrol", f"echo 'JobId=12 JobState=FAILED ExitCode={code} RunTime=0'")
    assert commands.exit_code(12) == is_


def test_a_forgotten_job_has_none(tool):
    tool("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert commands.exit_code(12) is None
    with pytest.raises(NothingToAnalyse, match="does not know job 12"):
        commands.call("scontrol", "show", "job", "12")


def test_nodes_that_are_left_out_are_added_to_those_that_were(tool, tmp_path):
    tool(
        "scontrol",
        f'case "$*" in *show*) echo "JobId=12 ExcNodeList=node[7-8] x";; *) echo "$@" > {tmp_path}/asked;; esac',
    )
    commands.exclude(12, "node2")
    assert (tmp_path / "asked").read_text() == "update JobId=12 ExcNodeList=node[7-8],node2\n"


def test_why_a_job_waits():
    assert because(JobState(1, "PENDING")) == ""
    assert because(JobState(1, "PENDING", "Resources")) == ": the nodes are busy (Resources)"
    assert because(JobState(1, "PENDING", "SomethingNew")) == ": SomethingNew"
    assert because(JobState(1, "PENDING", "ReqNodeNotAvail, UnavailableNodes:node2")).endswith(
        "down or reserved (ReqNodeNotAvail, UnavailableNodes:node2)"
    )
    soon = time.time() + 600
    at = time.strftime("%H:%M", time.localtime(soon))
    assert (
        because(JobState(1, "PENDING", "Priority", soon))
        == f": other jobs come first (Priority), expected to start at {at}"
    )
    assert because(JobState(1, "PENDING", "", soon)) == f": expected to start at {at}"


# -- a job that is followed, when the controller knows it no more, or is not heard of again -------------------------

RUNS = "echo '12|RUNNING|None|1700000000|2|node[1-2]'"
FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
DEAD = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"


@pytest.fixture
def follow(tool, tmp_path, capfd):
    """`follow("launched", then=…)`: squeue shows the job as running once, then does `then`: (exit code, what is said).

    What the launch has noted when squeue is asked again: `at_last`, with its exit code."""

    def follow_it(*noted, then, at_last=None):
        run = create_run_dir("x", parent=tmp_path)
        for event in noted:
            note(run, event)
        word = "" if at_last is None else f"""echo '{{"event": "finished", "exit_code": {at_last}}}' >> {run.events}"""
        tool("squeue", f"if [ -e {run.path}/once ]; then {word or ':'}; {then}; fi; : > {run.path}/once; {RUNS}")
        tool("scontrol", FORGOTTEN)
        code = Following(run, SlurmJob(run, 12), "none").until_end()
        return code, capfd.readouterr().err

    return follow_it


def test_a_job_that_is_forgotten_is_over_and_explained_from_what_it_left(follow):
    code, said = follow("launched", then=FORGOTTEN)
    assert code == 76 and "Slurm job 12 runs on node[1-2]" in said and "exit code unknown" in said, said


def test_a_job_that_is_forgotten_keeps_its_own_word(follow):
    assert follow("launched", then=FORGOTTEN, at_last=7)[0] == 7


def test_a_job_that_is_forgotten_before_it_began(follow):
    code, said = follow(then=FORGOTTEN)
    assert code == 76 and "Slurm job 12 ended before any rank was started" in said


@pytest.mark.parametrize(
    ("then", "says"), [(DEAD, "Slurm's controller does not answer"), ("echo no >&2; exit 1", "no")]
)
def test_a_controller_that_is_not_heard_of_again_holds_nobody_up(follow, monkeypatch, then, says):
    monkeypatch.setattr(batch_job, "_LATE_S", 0.5)
    code, said = follow("launched", then=then, at_last=3)
    assert code == 3 and f"{says}; the run's directory is followed" in said, said
