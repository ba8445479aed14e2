"""Ranks that a message itself names: its writer, and those that torch waited for."""

from __future__ import annotations

import pytest

from distdbg.collect.runs.explaining import load
from distdbg.diagnosis.verdict import build_report

UNUSED = """RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.
Parameters which did not receive grad for rank 3: head.weight
"""
BARRIER = "RuntimeError: [Rank 0]: {} failed to pass monitoredBarrier in 60000 ms\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (UNUSED, ("unused-parameters", (3,), "likely")),
        (f"[rank1]: {UNUSED}", ("unused-parameters", (1,), "likely")),
        (f"> [rank1]: {UNUSED}".replace("\n", "\n> "), ("unused-parameters", (1,), "likely")),
        (BARRIER.format("Rank 6"), ("collective-not-joined", (6,), "possible")),
        (BARRIER.format("Ranks 1, 2, 5"), ("collective-not-joined", (1, 2, 5), "possible")),
    ],
)
def test_named_ranks(text, found, tmp_path):
    log = tmp_path / "train.log"
    log.write_text(text)
    first = build_report(load([log])).verdict[0]
    assert (first.id, first.ranks, first.confidence) == found
