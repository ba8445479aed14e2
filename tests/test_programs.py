"""Every program under tests/programs gets the verdict that its docstring promises."""

import json
import re
from pathlib import Path

import pytest

from distdbg.model import fold_ranks
from tests.conftest import nodes_of

PROGRAMS = Path(__file__).parent / "programs"
_VERDICT = re.compile(
    r"^Verdict: (?P<ids>[\w|-]+)(?:; ranks: (?P<ranks>[\d,|-]+))?; exit: (?P<exit>[\d|]+)(?:; says: (?P<says>.+))?$",
    re.M,
)


def programs():
    files = sorted(f for folder in ("dies", "dies_desync", "healthy") for f in (PROGRAMS / folder).glob("*.py"))
    assert files
    return files


@pytest.mark.slow
@pytest.mark.parametrize("program", programs(), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_verdict(program, distdbg):
    wanted = _VERDICT.search(program.read_text())
    assert wanted, f"{program} promises no verdict"
    result = distdbg(
        "launch", "--nodes", nodes_of(program), "--nproc-per-node", "2", "--worker-side", "on", program, timeout=120
    )
    report = json.loads(result.run.report_json.read_text())
    roots = [f for f in report["findings"] if f["explained_by"] is None and f["severity"] == "error"]
    context = json.dumps(report, indent=1) + result.err
    assert str(result.code) in wanted["exit"].split("|"), context
    if wanted["ids"] == "none":
        assert report["findings"] == [], context
        assert report["outcome"] == "succeeded", context
        return
    assert [f["id"] for f in roots] in [[name] for name in wanted["ids"].split("|")], context
    assert fold_ranks(roots[0]["ranks"]) in wanted["ranks"].split("|"), context
    assert report["outcome"] == "failed", context
    if wanted["says"]:
        assert wanted["says"] in roots[0]["summary"] + roots[0]["cause"] + "".join(
            e["quote"] for e in roots[0]["evidence"]
        ), context
        assert wanted["says"] in " ".join(result.err.split()), "the terminal's last screen does not say it"
