"""Every program under tests/programs/hangs is found out: launched, seen to stand still, explained, and ended with 75.

A program's docstring promises one of several ids and ranks, and what a guard reported before that. Nothing but
its own output and its own stacks may name them: the rules know no program.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from distdbg.model import fold_ranks
from tests.breadth import verdict_of
from tests.conftest import Finished, environment_in, nodes_of, processes_of

HANGS = sorted((Path(__file__).parent / "programs" / "hangs").glob("*.py"))
_VERDICT = re.compile(r"^Verdict: (?P<ids>[\w|-]+); ranks: (?P<ranks>[\d,|-]+)(?:; says: (?P<says>.+))?$", re.M)
_GUARD = re.compile(r"^Guard: (?P<id>[\w-]+); says: (?P<says>.+)$", re.M)
#: They mostly wait: three at once keep two cores busy.
_AT_ONCE = 3
#: Longer than any pause of a healthy start here, since a stall that is none would be explained, too.
_QUIET_S = 6

# One worker of pytest-xdist runs them all: they share what was started side by side.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hangs")]


def run(program: Path, folder: Path) -> Finished:
    words = ["launch", "--nodes", str(nodes_of(program)), "--nproc-per-node", "2", "--hang-timeout", str(_QUIET_S)]
    words += ["--on-hang", "kill", "--grace", "1", str(program)]
    done = subprocess.run(
        [sys.executable, "-m", "distdbg", *words],
        cwd=folder,
        env=environment_in(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=240,
        check=False,
    )
    return Finished(done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr), folder)


@pytest.fixture(scope="module")
def finished(request, tmp_path_factory):
    """program -> future of its end; all that are selected run side by side."""
    wanted = [i.callspec.params["program"] for i in request.session.items if getattr(i, "function", None) is test_hang]
    folders = {program: tmp_path_factory.mktemp(program.stem) for program in wanted}
    pool = ThreadPoolExecutor(_AT_ONCE)
    yield {program: (pool.submit(run, program, folder), folder) for program, folder in folders.items()}
    pool.shutdown(cancel_futures=True)


@pytest.mark.breadth(by=verdict_of)
@pytest.mark.parametrize("program", HANGS, ids=lambda p: p.stem)
def test_hang(program, finished):
    wanted = _VERDICT.search(program.read_text())
    assert wanted, f"{program} promises no verdict"
    future, folder = finished[program]
    result = future.result()
    report = json.loads(result.run.report_json.read_text())
    roots = [f for f in report["findings"] if f["explained_by"] is None and f["severity"] == "error"]
    context = json.dumps(report, indent=1) + result.err
    assert [f["id"] for f in roots] in [[name] for name in wanted["ids"].split("|")], context
    assert fold_ranks(roots[0]["ranks"]) in wanted["ranks"].split("|"), context
    text = roots[0]["summary"] + roots[0]["cause"] + "".join(e["quote"] for e in roots[0]["evidence"])
    assert (wanted["says"] or "") in text, context
    assert wanted["says"] is None or wanted["says"] in " ".join(result.err.split()), (
        "the terminal's last screen does not say it"
    )
    guard = _GUARD.search(program.read_text())
    assert guard is None or any(f["id"] == guard["id"] and guard["says"] in f["cause"] for f in report["findings"]), (
        context
    )
    assert (report["outcome"], result.code) == ("hung", 75), context
    assert not processes_of(folder)
