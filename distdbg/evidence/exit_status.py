"""Interpret the exit status of a process: the only place that knows its values and how they are written."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

#: The last real-time signal of Linux.
_MOST_SIGNAL = 64


def exit_status(record: Mapping[str, Any], name: str = "exit_code") -> int | None:
    """The status as subprocess has it: 0 to 255, or -N after signal N. None where it is missing or impossible."""
    value = record.get(name)
    return value if type(value) is int and -_MOST_SIGNAL <= value <= 255 else None


def implausible(record: Mapping[str, Any], name: str = "exit_code") -> str:
    """What is wrong with a status that is there; empty where it is none or can be one."""
    value = record.get(name)
    if value is None or exit_status(record, name) is not None:
        return ""
    return f"its record says {value}, and no process ends with that"


def shell_code(status: int) -> int:
    """The code as a shell has it: 128+N after signal N."""
    return status if status >= 0 else 128 - status


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def how_it_ended(status: int) -> str:
    """`SIGKILL` or `exit code 3`."""
    return signal_name(-status) if status < 0 else f"exit code {status}"
