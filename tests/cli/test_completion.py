from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_distdbg_and_parses(distdbg: Command, tmp_path: Path, shell: str) -> None:
    done = distdbg("completion", shell)
    assert done.code == 0 and f"_DISTDBG_COMPLETE={shell}_complete" in done.out, done
    if shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(done.out)
        assert subprocess.run([shell, "-n", str(script)], check=False).returncode == 0


def test_commands_and_options_are_completed(tmp_path: Path) -> None:
    """What the shell's function runs when a person presses Tab, through the installed program's name."""
    program = tmp_path / "distdbg"
    program.write_text(f"#!{sys.executable}\nfrom distdbg.cli import main\nmain()\n")
    program.chmod(0o755)

    def press_tab(line: str) -> list[str]:
        words = line.split(" ")
        env = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_DISTDBG_COMPLETE": "bash_complete"}
        done = subprocess.run([str(program)], env=env, capture_output=True, text=True, check=True)
        return [word.partition(",")[2] for word in done.stdout.split()]

    assert press_tab("distdbg canc") == ["cancel"]
    assert "--dry-run" in press_tab("distdbg runs prune --")
    assert press_tab("distdbg completion f") == ["fish"]


def test_another_shell_is_refused(distdbg: Command) -> None:
    done = distdbg("completion", "tcsh")
    assert done.code == 2 and "bash" in done.err
