"""The document of a rehearsal: when a failure may be one of the rehearsal alone."""

from __future__ import annotations

import pytest

from distdbg.model import Citation, Finding, Report
from distdbg.rehearse.document import rehearsal_document
from distdbg.rehearse.reading import RehearsedRun, ValueBranch
from distdbg.rehearse.rehearsal import Rehearsal
from distdbg.report.document import Paragraph

ASSERT = ValueBranch("assert loss < 5", "/home/me/train.py:9", False, (0,))


@pytest.mark.parametrize(("outcome", "line", "warned"), [("failed", 9, True), ("failed", 8, False), ("hung", 8, True)])
def test_failure_in_a_line_that_reads_a_value_may_be_the_rehearsals(outcome, line, warned):
    citation = Citation("attempts/1/ranks/00000/facts.jsonl", 3, f"train.py:{line} in <module>", "AssertionError")
    finding = Finding("rank-exception", "error", "certain", "rank 0 raised", ranks=(0,), evidence=(citation,))
    report = Report(outcome, (finding,))
    run = RehearsedRun(report, Rehearsal((), (), 0), (), (), (ASSERT,))
    document = rehearsal_document(run, "1 x 2 GPUs", verdict=False)
    texts = [block.text for section in document.sections for block in section.blocks if isinstance(block, Paragraph)]
    assert any("can be one of the rehearsal alone" in text for text in texts) is warned
