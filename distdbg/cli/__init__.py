"""The command line: one short file a command in `commands/`, loaded only when it is called.

A new command is one file there (`my_command.py` defines `command`); the folder is the list. Its first line,
"`distdbg my-command` (diagnose): what it does.", is its group and its line in `distdbg --help`: no command is imported
for that.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, TextIO

import click

from distdbg.cli import commands
from distdbg.cli.json_answer import Answer, print_failure
from distdbg.errors import (
    EXIT_CODES,
    EXIT_LAUNCHER_BROKE,
    EXIT_OWN_ERROR,
    EXIT_USAGE,
    DistdbgError,
    UsageError,
    process_limit,
)
from distdbg.plain_text import clean, shortened
from distdbg.terminal import guard

#: Of commands, in the order of `distdbg --help`.
GROUPS = ("run", "diagnose", "before the run", "models", "housekeeping")
_HEAD = re.compile(r'"""`distdbg [^`]+` \((?P<group>[a-z ]+)\): (?P<words>.+)\.')
_MORE = """\b
Examples:    distdbg COMMAND --help
Completion:  eval "$(distdbg completion bash)"
"""


class LazyGroup(click.Group):
    """Finds commands by listing their folder; imports one only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(commands.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{commands.__name__}.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        width = max(map(len, names))
        for name in names:
            group, words = head_of(name)
            rows[group].append((name.ljust(width), words))
        for group, own in rows.items():
            with formatter.section(group.capitalize()):
                formatter.write_dl(own)


def head_of(command: str) -> tuple[str, str]:
    """(its group, what it does): the first line of a command's file."""
    path = Path(commands.__path__[0], f"{command.replace('-', '_')}.py")
    with path.open(encoding="utf-8") as file:
        found = _HEAD.match(file.readline())
    assert found is not None, path
    return found["group"], found["words"]


@click.group(cls=LazyGroup, epilog=_MORE, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda c, _p, v: _version(c, v),
    help="Show the versions of distdbg, torch, NCCL, py-spy and the driver, and exit.",
)
def cli() -> None:
    """Launch distributed PyTorch jobs; when one goes wrong, name the rank, the line and the cause."""


def _version(ctx: click.Context, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from distdbg.collect.machine.versions import version_lines

    for line in version_lines():
        click.echo(line)
    ctx.exit()


def main() -> NoReturn:
    """Run a command; every error that a person can meet ends as one sentence and its documented exit code."""
    code = run(None)
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _failed(error, "")
    sys.exit(code)


def run(words: list[str] | None) -> int | str | None:
    """The exit code of the command line, or of `words`: for a command that calls another."""
    guard()
    answer = Answer()
    given = sys.argv[1:] if words is None else words
    try:
        cli.main(given, prog_name="distdbg", standalone_mode=False, obj=answer)
    except SystemExit as end:
        return end.code
    except Exception as error:
        code = _failed(error, next(iter(given), ""))
        if answer.as_json and code in EXIT_CODES and code != EXIT_USAGE:
            because = error.message if isinstance(error, DistdbgError) else "an error of distdbg's own"
            print_failure(f"distdbg {given[0]}", because)
        return code
    return 0


def _failed(error: Exception, command: str) -> int:  # noqa: PLR0911 -- one kind of error a case
    match error:
        case DistdbgError():
            _say(error)
            return error.exit_code
        case click.ClickException():
            _say(UsageError(error.format_message().rstrip("."), _where_help_is(error)))
            return error.exit_code
        case RuntimeError() | BlockingIOError() if (limit := process_limit(error)) is not None:
            _say(limit)  # before a launch has run anything it is a mistake of usage
            return limit.exit_code if command == "launch" else _code_of_own_error(command)
        case click.Abort():
            return 130
        case BrokenPipeError():
            _stop_output(sys.stdout)
            sys.stderr.close()  # `distdbg logs | head` is no error
            return 141
        case OSError(filename=None, errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG | errno.EIO):
            _stop_output(sys.stdout)
            _say(DistdbgError(f"the output cannot be written: {error.strerror}", "Write it to another place."))
            return DistdbgError.exit_code
        case OSError(errno=errno.EAGAIN | errno.EMFILE | errno.ENFILE | errno.ENOMEM):
            return _exhausted(error.strerror or str(error), command)
        case MemoryError():
            return _exhausted("no more memory can be had", command)
        case OSError(errno=errno.ENAMETOOLONG):
            _say(UsageError("a path is longer than the system allows", "Name a shorter one."))
            return UsageError.exit_code
        case FileNotFoundError() if _nowhere():
            _say(UsageError("the folder that this is called from has been removed", "Change to one that is there."))
            return UsageError.exit_code
    return _own_error(error, command)


def _exhausted(why: str, command: str) -> int:
    _say(DistdbgError(f"a limit of this machine or of this user is reached: {why}", "`ulimit -a` shows the limits."))
    return _code_of_own_error(command)


def _code_of_own_error(command: str) -> int:
    return EXIT_LAUNCHER_BROKE if command in ("launch", "attach") else EXIT_OWN_ERROR


def _stop_output(stream: TextIO) -> None:
    """What is still buffered is lost: the interpreter would fail once more when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def _standard_error() -> Iterator[None]:
    """If nothing can be written there, the exit code still says what happened."""
    try:
        yield
    except OSError:
        _stop_output(sys.stderr)


def _where_help_is(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context is not None else "distdbg"
    return f"`{path} --help` shows what it takes."


def _nowhere() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _say(error: DistdbgError) -> None:
    from distdbg.collect.runs.known_secrets import known_secrets
    from distdbg.hidden_values import HiddenValues

    hidden = HiddenValues(known=known_secrets())
    first = click.style("distdbg: ", fg="red", bold=True)
    with _standard_error():
        click.echo(f"{first}{shortened(clean(hidden.mask(error.message)))}", err=True)
        click.echo(f"         {clean(hidden.mask(error.remedy))}", err=True)


def _own_error(error: Exception, command: str) -> int:
    import traceback

    with _standard_error():
        traceback.print_exception(error)
        click.echo("distdbg: this is an error of distdbg's own; please report it with the lines above.", err=True)
    return _code_of_own_error(command)
