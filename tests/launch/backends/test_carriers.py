"""What a carrier said on its standard error, kept in a log that all its starts share."""

import os

from distdbg.launch.backends.carriers import Carrier, Running


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


def test_last_words_are_the_cause_and_not_what_follows_from_it(tmp_path):
    """srun's, as a step that cannot start on one of its nodes ends."""
    log = tmp_path / "carrier-srun.log"
    cause = "srun: error: Task launch for StepId=2.0 failed on node node2: Communication connection failure"
    after = [
        "srun: error: Application launch failed: Communication connection failure",
        "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.",
        "slurmstepd-node1: error: *** STEP 2.0 ON node1 CANCELLED AT 2026-11-22T23:35:08 ***",
    ]
    running = Running(Carrier(["true"], [0], ["here"], os.environ, log))
    running.process.wait(10)
    log.write_text("\n".join([cause, *after]))
    assert running.last_words() == cause
    log.write_text("\n".join(after))
    assert running.last_words() == "; ".join(after)
    why = after[-1].removesuffix("***") + "DUE TO TIME LIMIT ***"
    log.write_text("\n".join([*after, why]))
    assert running.last_words() == why
