"""What a carrier said on its standard error, kept in a log that all its starts share."""

import os

from distdbg.launch.carriers import Carrier, Running


def test_what_an_earlier_start_said_is_not_this_ones(tmp_path):
    log = tmp_path / "carrier-srun.log"
    for words in ("one", "two"):
        carrier = Carrier(["sh", "-c", f"echo {words} >&2"], [0], ["here"], os.environ, log)
        running = Running(carrier)
        running.process.wait(10)
        assert running.said() == f"{words}\n"
    assert log.read_text() == "one\ntwo\n"
    log.unlink()
    assert running.said() == ""
