"""What `distdbg profile FILE…` shows of traces, whoever wrote them: the verdict, and where a step's time goes."""

from __future__ import annotations

import sys
from pathlib import Path

from distdbg.cli import _answer


def show(files: list[Path], as_json: bool) -> None:
    """Ends the command: 0 nothing of severity error, 3 no trace among them, 5 none that can be read."""
    from distdbg.collect.files.trace_files import read_traces
    from distdbg.report.profile_document import profile_document

    say = _answer.progress()
    document = profile_document(*read_traces(files, say))
    say("")
    _answer.show(document, as_json=as_json)
    sys.exit(_answer.exit_code(document.report))
