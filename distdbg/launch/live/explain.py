"""Show the verdict of a run during its launch: while the job hangs, and at its end."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.rundir import RunDir
from distdbg.terminal import columns, in_colour

if TYPE_CHECKING:
    from distdbg.model import Report


def get_ready() -> None:
    """Import what a verdict needs, while the agents still look: half of the time that it takes."""
    import distdbg.collect.runs.report_files
    import distdbg.collect.runs.whole_run
    import distdbg.diagnosis.verdict
    import distdbg.report.run_document
    import distdbg.report.text.renderer  # noqa: F401


def explain(run: RunDir, shown: Report | None = None) -> tuple[str, Report]:
    """Build and write the report of what the run directory holds now; as text for the terminal, and itself.

    The text repeats only the first sentences of what the terminal has just `shown`.

    A disk that takes no report takes nothing from the verdict, and neither does a page that cannot be drawn.
    """
    from distdbg.collect.runs.report_files import write_report
    from distdbg.collect.runs.whole_run import load_whole_run
    from distdbg.diagnosis.verdict import build_report
    from distdbg.report.run_document import run_document
    from distdbg.report.text.renderer import TextRenderer
    from distdbg.report.text.screen import Screen

    evidence = load_whole_run(run)
    report = build_report(evidence)
    screen = Screen.of(color=in_colour(sys.stderr), width=columns())
    text = TextRenderer(screen, shown=shown).render(run_document(report))
    try:
        write_report(run, report, evidence)
    except OSError as error:
        text += f"\ndistdbg: the report could not be written, this is all of it: {error.strerror or error}"
    except Exception as error:
        text += f"\ndistdbg: not all of the report could be made; please report this: {error!r}"
    if evidence.profiles:  # where their time goes; what cannot be shown costs the verdict nothing
        from distdbg.report.profile_document import profile_sections

        try:
            renderer = TextRenderer(screen)
            text += "\n".join(["", *renderer.sections(profile_sections(evidence.profiles)), ""])
        except Exception as error:
            text += f"\ndistdbg: the table of the profiles could not be made; please report this: {error!r}"
    return text, report


def where_ranks_are(run: RunDir, dump: Path) -> str:
    """`rank 0: runs at train.py:7; …` by this dump; empty where they went on."""
    from distdbg.collect.runs.dump_files import load_dump
    from distdbg.collect.runs.run_evidence import load_evidence
    from distdbg.diagnosis.waits.hang import hang_of
    from distdbg.diagnosis.waits.undecided import places

    found, _ = load_dump(dump, run.relative(dump))
    hang = hang_of(replace(load_evidence(run), dump=found))
    return places(hang) if hang is not None else ""
