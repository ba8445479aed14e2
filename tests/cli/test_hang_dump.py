"""`distdbg hang-dump` of real jobs in which rank 2 sleeps: of plain torchrun, and of a launch of ours."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distdbg.collect.machine.job_processes import LauncherWithoutRanks, job_of
from distdbg.collect.machine.process_look import look
from distdbg.collect.runs.dump_evidence import load_dump_alone
from distdbg.errors import ToolMissing
from distdbg.launch.hang_dump import TakenDump, refuse_blind
from distdbg.rundir import RunDir, list_runs
from tests.fork_server import AT_EXIT

PROGRAMS = Path(__file__).parents[1] / "programs" / "hangs"
SLEEPER = 2
HANGS = str(PROGRAMS / "sleeps_in_step.py")


def wait_until(condition, seconds=90.0):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)
    return value


def ranks_of(launcher):
    """rank -> pid below a launcher, once there are four and rank 2 sleeps while the others stand."""
    with contextlib.suppress(OSError, LauncherWithoutRanks):
        ranks = {r.rank: r.pid for r in job_of([launcher]).ranks}
        if len(ranks) == 4 and look(ranks[SLEEPER]).get("syscall") == "clock_nanosleep":
            before = [look(pid).get("cpu_s") for pid in ranks.values()]
            time.sleep(0.5)
            return ranks if before == [look(pid).get("cpu_s") for pid in ranks.values()] else None
    return None


def errors(report):
    """A busy machine makes stragglers, which are warnings."""
    return [(f["id"], f["ranks"]) for f in report["findings"] if f["severity"] == "error"]


@pytest.fixture
def start(tmp_path):
    """Starts a command in the test's folder; in the end it gets SIGTERM and has a minute."""
    running = []

    def begin(*words):
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        running.append(subprocess.Popen([sys.executable, "-m", *words], cwd=tmp_path, **streams))
        return running[-1].pid

    yield begin
    for process in running:
        process.terminate()
        process.wait(60)


@pytest.mark.slow
def test_any_torchrun_job_by_its_launchers_pid(start, distdbg, tmp_path):
    launcher = start("torch.distributed.run", "--standalone", "--nproc-per-node", "4", HANGS)
    ranks = wait_until(lambda: ranks_of(launcher))
    done = distdbg("hang-dump", "--pid", launcher, "--json", "--html", "page.html")
    report = json.loads(done.out)
    assert (done.code, report["run"], report["outcome"]) == (10, None, None), done
    assert errors(report) == [("stuck-in-python", [SLEEPER])]
    assert "sleeps_in_step.py:16" in report["findings"][0]["summary"]
    assert "stuck-in-python" in (tmp_path / "page.html").read_text()
    (folder,) = (p for p in (tmp_path / "distdbg-dumps").iterdir() if p.is_dir())
    assert folder.stat().st_mode & 0o777 == 0o700
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["ranks"] == {str(rank): "collected" for rank in range(4)}
    assert manifest["job"]["name"] == "sleeps_in_step"
    assert {look(pid)["state"] for pid in ranks.values()} == {"S"}, "one was left stopped, or un-hung"
    again = distdbg("explain", folder.relative_to(tmp_path), "--json")
    assert json.loads(again.out)["findings"] == report["findings"]


@pytest.mark.slow
def test_mismatch_in_the_only_group_of_a_plain_torchrun_job(start, distdbg):
    """No recorder gives the groups; the threads of gloo show that each rank has one."""
    program = PROGRAMS / "breaks_on_its_own_loss.py"
    launcher = start("torch.distributed.run", "--standalone", "--nproc-per-node", "3", str(program))

    def verdict():
        done = distdbg("hang-dump", "--pid", launcher, "--json")
        report = json.loads(done.out) if done.code == 10 else {}
        return report if report and not report["unknown"] else None  # else a busy machine had no time for one rank

    report = wait_until(verdict)
    assert errors(report) == [("collective-mismatch", [1])], report
    assert "`break` at breaks_on_its_own_loss.py:20" in report["findings"][0]["cause"]


@pytest.mark.slow
def test_ranks_that_are_elsewhere_are_said_to_be(start, distdbg, tmp_path):
    launcher = start("torch.distributed.run", "--standalone", "--nproc-per-node", "4", HANGS)
    ranks = wait_until(lambda: ranks_of(launcher))
    words = ["--pid", ranks[0], "--pid", ranks[SLEEPER], "--looks", "1", "--native", "0"]
    done = distdbg("hang-dump", *words, "-o", "out", "--locals")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [manifest["ranks"][n] for n in "02"] == ["collected", "collected"]
    assert all("does not run on" in manifest["ranks"][n]["not_tried"] for n in "13"), manifest
    assert "the state of ranks 1,3" in done.out
    threads = json.loads((tmp_path / "out" / "stacks" / f"{SLEEPER:05d}.1.json").read_text())
    (sleeps,) = (f for thread in threads for f in thread["frames"] if f["name"] == "fetch_schedule")
    assert [(v["name"], v["repr"]) for v in sleeps["locals"]] == [("step", "3")]
    assert distdbg("hang-dump", "--pid", ranks[0], "-o", "out").code == 2, "it is not empty"


#: In a process table of its own there is one job: this one.
ALONE = """
import os, subprocess, sys
from tests import fork_server
from tests.cli.test_hang_dump import HANGS, ranks_of, wait_until
fork_server.start(os.environ)
fork_server.allow(forks=True)
none = subprocess.run([sys.executable, "-m", "distdbg", "hang-dump"])
job = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", HANGS],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
wait_until(lambda: ranks_of(job.pid))
done = subprocess.run([sys.executable, "-m", "distdbg", "hang-dump"])
job.terminate()
job.wait()
sys.exit(f"{none.returncode} {done.returncode}")
"""


def alone(need, code, folder):
    """In a process table of its own, which ends with it."""
    unshare = need("unshare", "util-linux")
    words = [unshare, "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("not possible here: a process table of its own takes root")
    env = os.environ | {"PYTHONPATH": f"{AT_EXIT}{os.pathsep}{Path(__file__).parents[2]}"}
    command = [*words, sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=200)


@pytest.mark.slow
def test_without_arguments_it_finds_the_job_itself(tmp_path, need):
    done = alone(need, ALONE, tmp_path)
    assert done.stderr.endswith("3 10\n"), done
    assert "no distributed job of yours runs here" in done.stderr
    assert "stuck-in-python (likely)  rank 2 sleeps at sleeps_in_step.py:16" in done.stdout


#: A script for mpirun: torch gets its rank from the launcher's variables, and rank 1 never comes to the barrier.
BY_MPI = """
import os, sys, time
import torch.distributed as dist
rank = next(int(os.environ[name]) for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if name in os.environ)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
while rank == 1:
    time.sleep(5)
dist.barrier()
"""
#: As mpirun stands above its ranks; in a batch script all that it starts bears the script's own SLURM_PROCID.
MPIRUN = """
import os, subprocess, sys
batch = {"SLURM_JOB_ID": "78", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}
words = {"openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
         "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID")}[sys.argv[1]]
for rank in "01":
    own = dict(zip(words, (rank, "2", rank)))
    subprocess.Popen([sys.executable, "by_mpi.py", f"{os.getcwd()}/{sys.argv[1]}"], env=os.environ | batch | own)
os.wait()
"""
OURS = """
import time
import torch.distributed as dist
dist.init_process_group("gloo")
while dist.get_rank() == 1:
    time.sleep(5)
dist.barrier()
"""
TWO_JOBS = """
import subprocess, sys
from pathlib import Path
from distdbg.collect.machine.job_processes import find_jobs
from distdbg.collect.machine.process_look import look
from tests.cli.test_hang_dump import BY_MPI, MPIRUN, OURS, wait_until
Path("by_mpi.py").write_text(BY_MPI)
jobs = [subprocess.Popen([sys.executable, "-c", MPIRUN, kind]) for kind in ("openmpi", "mpich")]
def stand(many):
    ranks = [[look(rank.pid).get("syscall") for rank in job.ranks] for job in find_jobs()]
    return len(ranks) == many and all(len(job) == 2 and job[1] == "clock_nanosleep" and job[0] for job in ranks)
def dump(*words):
    done = subprocess.run([sys.executable, "-m", "distdbg", "hang-dump", *words], stdout=subprocess.PIPE)
    print(done.stdout.decode(), f"{words}: {done.returncode}", sep="", flush=True)
wait_until(lambda: stand(2))
dump("--all")
dump("--json")
dump("--all", "--json")
Path("ours.py").write_text(OURS)
words = ["--hang-timeout", "off", "--nproc-per-node", "2", "--show-ranks", "none", "ours.py"]
jobs.append(subprocess.Popen([sys.executable, "-m", "distdbg", "launch", *words], stderr=subprocess.DEVNULL))
wait_until(lambda: stand(3))
dump("--all")
"""


@pytest.mark.slow
def test_two_jobs_of_mpirun_at_once(tmp_path, need):
    """Each is looked at with its own ranks; one JSON object is of one job, and then both are named. A run of ours
    beside them is looked at, too, through its agents."""
    done = alone(need, TWO_JOBS, tmp_path)
    before, refused, after = done.stdout.partition("('--json',): 2\n('--all', '--json'): 2\n")
    assert refused, done
    assert before.endswith("('--all',): 10\n") and after.endswith("('--all',): 10\n"), done
    for said, ours in ((before, 0), (after, 1)):
        assert said.count("stuck-in-python (likely)  rank 1 sleeps at by_mpi.py:7") == 2, done
        assert said.count("rank 1  line 6  time.sleep(5)") == ours, done  # it need not have hung for long enough
    (run,) = list_runs(tmp_path / "distdbg-runs")
    (asked,) = run.attempt(1).dumps()
    assert set(json.loads((asked / "manifest.json").read_text())["ranks"].values()) == {"collected"}
    assert done.stderr.count("2 jobs run here") == done.stderr.count("by_mpi (2 ranks: --pid") / 2 == 2
    dumps = [folder for folder in (tmp_path / "distdbg-dumps").iterdir() if folder.is_dir()]
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in dumps]
    assert [manifest["ranks"] for manifest in manifests] == [{"0": "collected", "1": "collected"}] * 4
    assert {manifest["job"]["argv"][-1] for manifest in manifests} == {f"{tmp_path}/openmpi", f"{tmp_path}/mpich"}


@pytest.mark.slow
def test_a_run_of_ours_is_asked_through_its_directory(start, distdbg, tmp_path):
    words = ["--hang-timeout", "off", "--nodes", "2", "--nproc-per-node", "2", "--grace", "1", "--on-hang", "report"]
    through_parent = f"../{tmp_path.name}/x"
    launcher = start("distdbg", "launch", *words, "--run-dir", through_parent, HANGS)
    run = RunDir(tmp_path / "x")
    wait_until(lambda: ranks_of(launcher), 120)

    def stands():
        """Nothing has moved for ten seconds, and it is said to be a hang."""
        time.sleep(3)
        done = distdbg("hang-dump", through_parent, "--json", "--interval", "0.5", "--native", "0")
        return done if done.code == 10 else None

    done = wait_until(stands, 120)
    report = json.loads(done.out)
    assert report["run"]["id"] == run.id
    assert errors(report) == [("stuck-in-python", [SLEEPER])]
    newest = run.attempts()[-1].dumps()[-1]
    assert newest.name.endswith("-asked")
    assert {p.name for p in (newest / "nodes").iterdir()} == {"0000.json", "0001.json"}
    assert set(json.loads((newest / "manifest.json").read_text())["ranks"].values()) == {"collected"}
    _silent_agent(run, distdbg)


def _silent_agent(run, distdbg):
    """An agent that is stopped answers nothing: its ranks are looked at from here."""
    (agent,) = (p for p in _agents(run) if "--node-rank\x001\x00" in Path(f"/proc/{p}/cmdline").read_text())
    os.kill(agent, signal.SIGSTOP)
    try:
        done = distdbg("hang-dump", run.path, "--looks", "1", "--json")
    finally:
        os.kill(agent, signal.SIGCONT)
    manifest = json.loads((run.attempts()[-1].dumps()[-1] / "manifest.json").read_text())
    assert manifest["ranks"] == {str(rank): "collected" for rank in range(4)}, done


def _agents(run):
    events = [json.loads(line) for path in run.path.glob("attempts/1/nodes/*/events.jsonl") for line in path.open()]
    return [e["pid"] for e in events if e["event"] == "agent-started"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--pid", "4194305"), 3, "there is no process 4194305"),
        (("--pid", "1", "--all"), 2, "different jobs"),
        (("nothing-like-it",), 3, "no run is called"),
        (("--looks", "0"), 2, "--looks"),
    ],
)
def test_what_is_no_job(distdbg, words, code, says):
    done = distdbg("hang-dump", *words)
    assert done.code == code, done
    assert says in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("no-tool", "Install py-spy"),
        ("no-python", "Name the processes that run Python"),
        ("free-threaded", "Start the job with `distdbg launch`"),
        ("", "Try again."),
    ],
)
def test_remedy_goes_by_the_kind_and_not_by_the_text(tmp_path, kind, remedy):
    """The text mentions permission, an executable file and Python alike."""
    because = "Permission denied: is not an executable file, not permitted, finds no Python"
    look_at = {"t": 1.0, "process": {"state": "S"}, "stacks": {"failed": because, "kind": kind}}
    with pytest.raises(ToolMissing, match="no rank's stack could be taken") as error:
        refuse_blind(TakenDump(tmp_path, dump_with(tmp_path, look_at)))
    assert error.value.remedy.startswith(remedy)


def dump_with(folder, look_at):
    (folder / "nodes").mkdir()
    part = {"node_rank": 0, "host": "h", "ranks": [{"rank": 0, "pid": 1, "looks": [look_at]}]}
    (folder / "nodes" / "0000.json").write_text(json.dumps(part))
    (folder / "manifest.json").write_text('{"schema": "distdbg.dump/1", "world_size": 1, "ranks": {"0": "collected"}}')
    return load_dump_alone(folder)


def test_ranks_that_may_not_be_looked_at(tmp_path):
    stacks = {"failed": "Permission Denied: Try again as root", "kind": "refused"}
    evidence = dump_with(tmp_path, {"t": 1.0, "process": {"state": "S"}, "stacks": stacks})
    with pytest.raises(ToolMissing, match="may not be read: Permission Denied") as error:
        refuse_blind(TakenDump(tmp_path, evidence))
    assert error.value.exit_code == 4
    assert error.value.remedy
    assert ("stacks of rank 0", "Permission Denied: Try again as root") in [
        (u.what, u.because) for u in evidence.unknown
    ]


def test_a_process_without_python(distdbg, need):
    """py-spy is installed: no message says to install it."""
    with subprocess.Popen([need("sleep", "coreutils"), "60"]) as process:
        try:
            done = distdbg("hang-dump", "--pid", process.pid, "--looks", "1", "--json")
        finally:
            process.kill()
    assert done.code == 4 and "nstall" not in done.err, done
    assert [u["what"] for u in json.loads(done.out)["unknown"]] == ["stacks of rank 0"]


def test_a_process_of_another_user(need):
    """Without the rights nothing of it can be read, not even its environment."""
    setpriv = need("setpriv", "util-linux")
    if os.getuid():
        pytest.skip("not possible here: to become somebody else takes root")
    code = f"from distdbg.launch.hang_dump import choose; choose(None, [{os.getpid()}], everything=False)"
    command = [setpriv, "--reuid", "65534", "--clear-groups", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if "ToolMissing" not in done.stderr and ("ermission" in done.stderr or "shared libraries" in done.stderr):
        pytest.skip("not possible here: nobody may not read this checkout, or its Python")
    assert f"ToolMissing: process {os.getpid()} may not be looked at" in done.stderr, done
