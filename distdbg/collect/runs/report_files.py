"""The three forms of a report, written into its run directory: they can be deleted and rebuilt at any time."""

from __future__ import annotations

from distdbg.evidence.run import RunEvidence
from distdbg.model import Report
from distdbg.report.json_form import dumps
from distdbg.report.page.html import render_html
from distdbg.report.text.report import render_text
from distdbg.rundir import RunDir
from distdbg.whole_file import make_private_folder, write_whole


def write_report(run: RunDir, report: Report, evidence: RunEvidence) -> None:
    """report.json, report.txt and report.html; raises OSError where the directory cannot be written."""
    make_private_folder(run.report_json.parent)
    write_whole(run.report_json, dumps(report))
    write_whole(run.report_text, render_text(report) + "\n")
    write_whole(run.report_html, render_html(report, evidence))
