from __future__ import annotations

import json
import os
import pty
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.collect.log_runs import WrittenRun
from tests.conftest import Command

pytestmark = pytest.mark.slow  # the command line again and again


@pytest.fixture
def written(tmp_path: Path) -> WrittenRun:
    made = WrittenRun(tmp_path)
    made.say(0, "step 1 loss 2.5\n", 1).say(1, "step 1 loss 2.6\n", 2).say(1, "Traceback\n", 4, "stderr")
    made.say(0, "step 2 loss 2.4\n", 3).say(2, b"\r 10%\r100% \x1b[31mr\xc3\xa9d\x1b[0m\xff\n", 5)
    made.finish()
    return made


def test_rank_after_rank_or_merged_in_time(distdbg: Command, written: WrittenRun) -> None:
    done = distdbg("logs", written.run.id)
    assert done.code == 0 and done.out.splitlines() == [
        "[rank 0] step 1 loss 2.5",
        "[rank 0] step 2 loss 2.4",
        "[rank 1] step 1 loss 2.6",
        "[rank 1] Traceback",
        "[rank 2] 100% réd\ufffd",
    ], done
    merged = distdbg("logs", "--merge", "--no-prefix", "--rank", "0-1")
    assert merged.out.splitlines() == ["step 1 loss 2.5", "step 1 loss 2.6", "step 2 loss 2.4", "Traceback"]


def test_one_rank_comes_byte_by_byte(tmp_path: Path, written: WrittenRun) -> None:
    noise = random.Random(2).randbytes(3 << 20)
    written.say(3, noise, 1).say(3, noise[::-1], 2, "stderr")
    command = [sys.executable, "-m", "distdbg", "logs", "--rank", "3"]
    both = subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert (both.returncode, both.stdout, both.stderr) == (0, noise, noise[::-1])
    one = subprocess.run([*command, "--stream", "stderr"], cwd=tmp_path, capture_output=True)
    assert (one.stdout, one.stderr) == (noise[::-1], b"")


def test_grep_looks_at_text_without_colours_and_at_every_state_of_a_bar(distdbg: Command, written: WrittenRun) -> None:
    assert distdbg("logs", "--grep", r"loss 2\.[56]").out.count("\n") == 2
    assert distdbg("logs", "--grep", "réd").out == "[rank 2] 100% réd\ufffd\n"
    assert distdbg("logs", "--grep", "^ *10%").out == "[rank 2]  10%\n"
    nothing = distdbg("logs", "--grep", "no such thing")
    assert (nothing.code, nothing.out) == (0, "")


def test_times_and_json(distdbg: Command, written: WrittenRun) -> None:
    done = distdbg("logs", "--times", "--rank", "1")
    assert done.out.splitlines()[0] == "2023-11-14T22:13:22.000Z [rank 1] step 1 loss 2.6"
    values = [json.loads(line) for line in distdbg("logs", "--json", "--merge").out.splitlines()]
    assert [v["rank"] for v in values] == [0, 1, 0, 1, 2]
    assert values[3] == {
        "t": 1_700_000_004.0, "attempt": 1, "rank": 1, "stream": "stderr", "text": "Traceback", "ended": True
    }  # fmt: skip


def test_the_newest_attempt_unless_another_is_named(distdbg: Command, written: WrittenRun) -> None:
    written.say(0, "second life\n", 9, attempt=2)
    assert distdbg("logs").out == "second life\n"
    assert distdbg("logs", "--attempt", "1", "--rank", "0").out == "step 1 loss 2.5\nstep 2 loss 2.4\n"


def test_what_was_lost_is_said(distdbg: Command, written: WrittenRun) -> None:
    written.lose(0, "stdout", 1234, "the file system is full")
    written.lose(1, "stdout", 5, "the file system is full")
    done = distdbg("logs", "--rank", "0")
    assert (
        done.code == 0 and done.err == "distdbg: 1234 bytes of rank 0's stdout are missing: the file system is full\n"
    )


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--grep", "a(b"], 2, ["'a(b'", "character 2"]),
        (["--rank", "x"], 2, ["'x'", "0-7"]),
        (["--rank", ","], 2, ["no rank"]),
        (["--rank", "0-99999999999"], 2, ["no job has"]),
        (["--rank", "1,7-9"], 3, ["ranks 7-9", "0-2"]),
        (["--rank", "9", "-f"], 3, ["rank 9", "0-2"]),
        (["--attempt", "3"], 3, ["no attempt 3", "1"]),
        (["--attempt", "0"], 2, ["0"]),
        (["no-such-run"], 3, ["no-such-run"]),
    ],
)
def test_mistakes_get_one_clear_sentence(
    distdbg: Command, written: WrittenRun, options: list[str], code: int, words: list[str]
) -> None:
    done = distdbg("logs", *options)
    assert done.code == code and not done.out and "Traceback" not in done.err, done
    assert all(word in done.err for word in words), done


def test_follow_shows_what_comes_and_ends_with_the_run(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path)
    command = [sys.executable, "-m", "distdbg", "logs", "-f"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        written.say(0, "before\n", 1)
        assert process.stdout.readline() == b"[rank 0] before\n"
        written.say(1, "a new rank\nunfinished", 2)
        assert process.stdout.readline() == b"[rank 1] a new rank\n"
        written.say(0, "restarted\n", 3, attempt=2)
        assert process.stdout.readline() == b"[rank 0] restarted\n"
        written.finish()
        assert process.communicate(timeout=20)[0] == b"[rank 1] unfinished\n" and process.returncode == 0


def test_follow_of_one_rank_passes_on_bytes_as_they_come(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path)
    command = [sys.executable, "-m", "distdbg", "logs", "-f", "--rank", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for part in (b"\r 10%", b"\r 20%", b"\xe2", b"\x82\xac\n"):
            written.say(0, part, 1)
            assert process.stdout.read(len(part)) == part
        written.finish()
        assert process.wait(20) == 0


def test_colours_on_a_terminal_only_and_a_reader_that_leaves_is_no_error(tmp_path: Path, written: WrittenRun) -> None:
    main, side = pty.openpty()
    command = [sys.executable, "-m", "distdbg", "logs", "--merge"]
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    assert subprocess.run(command, cwd=tmp_path, stdout=side, env=environment).returncode == 0
    shown = os.read(main, 65536)
    assert b"\x1b[36m[rank 0] \x1b[0m" in shown and b"\x1b[31mr\xc3\xa9d\x1b[0m" in shown
    assert subprocess.run(command, cwd=tmp_path, stdout=side, env=environment | {"NO_COLOR": "1"}).returncode == 0
    assert b"\x1b" not in os.read(main, 65536)
    os.close(main)
    os.close(side)
    written.say(0, "line\n" * 500_000, 6)
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read() and process.wait(20) == 141


def test_ctrl_c_ends_follow_without_a_traceback(tmp_path: Path) -> None:
    written = WrittenRun(tmp_path)
    written.say(0, "x\n", 1)
    command = [sys.executable, "-m", "distdbg", "logs", "-f"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(2)
        began = time.monotonic()
        _, err = process.communicate(timeout=20)
        assert process.returncode == 130 and b"Traceback" not in err and time.monotonic() - began < 2


def test_a_job_that_had_the_terminal_has_no_logs(distdbg: Command, tmp_path: Path) -> None:
    WrittenRun(tmp_path, ranks=[0, 1]).finish()
    done = distdbg("logs")
    assert done.code == 3 and "--no-capture" in done.err, done


def test_lines_hold_no_control_that_a_terminal_or_a_reader_obeys(distdbg: Command, tmp_path: Path) -> None:
    made = WrittenRun(tmp_path)
    made.say(0, "a\x1b]0;title\x07b\x9b31mc\u202ed\u2066e\n", 1).say(1, "x\n", 2)
    made.finish()
    for words in (["--merge"], ["--rank", "0", "--grep", "a"], ["--times"]):
        done = distdbg("logs", made.run.id, *words)
        assert done.code == 0 and "e" in done.out, done
        assert not [c for c in "\x1b\x07\x9b\u202e\u2066" if c in done.out], ascii(done.out)
