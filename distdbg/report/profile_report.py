"""The findings of profiles as a report: the same checks that judge a run, on its profiles alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.run import RunEvidence
from distdbg.evidence.trace.profile import RankProfile
from distdbg.model import Report, Unknown


def profile_report(profiles: Sequence[RankProfile], unread: Sequence[tuple[str, str]] = ()) -> Report:
    """`unread` are files and why they gave nothing."""
    told = (*unread, *(one for profile in profiles for one in profile.unknown))
    unknown = tuple(Unknown(what, because) for what, because in told)
    report = build_report(RunEvidence({}, 0, (), (), profiles=tuple(profiles)))
    return replace(report, unknown=unknown, run=None, outcome=None, exit_code=None, exit_code_of=None)
