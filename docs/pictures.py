"""Draw docs/terminal.svg: start a job that hangs, and show what `distdbg hang-dump` prints about it in a terminal.

    python docs/pictures.py

The text is what the command printed, without its quotes of evidence; times differ from call to call. torch is required.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "terminal.svg"
PROGRAM = ROOT / "tests" / "programs" / "hangs" / "barrier_on_rank_0.py"
COMMAND = (sys.executable, "-m", "distdbg")
COLUMNS = 100
#: `hang-dump` has found what blocks the job
FINDINGS_OF_SEVERITY_ERROR = 10
TRIES = 60
_COLOUR = r"(?:\x1b\[[\d;]*m)*"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(PROGRAM, folder)
        launch = [*COMMAND, "launch", "--nodes", "2", "--nproc-per-node", "2", "--show-ranks", "none", PROGRAM.name]
        job = subprocess.Popen(launch, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for_hang(folder)
            text = in_terminal([*COMMAND, "hang-dump"], folder)
        finally:
            job.terminate()
            job.wait()
    PICTURE.write_text(drawn(without_evidence(text), "distdbg hang-dump"), encoding="utf-8")


def wait_for_hang(folder: Path) -> None:
    for _ in range(TRIES):
        done = subprocess.run([*COMMAND, "hang-dump", "--json"], cwd=folder, capture_output=True, check=False)
        if done.returncode == FINDINGS_OF_SEVERITY_ERROR:
            return
    sys.exit(f"the job does not hang: {done.stderr.decode()}")


def in_terminal(command: list[str], folder: Path) -> str:
    """What the command prints to a terminal of COLUMNS columns, with its colours."""
    outside, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")} | {"TERM": "xterm"}
    process = subprocess.Popen(command, cwd=folder, stdout=inside, stderr=subprocess.DEVNULL, env=environment)
    os.close(inside)
    parts = []
    while True:
        try:
            part = os.read(outside, 65536)
        except OSError:  # the terminal's last user has ended
            break
        if not part:
            break
        parts.append(part)
    process.wait()
    return b"".join(parts).decode().replace("\r\n", "\n")


def without_evidence(text: str) -> str:
    """The picture is one screen: the quotes below `seen`, with paths of this machine, are left out."""
    return re.sub(rf"^{_COLOUR}  {_COLOUR}seen .*\n(?:{_COLOUR} {{7}}.*\n)*", "", text, flags=re.MULTILINE)


def drawn(text: str, title: str) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {title}\n", style="bold"))
    console.print(Text.from_ansi(text.rstrip()))
    svg = console.export_svg(title=title, unique_id="terminal")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # no font is fetched from the network
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


if __name__ == "__main__":
    main()
