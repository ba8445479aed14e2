"""Write the report of a run into its run directory as text, JSON and HTML."""

from __future__ import annotations

from collections.abc import Iterator

from distdbg.evidence.run import RunEvidence
from distdbg.model import Report
from distdbg.report.json_form import JsonRenderer
from distdbg.report.page.renderer import PageRenderer
from distdbg.report.run_document import run_document
from distdbg.report.text.renderer import TextRenderer
from distdbg.rundir import RunDir
from distdbg.whole_file import make_private_folder, refuse_linked_folder, write_whole


def write_report(run: RunDir, report: Report, evidence: RunEvidence) -> None:
    """report.json, report.txt and report.html. Raises OSError if the directory cannot be written, or is not ours."""
    run.refuse_foreign()
    make_private_folder(run.report_json.parent)
    refuse_linked_folder(run.report_json.parent)
    for name, text in report_forms(report, evidence):
        write_whole(run.report_json.with_name(name), text)


def report_forms(report: Report, evidence: RunEvidence) -> Iterator[tuple[str, str]]:
    """Name and text of each file of the report, one at a time: a page that cannot be drawn costs the page alone."""
    summary = run_document(report)
    yield "report.json", JsonRenderer().render(summary)
    yield "report.txt", TextRenderer().render(summary) + "\n"
    yield "report.html", PageRenderer().render(run_document(report, evidence, whole=True))
