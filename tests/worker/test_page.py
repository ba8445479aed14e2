"""The heartbeat page from both sides."""

import os
from pathlib import Path
from types import SimpleNamespace

from distdbg.protocol.page import MAGIC, PAGE_BYTES, read_page
from distdbg.worker.page import BACKWARD, BACKWARDS, CALLS, DATA, OTHER, STEPS, PageWriter


def written(tmp_path) -> tuple[PageWriter, Path]:
    path = tmp_path / "00003.page"
    return PageWriter(str(path), rank=3, attempt=2), path


def test_what_is_written_is_read(tmp_path):
    writer, path = written(tmp_path)
    first = read_page(path.read_bytes())
    assert (first.pid, first.rank, first.attempt, first.phase) == (os.getpid(), 3, 2, "starting")
    assert (first.step, first.user_step) == (0, -1)
    writer.ticker(BACKWARD, BACKWARDS)(None)
    for _ in range(300):
        writer.ticker(OTHER, STEPS)(None)
    writer.user_step(41)
    writer.user_step(None)
    page = read_page(path.read_bytes())
    assert (page.backwards, page.step, page.user_step, page.phase) == (1, 300, 42, "other")
    assert page.heard == 1 + 300 + 42
    assert first.backward_ns == 0 < page.backward_ns <= page.step_ns and page.forward_ns == 0
    writer.forward_ticker()(None)
    again = read_page(path.read_bytes())
    assert (again.forwards, again.phase, again.backward_ns) == (1, "forward", page.backward_ns)
    assert again.forward_ns == again.phase_ns
    writer.ticker(OTHER)(None)
    writer.counter(CALLS)(None)
    called = read_page(path.read_bytes())
    assert (called.calls, called.phase, called.heard) == (1, "other", again.heard + 1)
    assert page.last_event_ns <= called.last_event_ns == called.call_ns
    assert first.started_ns <= first.phase_ns <= page.phase_ns <= page.step_ns
    subscribers = {}
    writer.subscribe(SimpleNamespace(subscribe=lambda event, tick, **_: subscribers.setdefault(event, tick)))
    subscribers["replay"](None)
    replayed = read_page(path.read_bytes())
    assert (replayed.replays, replayed.phase, replayed.heard) == (1, "other", called.heard + 1)
    assert called.last_event_ns <= replayed.last_event_ns == replayed.replay_ns
    writer.ticker(DATA)(None)
    assert read_page(path.read_bytes()).phase == "data"


def test_an_epoch_is_a_pass_in_which_steps_were_made(tmp_path):
    """A validation in its middle, and one after its last batch, are none, and take nothing from it."""
    writer, path = written(tmp_path)
    step = writer.ticker(OTHER, STEPS)
    train, validation, broken_off = (SimpleNamespace() for _ in range(3))
    writer.pass_begins(train)
    step(None)
    for iterator in (validation, broken_off):
        writer.pass_begins(iterator)
    writer.pass_ends(validation)
    assert writer.epochs() == 0
    writer.pass_ends(train)
    writer.pass_ends(SimpleNamespace())  # that began before we listened
    send = writer.transfer()
    send()
    page = read_page(path.read_bytes())
    assert (page.epochs, page.transfers) == (1, 1)


def test_what_is_no_page_is_none(tmp_path):
    _, path = written(tmp_path)
    raw = path.read_bytes()
    assert len(raw) == PAGE_BYTES
    assert read_page(raw) is not None
    for broken in (b"", raw[:50], b"\0" * PAGE_BYTES, b"another " + raw[8:], MAGIC + b"\xff" * (PAGE_BYTES - 8)):
        assert read_page(broken) is None


def test_a_child_leaves_its_parents_page_alone(tmp_path):
    writer, path = written(tmp_path)
    before = path.read_bytes()
    writer.close()
    writer.user_step(9)
    writer.phase(DATA)
    assert path.read_bytes() == before


def test_several_wait_for_steps_and_each_is_called_once(tmp_path):
    writer, _ = written(tmp_path)
    heard = []

    def a():
        heard.append(("a", writer.steps()))
        writer.at_step(5, a)

    def b():
        heard.append(("b", writer.steps()))

    tick = writer.ticker(OTHER, STEPS)
    writer.at_step(2, a)
    writer.at_step(9, b)
    writer.at_step(3, b)  # the newest counts
    for _ in range(9):
        tick(None)
    assert heard == [("a", 2), ("b", 3), ("a", 5)]
    writer.at_step(4, b)  # past: it neither comes nor keeps another from coming
    writer.at_step(11, a)
    for _ in range(3):
        tick(None)
    assert heard[3:] == [("a", 11)]


def test_backwards_are_waited_for_apart_from_steps(tmp_path):
    writer, _ = written(tmp_path)
    heard = []
    backward, step = writer.ticker(BACKWARD, BACKWARDS), writer.ticker(OTHER, STEPS)
    writer.at_backward(2, lambda: heard.append((writer.backwards(), writer.steps())))
    for tick in (step, step, backward, step, backward, backward):
        tick(None)
    assert heard == [(2, 3)]
