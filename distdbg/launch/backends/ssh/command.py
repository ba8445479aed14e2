"""A command on another host through the user's own OpenSSH client and configuration. Pure."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence

#: What no login shell (sh, csh, fish) changes between single quotes.
_PLAIN = re.compile(rb"[ -~]")
_NOT_PLAIN = rb"'\!"
#: No question is asked that nobody is there to answer, and a host that is off shows in seconds.
OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")


def ssh_command(host: str, argv: Sequence[str], env: Mapping[str, str], options: Sequence[str] = ()) -> list[str]:
    """The local command line that runs `argv` on `host` with `env` added to the environment that it finds there.

    Every word arrives as it is, bytes that are no UTF-8 included, whatever the login shell. Options of ssh's own (`-F
    file`) go before ours: ssh takes the first of each. What stands in `env` can be seen by others in the process list.
    """
    words = ["exec", *(["env", *(f"{name}={value}" for name, value in env.items())] if env else []), *argv]
    script = " ".join(word if word == "exec" else shlex.quote(word) for word in words)
    # The login shell sees plain characters alone; sh puts the others back and reads the words.
    remote = f"exec /bin/sh -c 'eval \"$(printf %b \"$0\")\"' '{_plain(script)}'"
    return ["ssh", *options, *OPTIONS, "--", host, remote]


def _plain(script: str) -> str:
    """For printf's %b: what a shell could change is written as octal."""
    return "".join(
        chr(byte) if _PLAIN.match(bytes([byte])) and byte not in _NOT_PLAIN else f"\\0{byte:03o}"
        for byte in os.fsencode(script)
    )
