"""Every program under tests/programs/crawls, looked at while it runs and once it has ended, gets what it promises."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distdbg.model import fold_ranks
from distdbg.rundir import list_runs
from tests.conftest import nodes_of

CRAWLS = sorted((Path(__file__).parent / "programs" / "crawls").glob("*.py"))
_VERDICT = re.compile(
    r"^Verdict: (?P<id>[\w-]+)(?:; ranks: (?P<ranks>[\d,-]+); says: (?P<says>.+?)(?:; late at: (?P<at>.+))?)?$", re.M
)

# One after another: each measures which rank is slow.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("crawls")]


def wait_until_warm(folder, process):
    """A rank says so itself, once its steps are of equal length."""
    end = time.monotonic() + 90
    while time.monotonic() < end and process.poll() is None:
        for run in list_runs(folder / "distdbg-runs"):
            if any("warm" in log.read_text() for log in run.path.glob("attempts/1/ranks/*/stdout.log")):
                return
        time.sleep(0.1)
    pytest.fail("it did not get warm")


@pytest.mark.parametrize("program", CRAWLS, ids=lambda p: p.stem)
def test_crawl(program, distdbg, tmp_path):
    wanted = _VERDICT.search(program.read_text())
    assert wanted, f"{program} promises no verdict"
    sizes = "--nodes", str(nodes_of(program)), "--nproc-per-node", "2"
    command = [sys.executable, "-m", "distdbg", "launch", *sizes, str(program)]

    def hang_dump():
        return distdbg("hang-dump", "--json", "--looks", "5", "--interval", "0.4", "--native", "0")

    with (tmp_path / "launch.txt").open("wb") as out:
        process = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            wait_until_warm(tmp_path, process)
            # C frames stop a rank for long on a busy machine, and then the late one waits for it as all others do
            # and spends most of a step in other lines than its late one: look until one look meets it there
            looked = hang_dump()
            while (wanted["says"] or "") not in looked.out and process.poll() is None:
                again = hang_dump()
                looked = again if again.code == 0 else looked  # another code: the job has ended meanwhile
            assert process.wait(150) == 0, (tmp_path / "launch.txt").read_text()
        finally:
            process.terminate()
            process.wait(30)
    (run,) = list_runs(tmp_path / "distdbg-runs")
    for report in (json.loads(looked.out), json.loads(run.report_json.read_text())):
        context = json.dumps(report, indent=1)
        found = [(f["id"], fold_ranks(f["ranks"]), f["severity"]) for f in report["findings"]]
        if wanted["id"] == "none":
            assert found == [], context
            continue
        assert found == [(wanted["id"], wanted["ranks"], "warning")], context
        assert wanted["says"] in context
    assert looked.code == 0, "a warning is no error"
    if wanted["at"]:  # sampled by its agent, and not in the dump that was asked for
        cause = report["findings"][0]["cause"]
        assert re.search(rf" at {re.escape(wanted['at'])} \(in [\w.]+\): time\.sleep", cause)
