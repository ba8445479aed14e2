"""`distdbg launch` against what it promises, on real torchrun. Scripts without torch where torch is not the point."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distdbg.collect.machine import procfs
from distdbg.launch.io.ports import ReservedPort

pytestmark = pytest.mark.slow
PROGRAMS = Path(__file__).parents[1] / "programs"

WHO = """
import os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK")
sys.stdout.write(f"{' '.join(os.environ[n] for n in names)} {sys.argv[1:]}\\n")  # in one write
"""
#: Where a script stands, and what it was started as.
WHERE = """
import os, sys
process = [os.environ["RANK"], os.getcwd(), sys.path, sys.argv, sys.orig_argv[1:], __name__, __file__, __package__]
sys.stdout.write(f"{process} {getattr(__spec__, 'name', None)}\\n")
"""


def script(folder, text=WHO, name="who.py"):
    (folder / name).write_text(text)
    return name


def report(result):
    return json.loads(result.run.report_json.read_text())


def test_two_nodes_by_two_ranks(distdbg, tmp_path):
    name = script(tmp_path, WHO + "assert sys.stdin.read() == ''")
    result = distdbg("launch", "--nodes", "2", "--nproc-per-node", "2", name, "--lr", "1e-3", stdin=b"typed")
    assert result.code == 0, result
    assert result.out == "0 0 4 0 ['--lr', '1e-3']\n", "rank 0's standard output, and nothing else"
    logs = result.run.attempts()[0].ranks()
    assert [logs[r].stdout.read_text().split()[:4] for r in range(4)] == [
        ["0", "0", "4", "0"],
        ["1", "1", "4", "0"],
        ["2", "0", "4", "1"],
        ["3", "1", "4", "1"],
    ]
    assert report(result)["outcome"] == "succeeded"
    assert report(result)["findings"] == []
    assert [r["rank"] for r in report(result)["ranks"]] == [0, 1, 2, 3]
    events = [json.loads(line) for line in result.run.events.read_text().splitlines()]
    shown = {e["node_rank"]: e["after_s"] for e in events if e["event"] == "shown"}
    assert shown.keys() == {0, 1} and all(0 <= after_s < 2 for after_s in shown.values()), "on a local disk"
    for node in result.run.attempt(1).nodes():
        made = [e for e in map(json.loads, node.events.read_text().splitlines()) if e["event"] == "node-dir"]
        assert len(made) == 1 and not Path(made[0]["folder"]).exists(), "what the ranks wrote there is left"
    assert (result.cwd / "distdbg-runs" / "latest").resolve() == result.run.path
    assert result.run.path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (["--nnodes=1", "--nproc_per_node=2", "--max_restarts=0", "-m"], {}),
        (["--standalone", "--nproc-per-node", "2"], {}),
        (
            [
                "--nproc-per-node",
                "2",
                "--rdzv_backend=c10d",
                "--rdzv_endpoint=localhost:0",
                "--monitor_interval",
                "0.2",
            ],
            {},
        ),
        ([], {"PET_NPROC_PER_NODE": "2", "PET_NNODES": "1"}),
    ],
)
def test_a_torchrun_command_line_works_with_its_first_word_replaced(distdbg, torchrun, tmp_path, options, environment):
    (tmp_path / "pack").mkdir()
    script(tmp_path, "", "pack/__init__.py")
    script(tmp_path, f"from . import __path__\n{WHERE}", "pack/train.py")
    name = "pack.train" if "-m" in options else script(tmp_path, WHERE)
    ours = distdbg("launch", "--show-ranks", "all", *options, name, "a", "--b", env=environment)
    plain = torchrun(*options, name, "a", "--b", env=environment)
    assert (ours.code, plain.code) == (0, 0), f"{ours}\n{plain}"
    assert sorted(line.split("] ", 1)[-1] for line in ours.out.splitlines()) == sorted(plain.out.splitlines())


@pytest.mark.parametrize(
    "options",
    [
        "--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:{port} --rdzv-id j --local-addr 127.0.0.1",
        "--node-rank {node} --master-addr 127.0.0.1 --master-port {port}",
    ],
)
def test_two_launches_make_one_job_as_on_two_machines(tmp_path, options):
    """--rdzv-endpoint and --node-rank mean "this is one node of N"."""
    port, name = ReservedPort(), script(tmp_path)
    command = [sys.executable, "-m", "distdbg", "launch", "--nnodes", "2"]
    both = [
        subprocess.Popen(
            [*command, *options.format(port=port.number, node=node).split(), name],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        for node in range(2)
    ]
    outs = [process.communicate(timeout=100) for process in both]
    assert [process.returncode for process in both] == [0, 0], outs
    assert [out for out, _ in outs if out] == ["0 0 2 0 []\n"], "the other node has no rank 0 to show"


def test_a_program_that_starts_python_itself(distdbg, tmp_path):
    accelerate = Path(sys.executable).with_name("accelerate")
    result = distdbg("launch", "--no-python", accelerate, "launch", script(tmp_path), "--lr", "1")
    assert (result.code, result.out) == (0, "0 0 1 0 ['--lr', '1']\n"), result
    assert any("worker side" in unknown["because"] + unknown["what"] for unknown in report(result)["unknown"])


def test_a_restart_over_two_nodes(distdbg):
    """Plain torchrun 2.13 fails here: the second life connects to the first one's store entries."""
    result = distdbg(
        "launch", "--nodes", "2", "--nproc-per-node", "2", "--max-restarts", "1", PROGRAMS / "fails_once.py"
    )
    assert result.code == 0, result
    # On the other node torchrun may take the restart for a change of members, and count it as none.
    assert "finished in life" in result.out
    assert [a.number for a in result.run.attempts()] == [1, 2]
    assert result.run.attempt(2).rank(3).stdout.read_text() == "finished in life 1\n"
    assert "planted in the first attempt" in result.run.attempt(1).rank(3).stderr.read_text()
    shown = report(result)
    assert shown["outcome"] == "succeeded"
    assert not [u for u in shown["unknown"] if "raised" in u["because"]], shown["unknown"]
    for node in result.run.attempt(1).nodes():
        kinds = [json.loads(line)["event"] for line in node.events.read_text().splitlines()]
        assert kinds.count("cgroup") == 2 and kinds.count("kernel") == 1


def test_second_process_group_of_a_script_keeps_the_recorder(distdbg, tmp_path):
    again = "import torch.distributed as dist\nfor _ in range(2):\n    dist.init_process_group('gloo')\n"
    result = distdbg("launch", script(tmp_path, f"{again}    dist.destroy_process_group()"))
    assert (result.code, report(result)["unknown"]) == (0, []), result
    facts = [json.loads(line) for line in result.run.attempt(1).rank(0).facts.read_text().splitlines()]
    assert [fact["served"] for fact in facts if fact.get("kind") == "recorder"] == [True, True]


def test_secrets_are_masked_and_the_environment_has_origins(distdbg, tmp_path, need):
    git = [need("git", "git"), "-C", str(tmp_path)]
    script(tmp_path, "pass  # as it was")
    for words in (["init", "-q"], ["add", "who.py"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    environment = {"WANDB_API_KEY": "0123456789abcdef", "DATABASE": "postgres://me:hunter2@host/db", "PLAIN": "shown"}
    arguments = ["--token=s3cr3t-value", "--password", "20241105", "https://h/api?token=abcdefgh12345"]
    result = distdbg("launch", script(tmp_path, "pass"), *arguments, env=environment)
    text = result.run.job.read_text()
    assert result.code == 0
    written = [p for p in result.run.path.rglob("*") if p.is_file() and p.name not in ("stdout.log", "stderr.log")]
    assert {"events.jsonl", "job.json", "report.html"} <= {path.name for path in written}
    for secret in ("0123456789abcdef", "hunter2", "s3cr3t-value", "20241105", "abcdefgh12345"):
        for path in written:
            assert secret.encode() not in path.read_bytes(), path
    job = json.loads(text)
    assert {"name", "value", "origin"} <= set(job["environment"][0])
    assert job["versions"]["torch"]
    assert len(job["git"]["commit"]) == 40 and job["git"]["dirty"]
    assert job["topology"]["world_size"] == 1


@pytest.mark.started
def test_launcher_and_agent_stay_under_60_mb_while_a_rank_prints_200(tmp_path):
    """Half of it in lines, half in one; all of it is shown."""
    lines = "if os.environ['RANK'] == '0':\n    for i in range(1000): sys.stdout.write(('x' * 99 + '\\n') * 1000)\n"
    name = script(tmp_path, f"import os, sys\n{lines}    sys.stdout.write('x' * 100_000_000)\n")
    command = [sys.executable, "-m", "distdbg", "launch", "--nproc-per-node", "2", "--show-ranks", "all", name]
    peaks, shown = {"launcher": 0, "agent": 0}, tmp_path / "shown"
    with shown.open("wb") as out, subprocess.Popen(command, cwd=tmp_path, stdout=out) as launcher:
        while launcher.poll() is None:
            peaks["launcher"] = max(peaks["launcher"], peak_rss(launcher.pid, "distdbg"))
            for pid in procfs.children(launcher.pid):
                peaks["agent"] = max(peaks["agent"], peak_rss(pid, "agent.py"))
            time.sleep(0.02)
    assert launcher.returncode == 0 and shown.stat().st_size > 200_000_000
    assert all(0 < peak < 60_000_000 for peak in peaks.values()), peaks


def peak_rss(pid, name):
    """VmHWM, the kernel's own high-water mark: to look now and then misses the last moment only. 0: it is no more."""
    try:
        status, line = (Path(f"/proc/{pid}/{file}").read_text() for file in ("status", "cmdline"))
    except OSError:
        return 0
    return sum(int(x.split()[1]) << 10 for x in status.splitlines() if x.startswith("VmHWM:") and name in line)


def test_sixty_four_ranks(distdbg, tmp_path):
    name = script(tmp_path)
    result = distdbg("launch", "--nodes", "4", "--nproc-per-node", "16", name, timeout=200)
    assert result.code == 0, result
    assert len(report(result)["ranks"]) == 64
    assert {r["state"] for r in report(result)["ranks"]} == {"finished"}


def test_on_finding_gets_the_report(distdbg, tmp_path):
    name = script(tmp_path, "raise SystemError('planted')")
    events = "distdbg-runs/latest/events.jsonl"
    result = distdbg("launch", "--on-finding", f"cat > seen.json; cp {events} events; exit 5", name)
    assert result.code == 1, result
    last = json.loads((tmp_path / "events").read_text().splitlines()[-1])
    assert (last["event"], last["exit_code"]) == ("finished", 1), (
        "however long it takes, the events of the run are complete"
    )
    assert json.loads((tmp_path / "seen.json").read_text())["findings"][0]["id"] == "rank-exception"


def test_dry_run_pasted_into_a_shell_works(distdbg, tmp_path):
    name = script(tmp_path)
    shown = distdbg("launch", "--dry-run", "--nproc-per-node", "2", "--preset", "debug", name, "a b")
    assert shown.code == 0, shown
    assert not (tmp_path / "distdbg-runs").exists()
    assert "NCCL_DEBUG" in shown.out
    pasted = subprocess.run(["bash", "-c", shown.out], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert pasted.returncode == 0, pasted
    assert sorted(line.split()[0] for line in pasted.stdout.splitlines()) == ["0", "1"]
    assert "['a b']" in pasted.stdout
