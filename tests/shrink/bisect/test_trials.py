"""What a trial left behind is evidence of any form."""

import os
import sys

import pytest

from distdbg.rundir import RunDir
from distdbg.shrink.bisect.command import Command
from distdbg.shrink.bisect.trials import Trials, kept_layers


@pytest.mark.timeout(20)
def test_a_fifo_in_place_of_a_record_is_not_waited_for(tmp_path):
    rank = tmp_path / "001" / "attempts" / "1" / "ranks" / "00000"
    rank.mkdir(parents=True)
    (tmp_path / "001" / "report").mkdir()
    os.mkfifo(rank / "facts.jsonl")
    os.mkfifo(tmp_path / "001" / "report" / "report.json")
    assert kept_layers(RunDir(tmp_path / "001")) is None
    trial = Trials(tmp_path).run(Command((), (), (sys.executable, "-c", "raise SystemExit(3)")), 15.0)
    assert (trial.exit_code, trial.report, trial.kept) == (3, None, None)
