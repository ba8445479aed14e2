"""Every program under tests/programs/memory gets, under --memory, the finding that its docstring promises, or none.

What other checks say of such small jobs (their data is not sharded) is not looked at here.
"""

import json
import re
from pathlib import Path

import pytest

PROGRAMS = sorted((Path(__file__).parent / "programs" / "memory").glob("*.py"))
OURS = {"memory-leak", "host-memory-growth", "fragmentation", "untracked-gpu-memory", "reference-cycle"}
#: Threads that spin for each other take minutes where other tests compute.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
_VERDICT = re.compile(r"^Verdict: (?P<id>[\w-]+)(?:; says: (?P<says>.+))?$", re.M)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_memory(program, distdbg):
    wanted = _VERDICT.search(program.read_text())
    assert wanted, f"{program} promises no verdict"
    done = distdbg("launch", "--memory", "--nproc-per-node", "1", program, env=ONE_THREAD, timeout=240)
    report = json.loads(done.run.report_json.read_text())
    found = [f for f in report["findings"] if f["id"] in OURS | {wanted["id"]} and f["explained_by"] is None]
    context = json.dumps(report["findings"], indent=1) + done.err
    assert done.code == 0, context
    assert [f["id"] for f in found] == ([] if wanted["id"] == "none" else [wanted["id"]]), context
    if wanted["says"]:
        assert wanted["says"] in found[0]["summary"] + found[0]["cause"], context
