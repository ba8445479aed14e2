"""Findings are built in one place, and completed from the catalogue and the evidence; rules say what they need."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from distdbg.diagnosis.finding import build_finding
from distdbg.diagnosis.rules import FAMILIES, Rule, has_any, rules_of
from distdbg.evidence.run import NodeRecord, RankRecord, RunEvidence
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


@pytest.mark.parametrize("name", FAMILIES)
def test_family_needs_what_its_rules_need(name):
    needs = [one.needs for one in rules_of(name)]
    every = tuple(sorted({part for parts in needs for part in parts}))
    assert FAMILIES[name].needs == (every if all(needs) else None)


def test_parts_that_rules_need_are_fields_of_the_evidence():
    empty = RunEvidence({}, 1, (RankRecord(0, 0, 0, "host"),), (NodeRecord(0, "host"),))
    needed = {part for name in FAMILIES for one in rules_of(name) for part in one.needs}
    assert not has_any(empty, needed)


def test_rule_without_what_it_needs_is_not_run():
    rule = Rule("slow", "straggler", (entry("straggler"),), lambda _: 1 / 0, needs=("profiles", "rank.phases"))
    rank = RankRecord(0, 0, 0, "host")
    assert list(rule.run(RunEvidence({}, 1, (rank,), ()))) == []
    with pytest.raises(ZeroDivisionError):
        list(rule.run(RunEvidence({}, 1, (replace(rank, phases={"step": 1000}),), ())))


def test_families_that_a_hang_dump_cannot_feed_are_not_imported():
    program = "import sys; from distdbg.diagnosis.rules import run_rules; from distdbg.evidence.run import *; "
    program += "run_rules(RunEvidence({}, 1, (RankRecord(0, 0, 0, 'host'),), ())); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    families = {name.split(".")[2] for name in loaded if name.startswith("distdbg.diagnosis.") and name.count(".") > 2}
    assert families.isdisjoint({"training", "parallel", "memory", "nodes", "slow"}), sorted(families)


def test_families_import_no_other_family():
    others = []
    for path in SOURCES.glob("*/*.py"):
        family = path.parent.name
        for node in ast.walk(ast.parse(path.read_text())):
            parts = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
            if parts[:2] == ["distdbg", "diagnosis"] and parts[2] in FAMILIES and parts[2] != family in FAMILIES:
                others.append(f"{path.name}: {node.module}")
    assert others == []
