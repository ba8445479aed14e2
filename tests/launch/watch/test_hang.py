"""What a launch does about a hang, on real jobs: seen, captured, shown, and then as --on-hang says."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from distdbg.rundir import list_runs

pytestmark = pytest.mark.slow
PROGRAMS = Path(__file__).parents[2] / "programs"

#: Trains for some steps; then rank 1 waits for `go` to appear, and the others for rank 1.
WAITS = """
    import sys, time
    from pathlib import Path
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    for step in range(100):  # after the hang longer than the second between two looks
        if step == 40 and dist.get_rank() == 1:
            while not Path(sys.argv[1], "go").exists():
                time.sleep(0.05)
        dist.all_reduce(torch.ones(8))
        time.sleep(0.02)
    dist.barrier()
    dist.destroy_process_group()
"""
#: Hangs at its first attempt, at every one with the argument `always`.
HANGS_ONCE = """
    import os, sys, time
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    for step in range(20):
        while step == 10 and dist.get_rank() == 1 and (os.environ["DISTDBG_ATTEMPT"] == "1" or "always" in sys.argv):
            time.sleep(1)
        dist.all_reduce(torch.ones(8))
    dist.barrier()
    dist.destroy_process_group()
"""
TIMES_OUT = """
    import time
    from datetime import timedelta
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    for step in range(100):
        if step == 20 and dist.get_rank() == 1:
            time.sleep(60)
        dist.all_reduce(torch.ones(8))
"""
RAISES = """
    import time
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    for step in range(100):
        if step == 20 and dist.get_rank() == 1:
            raise ValueError("a bad batch")
        dist.all_reduce(torch.ones(8))
"""


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return value


class Launch:
    """A launch in the background, 2 nodes x 2 ranks where nothing else is asked for."""

    def __init__(self, folder, *words, nodes=2, ranks=2, command=(sys.executable, "-m", "distdbg"), env=None):
        self.folder = folder
        sizes = ("--nodes", nodes, "--nproc-per-node", ranks, "--grace", 3)
        self.process = subprocess.Popen(
            [*command, "launch", *map(str, (*sizes, *words))],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(folder / "stderr").open("wb"),
        )

    @property
    def run(self):
        return list_runs(self.folder / "distdbg-runs")[-1]

    @property
    def said(self):
        return (self.folder / "stderr").read_text()

    def events(self, *names, attempt=None):
        """The launcher's, or the agents' of one attempt."""
        runs = list_runs(self.folder / "distdbg-runs")
        paths = [runs[-1].events] if runs else []
        if attempt is not None:
            paths = runs[-1].path.glob(f"attempts/{attempt}/nodes/*/events.jsonl") if runs else []
        found = [json.loads(line) for path in paths if path.exists() for line in path.read_text().splitlines()]
        return [event for event in found if event["event"] in names]

    def wait_for(self, name, seconds=60.0, **where):
        def there():
            ended = self.process.poll() is not None
            found = self.events(name, **where)
            assert found or not ended, self.said
            return found

        return wait_until(there, seconds)

    def finish(self, seconds=90):
        self.code = self.process.wait(seconds)
        return self.code

    def report(self):
        return json.loads(self.run.report_json.read_text())

    def dumps(self, attempt=1):
        return self.run.attempt(attempt).dumps()

    def manifest(self, attempt=1):
        return json.loads((self.dumps(attempt)[-1] / "manifest.json").read_text())


def script(folder, body):
    path = folder / "script.py"
    path.write_text(textwrap.dedent(body))
    return path


def test_a_hung_job_is_ended_in_seconds_though_a_rank_is_stopped_and_another_ignores_sigterm(tmp_path):
    """The stopped rank is continued, and ends by the SIGTERM that it has got; the grace of 30 s is not waited for."""
    program = script(
        tmp_path,
        """
        import os, signal, time
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        if dist.get_rank() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            for step in range(100):
                if step == 3 and dist.get_rank() == 1:
                    os.kill(os.getpid(), signal.SIGSTOP)
                dist.all_reduce(torch.ones(1))
        finally:
            time.sleep(600)
        """,
    )
    job = Launch(tmp_path, "--hang-timeout", 3, "--on-hang", "kill", "--grace", 30, program, nodes=1)
    assert job.finish() == 75, job.said
    (ended,) = job.events("ended-hung")
    last = job.events("agents-gone")[-1]
    assert last["t"] - ended["t"] < 20
    ends = [json.loads(job.run.attempt(1).rank(rank).exit.read_text())["exit_code"] for rank in (0, 1)]
    assert ends == [-9, -15]


def test_a_hang_is_seen_captured_shown_and_ended(tmp_path):
    job = Launch(tmp_path, "--hang-timeout", 3, "--on-hang", "kill", PROGRAMS / "hangs" / "sleeps_in_step.py")
    assert job.finish() == 75, job.said
    (stalled,) = job.events("stalled")
    assert 3 <= stalled["quiet_s"] < 8
    (dump,) = job.dumps()
    assert dump.name.endswith("-hang")
    manifest = job.manifest()
    assert manifest["ranks"] == dict.fromkeys("0123", "collected")
    assert (manifest["reason"], manifest["world_size"], manifest["looks"]) == ("hang", 4, 2)
    assert manifest["stalled"]["timeout_s"] == 3
    assert manifest["stalled"]["since"] < manifest["t"]
    ranks = [rank for part in (dump / "nodes").iterdir() for rank in json.loads(part.read_text())["ranks"]]
    assert sorted(rank["rank"] for rank in ranks) == [0, 1, 2, 3]
    for looks in (rank["looks"] for rank in ranks):
        assert len(looks) == 2 and all((dump / look["stacks"]["file"]).exists() for look in looks)
    report = job.report()
    assert (report["outcome"], report["exit_code"]) == ("hung", 75)
    assert job.said.count("looking where they stand") == 1
    shown, ended = job.said.index("· hung ·"), job.said.index("ending the job")
    assert shown < ended, "explained first"
    assert job.said.count("\n  why ") == 1, "and once"
    roots = [f for f in report["findings"] if f["explained_by"] is None]
    assert [job.said.count(f["summary"][:40]) for f in roots] == [2], "the end names it again"
    assert job.said.rstrip().endswith("exit code 75: distdbg, which ended the job because it hung")


def test_from_the_threshold_to_the_verdict_in_five_seconds_for_eight_ranks(tmp_path):
    program = script(tmp_path, WAITS)
    job = Launch(tmp_path, "--hang-timeout", 5, "--on-hang", "kill", program, tmp_path, ranks=4)
    assert job.finish() == 75, job.said
    (stalled,), explained = job.events("stalled"), job.events("explained")
    threshold = stalled["since"] + stalled["timeout_s"]
    share = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # of the cores: others may be using them
    assert explained[0]["t"] - threshold < 5 * share, (stalled, explained)
    assert job.manifest()["ranks"] == dict.fromkeys("01234567", "collected")


def test_a_job_that_lives_on_and_moves_again_is_as_if_nothing_had_been(tmp_path):
    job = Launch(tmp_path, "--hang-timeout", 3, script(tmp_path, WAITS), tmp_path, nodes=1)
    job.wait_for("explained")
    assert job.report()["outcome"] == "hung"
    assert job.report()["exit_code"] is None
    (tmp_path / "go").touch()
    assert job.finish() == 0, job.said
    assert len(job.events("moving-again")) == len(job.dumps()) == 1
    assert job.said.count("the job moves again") == 1
    assert job.report()["outcome"] == "succeeded"


def test_a_hung_job_that_somebody_cancels_ends_as_a_cancelled_one(tmp_path):
    job = Launch(tmp_path, "--hang-timeout", 3, script(tmp_path, WAITS), tmp_path, nodes=1)
    job.wait_for("explained")
    job.process.send_signal(signal.SIGINT)
    assert job.finish() == 130, job.said
    assert job.report()["outcome"] == "hung"
    assert job.said.count("\n  why ") == 1, "what was shown when it hung is not shown again"


def test_a_job_that_hangs_is_started_again_and_succeeds(tmp_path):
    words = "--hang-timeout", 3, "--on-hang", "restart"
    job = Launch(tmp_path, *words, script(tmp_path, HANGS_ONCE))
    assert job.finish() == 0, job.said
    assert [e["action"] for e in job.events("ended-hung")] == ["restart"]
    assert job.report()["outcome"] == "succeeded"
    assert job.report()["run"]["attempt"] == 2
    assert len(job.dumps(1)) == 1
    assert not job.dumps(2)


def test_one_that_hangs_each_time_is_not_started_for_ever(tmp_path):
    words = "--hang-timeout", 3, "--on-hang", "restart"
    job = Launch(tmp_path, *words, script(tmp_path, HANGS_ONCE), "always")
    assert job.finish(120) == 75, job.said
    assert [e["action"] for e in job.events("ended-hung")] == ["restart", "kill"]
    assert job.report()["outcome"] == "hung"


def test_before_the_first_step_the_startup_timeout_counts(tmp_path):
    program = PROGRAMS / "hangs" / "never_initialises.py"
    job = Launch(tmp_path, "--hang-timeout", 2, "--startup-timeout", 6, "--on-hang", "kill", program, nodes=1)
    assert job.finish() == 75, job.said
    assert job.manifest()["stalled"]["timeout_s"] == 6


def test_off_is_off(tmp_path):
    job = Launch(tmp_path, "--hang-timeout", "off", script(tmp_path, WAITS), tmp_path, nodes=1)
    job.wait_for("rank-started", attempt=1)
    time.sleep(8)
    (tmp_path / "go").touch()
    assert job.finish() == 0, job.said
    assert not job.events("stalled", "stall-suspected", "dump")
    assert not job.dumps()


def test_a_dump_is_there_before_a_groups_timeout_ends_the_job(tmp_path):
    job = Launch(tmp_path, script(tmp_path, TIMES_OUT))
    assert job.finish() == 1, job.said  # of who waited: rank 1 was ended for that, by SIGTERM
    *_, near = job.events("timeout-near")  # before it a slow start may have come as near
    assert near["timeout_s"] == 10
    dump = job.dumps()[-1]
    assert dump.name.endswith("-timeout"), "what came after it tells less, and does not hide it"
    assert job.manifest()["ranks"] == dict.fromkeys("0123", "collected")


def test_after_a_death_the_others_recorders_and_all_calls_are_kept(tmp_path):
    job = Launch(tmp_path, script(tmp_path, RAISES))
    assert job.finish() == 1, job.said
    (dump,) = job.dumps()
    assert dump.name.endswith("-death")
    manifest = job.manifest()
    assert manifest["reason"] == "death"
    assert manifest["ranks"]["1"] == {"not_tried": "it had ended"}
    assert manifest["ranks"]["0"] == "collected"
    assert (dump / "calls/00001.calls").exists(), "it died, and its calls did not"
    assert json.loads((dump / "recorder/00000.1.json").read_text())["entries"]
    report = job.report()
    assert [f["id"] for f in report["findings"] if not f["explained_by"]] == ["rank-exception"]
    assert report["outcome"] == "failed"


def test_whoever_may_write_the_control_file_gets_a_dump(tmp_path):
    job = Launch(tmp_path, script(tmp_path, WAITS), tmp_path)
    wait_until(lambda: len(job.events("rank-started", attempt=1)) == 4)
    job.wait_for("rungs", attempt=1)
    folder = job.run.attempt(1).make_dump("asked")
    job.run.ask({"request": "dump", "folder": str(folder), "looks": 1})
    job.run.ask({"request": "dump", "folder": str(folder) + "-2", "looks": 1})
    job.run.ask({"request": "dump", "folder": str(tmp_path / "elsewhere"), "looks": 1})
    dumped = wait_until(lambda: found if len(found := job.events("dumped", attempt=1)) == 6 else None)
    by_folder = {}
    for event in dumped:
        by_folder.setdefault(Path(event["folder"]).name, {}).update(event["ranks"])
    assert by_folder[folder.name] == dict.fromkeys("0123", "collected")
    assert all("another dump" in r["failed"] for r in by_folder[f"{folder.name}-2"].values())
    assert all("no dump of attempt 1" in r["failed"] for r in by_folder["elsewhere"].values())
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "go").touch()
    assert job.finish() == 0, job.said
