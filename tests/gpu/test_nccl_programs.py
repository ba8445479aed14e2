"""Every program of tests/programs/nccl on simulated GPUs: launched, diagnosed, and ended.

A program's docstring has its verdict: `Verdict: one-id|another; ranks: 1-2; says: file.py:19; side: host`, or `none`.
`Ranks:` (3), `Options:` of launch and `Fault:` lines for the plan of the GPU box are optional.
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
from tests.conftest import FOREIGN, FOREIGN_NAMES, MARK, Finished, processes_of
from tests.gpu_box.box import gpu_box as new_box
from tests.gpu_box.fixtures import need_box

PROGRAMS = sorted((Path(__file__).parents[1] / "programs" / "nccl").glob("*.py"))
_VERDICT = re.compile(
    r"^Verdict: (?P<ids>[\w|-]+)(?:; ranks: (?P<ranks>[\d,|-]+))?(?:; says: (?P<says>[^;\n]+))?"
    r"(?:; side: (?P<side>host|device))?$",
    re.M,
)
#: They mostly wait: three at once keep two cores busy.
_AT_ONCE = 3
_ENDS_SOON = ("--hang-timeout", "6", "--startup-timeout", "60", "--on-hang", "kill", "--grace", "1")

# One worker of pytest-xdist runs them all: they share what was started side by side.
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.xdist_group("nccl programs")]


def run(program: Path, folder: Path, torch: Path) -> Finished:
    text = program.read_text()
    ranks = (re.findall(r"^Ranks: (\d+)$", text, re.M) or ["3"])[0]
    options = " ".join(re.findall(r"^Options: (.*)$", text, re.M)).split()
    own = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN) and k not in FOREIGN_NAMES}
    with new_box(
        torch, devices=int(ranks), memory="8G", faults={None: re.findall(r"^Fault: (.*)$", text, re.M)}
    ) as box:
        own |= box.environment() | {MARK: str(folder), "HOME": str(folder), "OMP_NUM_THREADS": "1"}
        words = [sys.executable, "-m", "distdbg", "launch", "--nproc-per-node", ranks, *_ENDS_SOON, *options]
        done = subprocess.run(
            [*words, str(program)], cwd=folder, env=own, stdin=subprocess.DEVNULL, capture_output=True, timeout=240,
            check=False,
        )  # fmt: skip
    return Finished(done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr), folder)


@pytest.fixture(scope="module")
def finished(request, tmp_path_factory):
    """program -> future of its end; all that are selected run side by side."""
    torch = need_box()
    wanted = [i.callspec.params["program"] for i in request.session.items if getattr(i, "function", None) is test_nccl]
    folders = {program: tmp_path_factory.mktemp(program.stem) for program in wanted}
    pool = ThreadPoolExecutor(_AT_ONCE)
    yield {program: (pool.submit(run, program, folder, torch), folder) for program, folder in folders.items()}
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_nccl(program, finished):
    wanted = _VERDICT.search(program.read_text())
    assert wanted, f"{program} promises no verdict"
    future, folder = finished[program]
    result = future.result()
    report = json.loads(result.run.report_json.read_text())
    roots = [f for f in report["findings"] if f["explained_by"] is None and f["severity"] == "error"]
    context = json.dumps(report, indent=1) + result.err
    assert not processes_of(folder)
    if wanted["ids"] in ("none", "unknown"):
        assert not roots, context
        assert bool(report["unknown"]) or wanted["ids"] == "none", context
        return
    assert roots and roots[0]["id"] in wanted["ids"].split("|"), context
    assert wanted["ranks"] is None or fold_ranks(roots[0]["ranks"]) in wanted["ranks"].split("|"), context
    assert roots[0]["side"] == wanted["side"], context
    named = {rank for root in roots for rank in root["ranks"]} - set(roots[0]["ranks"])
    assert not named, f"also named: {sorted(named)}\n{context}"
    said = roots[0]["summary"] + roots[0]["cause"] + "".join(e["quote"] for e in roots[0]["evidence"])
    assert (wanted["says"] or "") in said, context
