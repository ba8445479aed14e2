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
    for name, text in report_forms(report, evidence).items():
        write_whole(run.report_json.with_name(name), text)


def report_forms(report: Report, evidence: RunEvidence) -> dict[str, str]:
    """Each file of the report by its name."""
    summary = run_document(report)
    return {
        "report.json": JsonRenderer().render(summary),
        "report.txt": TextRenderer().render(summary) + "\n",
        "report.html": PageRenderer().render(run_document(report, evidence, whole=True)),
    }
