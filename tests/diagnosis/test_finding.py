"""Findings are built in one place, and completed from the catalogue and the evidence."""

from __future__ import annotations

import ast
from pathlib import Path

from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import Rule
from distdbg.evidence.run import RankRecord, RunEvidence
from distdbg.findings import entry
from distdbg.model import Citation

SOURCES = Path(__file__).resolve().parents[2] / "distdbg" / "diagnosis"


def test_no_other_module_of_the_diagnosis_builds_a_finding():
    makers = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding"
    }
    assert makers == {"finding.py"}


def test_catalogue_gives_severity_and_remedy():
    doc = entry("straggler")
    found = build_finding("straggler", (3, 1, 3), "late", evidence=(None, Citation("a")))
    assert (found.severity, found.remedy, found.confidence) == (doc.severity, doc.remedy, "likely")
    assert (found.ranks, found.evidence) == ((1, 3), (Citation("a"),))


def test_rule_adds_the_hosts_of_the_ranks_unless_it_names_nodes():
    ranks = tuple(RankRecord(rank, rank // 2, rank % 2, f"host{rank // 2}") for rank in range(4))
    found = (
        build_finding("straggler", (2, 3), "by ranks"),
        build_finding("straggler", (2,), "by node", nodes=("other",)),
        build_finding("straggler", (), "neither"),
    )
    rule = Rule("slow", "straggler", (entry("straggler"),), lambda _: found)
    assert [one.nodes for one in rule.run(RunEvidence({}, 1, ranks, ()))] == [("host1",), ("other",), ()]
