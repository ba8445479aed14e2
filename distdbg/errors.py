"""Every error that a person can meet, its exit code, and what to do about it.

    DistdbgError                 1   an error of ours, or no better name
    ├── UsageError               2   the command line, the job file or the environment is wrong; nothing ran
    │   ├── JobFileError         2   … with the file and the line
    │   └── CannotStart          2   the nodes are not as they have to be, found out before a rank ran
    ├── NothingToAnalyse         3
    ├── ToolMissing              4   a tool is missing or not permitted
    ├── EvidenceUnreadable       5
    └── Refused                  6   it could not be done faithfully

`launch` and `attach` return the job's own exit code; beside it only HUNG, LOST, USAGE and OURS below.
Analysis commands exit with FINDINGS when they found something of severity error, and with UNDECIDED when the job failed
or hangs, or evidence is lost, and they could not find out why; also when a log shows no failure and no end of the job.
"""

from __future__ import annotations

import errno

EXIT_OK = 0
EXIT_OWN_ERROR = 1
EXIT_USAGE = 2
EXIT_NOTHING = 3
EXIT_TOOL_MISSING = 4
EXIT_UNREADABLE = 5
EXIT_REFUSED = 6
EXIT_FINDINGS = 10
EXIT_UNDECIDED = 11
#: launch, attach: an error of ours (analysis commands use 1)
EXIT_LAUNCHER_BROKE = 70
#: launch, attach: the job was hung and was ended
EXIT_HUNG = 75
#: launch, attach: this side lost sight of the job, which may still run
EXIT_LOST = 76
#: as a shell reports Ctrl-C
EXIT_INTERRUPTED = 130

#: What each code means, for `--help`, the docs and the last line of a run.
EXIT_CODES: dict[int, str] = {
    EXIT_OK: "nothing found; for launch: every rank succeeded",
    EXIT_OWN_ERROR: "an error of distdbg's own",
    EXIT_USAGE: "usage: nothing ran",
    EXIT_NOTHING: "nothing to analyse",
    EXIT_TOOL_MISSING: "a tool is missing or not permitted",
    EXIT_UNREADABLE: "evidence unreadable",
    EXIT_REFUSED: "refused, because it could not be done faithfully",
    EXIT_FINDINGS: "findings of severity error",
    EXIT_UNDECIDED: "something is or may be wrong, and the evidence does not decide what",
    EXIT_LAUNCHER_BROKE: "launch: an error of distdbg's own",
    EXIT_HUNG: "launch: the job was hung and was ended",
    EXIT_LOST: "launch: lost sight of the job, which may still run",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C; preflight: also by SIGTERM",
}


class DistdbgError(Exception):
    """What was wrong (`message`) and what to do next (`remedy`), one sentence each."""

    exit_code = EXIT_OWN_ERROR

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}"


class UsageError(DistdbgError):
    exit_code = EXIT_USAGE


class JobFileError(UsageError):
    """A mistake in a YAML file of the user's; `line` is 1-based, 0 where no line can be named."""

    def __init__(self, path: str, line: int, message: str, remedy: str) -> None:
        super().__init__(f"{path}:{line}: {message}" if line else f"{path}: {message}", remedy)
        self.path = path
        self.line = line


class CannotStart(UsageError):
    """The nodes that were asked for do not come up, do not see the run directory, or do not reach each other."""


def process_limit(error: Exception) -> CannotStart | None:
    """Return the error that a person can meet if the system started no more processes or threads, else None."""
    no_process = isinstance(error, BlockingIOError) and error.errno == errno.EAGAIN
    no_process = no_process and not hasattr(error, "characters_written")  # a full stream that does not block
    if not no_process and not (isinstance(error, RuntimeError) and str(error) == "can't start new thread"):
        return None
    return CannotStart(
        f"no more processes or threads can be started: {getattr(error, 'strerror', None) or error}",
        "Raise `ulimit -u` or the limit of the container or control group (pids.max), or end other processes.",
    )


class NothingToAnalyse(DistdbgError):
    exit_code = EXIT_NOTHING


def install_extra(name: str) -> str:
    """The command for an optional part: no package index has distdbg."""
    return f"`pip install '.[{name}]'` in the clone of distdbg"


class ToolMissing(DistdbgError):
    exit_code = EXIT_TOOL_MISSING


class EvidenceUnreadable(DistdbgError):
    exit_code = EXIT_UNREADABLE


class Refused(DistdbgError):
    exit_code = EXIT_REFUSED
