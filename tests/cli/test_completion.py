from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Command

Need = Callable[[str, str], str]

#: How each shell can be made to show what Tab would offer after "distdbg canc"; zsh cannot without a terminal.
PRESS_TAB = {
    "bash": "source ./script; COMP_WORDS=(distdbg canc); COMP_CWORD=1; _distdbg_completion distdbg; echo $COMPREPLY",
    "fish": "source ./script; complete -C 'distdbg canc'",
}


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called distdbg, as an installation has it."""
    program = tmp_path / "bin" / "distdbg"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom distdbg.cli import main\nmain()\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_parses(distdbg: Command, tmp_path: Path, need: Need, shell: str) -> None:
    done = distdbg("completion", shell)
    assert done.code == 0 and f"_DISTDBG_COMPLETE={shell}_complete" in done.out, done
    (tmp_path / "script").write_text(done.out)
    assert subprocess.run([need(shell, shell), "-n", str(tmp_path / "script")], check=False).returncode == 0


@pytest.mark.parametrize("shell", sorted(PRESS_TAB))
def test_tab_completes_a_command(distdbg: Command, on_path: Path, tmp_path: Path, need: Need, shell: str) -> None:
    (tmp_path / "script").write_text(distdbg("completion", shell).out)
    command = [need(shell, shell), "-c", PRESS_TAB[shell]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split()[:1] == ["cancel"], done


@pytest.mark.parametrize(
    ("line", "offered"),
    [("distdbg canc", "cancel"), ("distdbg runs prune --", "--dry-run"), ("distdbg completion f", "fish")],
)
def test_options_and_values_are_completed(on_path: Path, line: str, offered: str) -> None:
    env = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_DISTDBG_COMPLETE": "bash_complete"}
    done = subprocess.run([str(on_path)], env=env, capture_output=True, text=True, check=True)
    assert offered in [word.partition(",")[2] for word in done.stdout.split()]


def test_another_shell_is_refused(distdbg: Command) -> None:
    done = distdbg("completion", "tcsh")
    assert done.code == 2 and "bash" in done.err
