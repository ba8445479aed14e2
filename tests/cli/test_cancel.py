from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from tests.cli.test_runs import make_run, sleeper  # noqa: F401 - a fixture
from tests.conftest import Command


def answer(run, heard: list[dict]) -> None:
    """What a launcher does: waits for the request, ends its ranks, writes its last event."""
    deadline = time.monotonic() + 60
    while not run.control.read_text().endswith("\n") and time.monotonic() < deadline:
        time.sleep(0.01)
    heard.append(json.loads(run.control.read_text()))
    run.attempt(1).rank(0).exit.write_text("{}")
    with run.events.open("a") as file:
        file.write(json.dumps({"t": time.time(), "event": "cancelled", "by": heard[0]["by"]}) + "\n")
        file.write(json.dumps({"t": time.time(), "event": "finished", "exit_code": 143}) + "\n")


def test_asks_and_waits_for_the_end(distdbg: Command, tmp_path: Path, sleeper: dict) -> None:  # noqa: F811
    run = make_run(tmp_path, "20260101T000000Z", finished=None, launcher=sleeper)
    heard: list[dict] = []
    launcher = threading.Thread(target=answer, args=(run, heard))
    launcher.start()
    done = distdbg("cancel", timeout=60)
    launcher.join()
    assert done.code == 0, done
    assert heard[0]["request"] == "cancel" and "pid" in heard[0]["by"]
    assert f"{run.id} ended: cancelled, exit code 143" in done.out


def test_a_run_that_does_not_end_is_said_to_go_on(distdbg: Command, tmp_path: Path, sleeper: dict) -> None:  # noqa: F811
    run = make_run(tmp_path, "20260101T000000Z", finished=None, launcher=sleeper)
    done = distdbg("cancel", run.id[-4:], "--timeout", "0")
    assert done.code == 1 and "has not ended within 0 s" in done.err and "0 of 2 ranks" in done.err, done


def test_no_wait_only_asks(distdbg: Command, tmp_path: Path, sleeper: dict) -> None:  # noqa: F811
    run = make_run(tmp_path, "20260101T000000Z", finished=None, launcher=sleeper)
    assert distdbg("cancel", str(run.path), "--no-wait").code == 0
    assert json.loads(run.control.read_text())["request"] == "cancel"


def test_a_run_that_has_ended_is_asked_nothing(distdbg: Command, tmp_path: Path) -> None:
    for finished, words in ((0, "succeeded, exit code 0"), (None, "its launcher is gone")):
        run = make_run(tmp_path, f"2026010{1 + (finished is None)}T000000Z", finished=finished)
        done = distdbg("cancel", run.id)
        assert done.code == 3 and words in done.err, done
        assert run.control.read_bytes() == b""


def test_no_such_run(distdbg: Command, tmp_path: Path) -> None:
    done = distdbg("cancel", "nonesuch")
    assert done.code == 3 and "nonesuch" in done.err
