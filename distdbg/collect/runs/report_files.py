"""Write the report of a run into its run directory as text, JSON and HTML."""

from __future__ import annotations

from distdbg.evidence.run import RunEvidence
from distdbg.model import Report
from distdbg.report.json_form import JsonRenderer
from distdbg.report.page.renderer import PageRenderer
from distdbg.report.run_document import run_document
from distdbg.report.text.renderer import TextRenderer
from distdbg.rundir import RunDir
from distdbg.whole_file import make_private_folder, write_whole


def write_report(run: RunDir, report: Report, evidence: RunEvidence) -> None:
    """report.json, report.txt and report.html; raises OSError where the directory cannot be written."""
    make_private_folder(run.report_json.parent)
    summary = run_document(report)
    write_whole(run.report_json, JsonRenderer().render(summary))
    write_whole(run.report_text, TextRenderer().render(summary) + "\n")
    write_whole(run.report_html, PageRenderer().render(run_document(report, evidence, whole=True)))
