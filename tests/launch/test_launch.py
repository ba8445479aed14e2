"""`distdbg launch` against what it promises, on real torchrun. Scripts without torch where torch is not the point."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PROGRAMS = Path(__file__).parents[1] / "programs"

WHO = """
import os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK")
sys.stdout.write(f"{' '.join(os.environ[n] for n in names)} {sys.argv[1:]}\\n")  # in one write
"""


def script(folder, text=WHO, name="who.py"):
    (folder / name).write_text(text)
    return name


def report(result):
    return json.loads(result.run.report_json.read_text())


def test_two_nodes_by_two_ranks(distdbg, tmp_path):
    result = distdbg("launch", "--nodes", "2", "--nproc-per-node", "2", script(tmp_path), "--lr", "1e-3")
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
    assert (result.cwd / "distdbg-runs" / "latest").resolve() == result.run.path
    assert result.run.path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (["--nnodes=1", "--nproc_per_node=2", "--max_restarts=0"], {}),
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
    name = script(tmp_path)
    ours = distdbg("launch", "--show-ranks", "all", *options, name, "a", "--b", env=environment)
    plain = torchrun(*options, name, "a", "--b", env=environment)
    assert (ours.code, plain.code) == (0, 0), f"{ours}\n{plain}"
    assert sorted(line.split("] ", 1)[-1] for line in ours.out.splitlines()) == sorted(plain.out.splitlines())


def test_two_launches_make_one_job_as_on_two_machines(tmp_path, distdbg):
    """--rdzv-endpoint means "this is one node of N"."""
    from distdbg.launch.ports import ReservedPort

    port, name = ReservedPort(), script(tmp_path)
    options = [
        "--nnodes",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        f"127.0.0.1:{port.number}",
        "--rdzv-id",
        "j",
    ]
    command = [sys.executable, "-m", "distdbg", "launch", *options, "--local-addr", "127.0.0.1", name]
    both = [
        subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        for _ in range(2)
    ]
    outs = [process.communicate(timeout=100) for process in both]
    assert [process.returncode for process in both] == [0, 0], outs


def test_modules_and_programs(distdbg, tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text("from . import __name__ as n\nprint(n, __name__, __spec__.name)\n")
    result = distdbg("launch", "-m", "pack.train")
    assert (result.code, result.out) == (0, "pack __main__ pack.train\n"), result
    result = distdbg("launch", "--no-python", "sh", "-c", "echo $RANK of $WORLD_SIZE")
    assert (result.code, result.out) == (0, "0 of 1\n"), result
    assert any("worker side" in unknown["because"] + unknown["what"] for unknown in report(result)["unknown"])


def test_standard_input_reaches_one_local_node_and_is_empty_with_more(distdbg, tmp_path):
    name = script(tmp_path, "import sys; print(repr(sys.stdin.read()))")
    assert distdbg("launch", name, stdin=b"typed").out == "'typed'\n"
    assert distdbg("launch", "--nodes", "2", name, stdin=b"typed").out == "''\n"


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
    assert report(result)["outcome"] == "succeeded"


def test_secrets_are_masked_and_the_environment_has_origins(distdbg, tmp_path):
    environment = {"WANDB_API_KEY": "0123456789abcdef", "DATABASE": "postgres://me:hunter2@host/db", "PLAIN": "shown"}
    result = distdbg("launch", script(tmp_path, "pass"), "--token=s3cr3t-value", env=environment)
    text = result.run.job.read_text()
    assert result.code == 0
    for secret in ("0123456789abcdef", "hunter2", "s3cr3t-value"):
        assert secret not in text
        for path in result.run.path.glob("report/*"):
            assert secret not in path.read_text(), path
    job = json.loads(text)
    assert {"name", "value", "origin"} <= set(job["environment"][0])
    assert job["versions"]["torch"]
    assert job["topology"]["world_size"] == 1


def test_a_full_disk_fails_nothing(distdbg, tmp_path, need):
    """1 MB for the run, 3 MB of output: the job ends with 0, and the loss is an event."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = need("mount", "mount")
    if os.geteuid() != 0:
        pytest.skip("not possible here: mounting needs root")
    subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    try:
        name = script(tmp_path, "for i in range(30): print(str(i) * 100_000)\nprint('the end')")
        result = distdbg("launch", "--run-dir", disk / "run", tmp_path / name)
        assert result.code == 0, result
        events = [
            json.loads(x) for p in disk.glob("run/attempts/1/nodes/*/events.jsonl") for x in p.read_text().splitlines()
        ]
        lost = [e for e in events if e["event"] == "log-lost"]
        assert sum(e["bytes"] for e in lost) > 1_000_000, events
        assert json.loads((disk / "run" / "report" / "report.json").read_text())["outcome"] == "succeeded"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_sixty_four_ranks(distdbg, tmp_path):
    name = script(tmp_path)
    result = distdbg("launch", "--nodes", "4", "--nproc-per-node", "16", name, timeout=200)
    assert result.code == 0, result
    assert len(report(result)["ranks"]) == 64
    assert {r["state"] for r in report(result)["ranks"]} == {"finished"}


def test_on_finding_gets_the_report(distdbg, tmp_path):
    name = script(tmp_path, "raise SystemError('planted')")
    result = distdbg("launch", "--on-finding", "cat > seen.json", name)
    assert result.code == 1, result
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
