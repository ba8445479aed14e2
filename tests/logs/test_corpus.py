"""Logs in the forms of the real world, rebuilt from public issues, each with its truth.

A case is an entry of a file in cases/: `files` by their names, `source`, and the `truth`: `ID@RANKS`, `ID@HOST`, `ID@?`
where no line says whose it is, `silent` for a log without a failure, and `unknown` where the text does not decide.
`line` is a piece of text that the first cited line has. `held_back`: written before the code was tried on any case, and
not looked at while it was changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from distdbg.collect.runs.explaining import load
from distdbg.diagnosis.verdict import build_report
from distdbg.model import Report, fold_ranks

CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Case:
    id: str
    truth: str
    files: dict[str, str]
    held_back: bool = False
    line: str = ""


def cases() -> list[Case]:
    found = []
    for path in sorted(CASES.glob("*.yaml")):
        entries: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
        for entry in entries:
            known = {key: value for key, value in entry.items() if key not in ("id", "source")}
            found.append(Case(f"{path.stem}-{entry['id']}", **known))
    return found


def report_of(case: Case, folder: Path) -> Report:
    paths = []
    for name, text in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        paths.append(path)
    return build_report(load(paths))


def answer(report: Report) -> str:
    """In the form of a truth: of the first finding that no other explains."""
    errors = [f for f in report.verdict if f.severity == "error"]
    if not errors:
        known = [u for u in report.unknown if u.what != "whether and why the job failed"]  # no line speaks of a failure
        return "unknown" if replace(report, unknown=tuple(known)).undecided else "silent"
    lead = errors[0]
    whose = fold_ranks(lead.ranks) if lead.ranks else ",".join(lead.nodes) or "?"
    return f"{lead.id}@{whose}"


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.id)
def test_the_answer_is_the_truth(case: Case, tmp_path: Path) -> None:
    report = report_of(case, tmp_path)
    assert answer(report) == case.truth
    if case.line:
        cited = report.verdict[0].evidence[0]
        assert cited.line is not None
        text = next(text for name, text in case.files.items() if cited.path.endswith(name))
        assert case.line in text.split("\n")[cited.line - 1]
