"""Draw the pictures of the docs anew: what commands print in a terminal, and the memory of a simulated GPU.

    python docs/pictures.py [NAME…]       terminal.svg, profile.svg, rehearse.svg, memory.png

The text is what the command printed; times differ from call to call. torch is required, and `make gpu-box` for memory.
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
DOCS = ROOT / "docs"
PROGRAMS = ROOT / "tests" / "programs"
HANGS = PROGRAMS / "hangs" / "barrier_on_rank_0.py"
SLOW = PROGRAMS / "perf" / "bad_slow_disk_on_rank_1.py"
COMMAND = (sys.executable, "-m", "distdbg")
COLUMNS = 100
#: `hang-dump` has found what blocks the job
FINDINGS_OF_SEVERITY_ERROR = 10
TRIES = 60
_COLOUR = r"(?:\x1b\[[\d;]*m)*"


def main() -> None:
    pictures = {"terminal.svg": terminal, "profile.svg": profile, "rehearse.svg": rehearse, "memory.png": memory}
    for name in sys.argv[1:] or pictures:
        with tempfile.TemporaryDirectory() as folder:
            picture = pictures[name](Path(folder))
        (DOCS / name).write_bytes(picture)


def terminal(folder: Path) -> bytes:
    """What hang-dump prints, without its quotes of evidence: one screen."""
    shutil.copy(HANGS, folder)
    launch = [*COMMAND, "launch", "--nodes", "2", "--nproc-per-node", "2", "--show-ranks", "none", HANGS.name]
    job = subprocess.Popen(launch, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_hang(folder)
        text = in_terminal([*COMMAND, "hang-dump"], folder)
    finally:
        job.terminate()
        job.wait()
    return drawn(without_evidence(text), "distdbg hang-dump")


def profile(folder: Path) -> bytes:
    """What profile prints: its findings, the table of ranks and that of lines."""
    shutil.copy(SLOW, folder)
    command = [*COMMAND, "launch", "--nproc-per-node", "4", "--profile", "4:8", SLOW.name]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    text = in_terminal([*COMMAND, "profile", "distdbg-runs/latest"], folder)
    shown = without_evidence(text.partition("\n\n")[2]).partition("operators of rank")[0].rpartition("\n\n")[0]
    return drawn(shown, "distdbg profile")


def rehearse(folder: Path) -> bytes:
    """What rehearse prints of 64 ranks, two of them run, without what fills the devices."""
    for script in (ROOT / "launch").glob("*.py"):
        shutil.copy(script, folder)
    words = [
        "rehearse",
        "--nodes",
        "8",
        "--gpus",
        "8",
        "--gpu-memory",
        "1GiB",
        "--ranks",
        "0,63",
        "fsdp.py",
        "--steps",
        "3",
    ]
    text = in_terminal([*COMMAND, *words], folder)
    shown = text[text.rindex("\n", 0, text.index("rehearsal on")) + 1 :]
    memory, collectives = re.search(rf"\n{_COLOUR}attempts/", shown), re.search(rf"{_COLOUR}Collectives of", shown)
    assert memory and collectives
    return drawn(shown[: memory.start()] + "\n" + shown[collectives.start() :], f"distdbg {' '.join(words)}")


def memory(folder: Path) -> bytes:
    """The memory of rank 0 in two steps of a rehearsal."""
    for script in (ROOT / "launch").glob("*.py"):
        shutil.copy(script, folder)
    command = ["rehearse", "--gpus", "2", "--gpu-memory", "1GiB", "fsdp.py", "--steps", "3"]
    subprocess.run([*COMMAND, *command], cwd=folder, check=True, capture_output=True)
    (snapshot,) = (folder / "distdbg-runs" / "latest").glob("attempts/1/ranks/00000/memory/step-*.pickle.gz")
    subprocess.run([*COMMAND, "memory", "analyze", snapshot, "--png", "memory.png"], cwd=folder, check=True)
    return (folder / "memory.png").read_bytes()


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
    """A picture is one screen: the quotes below `seen`, with paths of this machine, are left out."""
    return re.sub(rf"^{_COLOUR}  {_COLOUR}seen .*\n(?:{_COLOUR} {{7}}.*\n)*", "", text, flags=re.MULTILINE)


def drawn(text: str, title: str) -> bytes:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {title}\n", style="bold"))
    console.print(Text.from_ansi(text.rstrip() + "\n"))  # below the last line there is room for its underscores
    svg = console.export_svg(title=title, unique_id="terminal")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # no font is fetched from the network
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE).encode()


if __name__ == "__main__":
    main()
