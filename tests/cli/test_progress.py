"""The bar of what a command does: on a terminal, after a second, and gone when the command ends."""

import sys
import time

import click
import pytest

from distdbg.cli.answer import ProgressBar

HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"


def on_terminal(monkeypatch):
    """Called in the test's body: pytest gives each of its phases another stream."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_nothing_where_no_terminal_is(capsys):
    bar = ProgressBar(after_s=0.0)
    bar("reading a.log", 0.5)
    bar("")
    assert capsys.readouterr().err == ""


def test_the_share_that_is_done(capsys, monkeypatch):
    on_terminal(monkeypatch)
    bar = ProgressBar(after_s=0.0)
    bar("reading [red]a.log", 0.25)
    bar("")
    shown = capsys.readouterr().err
    assert "distdbg: reading [red]a.log" in shown and "25%" in shown
    assert shown.rindex(SHOWN) > shown.rindex(HIDDEN)


def test_it_comes_after_its_time_without_another_call(capsys, monkeypatch):
    on_terminal(monkeypatch)
    bar = ProgressBar(after_s=0.05)
    bar("reading a.log")
    shown = capsys.readouterr().err
    until = time.monotonic() + 30
    while "reading a.log" not in shown and time.monotonic() < until:
        time.sleep(0.01)
        shown += capsys.readouterr().err
    bar.stop()
    assert "reading a.log" in shown


def test_nothing_of_a_short_command(capsys, monkeypatch):
    on_terminal(monkeypatch)
    bar = ProgressBar(after_s=30.0)
    bar("reading a.log")
    bar("")
    assert capsys.readouterr().err == ""


def test_the_end_of_a_command_removes_it(capsys, monkeypatch):
    on_terminal(monkeypatch)
    with pytest.raises(ValueError, match="x"), click.Context(click.Command("c")):
        ProgressBar(after_s=0.0)("reading a.log", 0.5)
        raise ValueError("x")
    shown = capsys.readouterr().err
    assert shown.rindex(SHOWN) > shown.rindex(HIDDEN)
