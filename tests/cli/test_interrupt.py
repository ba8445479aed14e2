"""Ctrl-C while the command line is loaded: it ends, and prints no traceback of Python's."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

#: Ctrl-C comes when this module is about to be imported.
INTERRUPTS = """
import os, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), 2)
sys.meta_path.insert(0, Interrupt())
"""
AT_ONCE = -signal.SIGINT


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("signal", 130),
        ("distdbg.cli", AT_ONCE),
        ("click", AT_ONCE),
        ("distdbg.cli.commands.launch", 130),
        ("distdbg.launch.plan.program", 130),
        ("distdbg.launch.plan.job", 130),
    ],
)
def test_interrupt_while_modules_are_loaded_prints_no_traceback(tmp_path, module, code):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS.format(module=module))
    (tmp_path / "train.py").touch()
    command = [sys.executable, "-m", "distdbg", "launch", "--dry-run", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (code, "", "")


def test_interrupt_that_is_ignored_stays_ignored(tmp_path):
    """As that of a command which a script has started in the background."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS.format(module="click"))
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "distdbg", "findings"]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
