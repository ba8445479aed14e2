"""--on-finding: run the user's shell command with the report. It may take its time, and does not outlive the launch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from distdbg.launch.io import processes
from distdbg.launch.io.loop import handled

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: From SIGTERM to SIGKILL.
_ENDS_WITHIN_S = 2.0
#: In a session of its own. Beside the command somebody reads a pipe that only we can write: a line is its leave to go,
#: the pipe's end our death, however we died.
_BESIDE = """exec 3<&0
(trap '' TERM; read -r _ <&3 || kill -9 0) >/dev/null 2>&1 &
exec 3<&- /bin/sh -c "$0" <"$1"
"""


def tell_finding(command: str, report_json: Path) -> None:
    """The command gets the report on standard input. In the main thread a signal that would end us ends the command."""
    signals: list[int] = []
    with handled(_STOP_SIGNALS, lambda number, _: signals.append(number)):
        try:
            report_json.open("rb").close()
            process, ours = _start(command, report_json)
        except OSError as error:
            _say(f"{command!r} was not called: {error.strerror}")
            return
        while not signals and _runs(process, 0.1):
            pass
        if signals:
            processes.kill_group(process.pid, signal.SIGTERM)
            _runs(process, _ENDS_WITHIN_S)
        else:
            with contextlib.suppress(OSError):
                os.write(ours, b"\n")
        os.close(ours)
    if signals:
        process.kill()
        process.wait()
        _say(f"{command!r} was ended by {signal.Signals(signals[0]).name}")
    elif process.returncode:
        _say(f"{command!r} ended with exit code {process.returncode}")


def _start(command: str, report_json: Path) -> tuple[subprocess.Popen[bytes], int]:
    reader, writer = os.pipe()
    words = ["/bin/sh", "-c", _BESIDE, command, str(report_json.absolute())]
    try:
        return subprocess.Popen(words, stdin=reader, start_new_session=True), writer
    except OSError:
        os.close(writer)
        raise
    finally:
        os.close(reader)


def _runs(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it still runs after so long."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.returncode is None


def _say(text: str) -> None:
    os.write(2, f"distdbg: --on-finding {text}\n".encode("utf-8", "backslashreplace"))
