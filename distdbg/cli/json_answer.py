"""The option `--json`, and the report that is printed instead of an answer if the command fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import click

_Decorated = TypeVar("_Decorated", bound=Callable[..., object])


@dataclass
class Answer:
    """What the caller of a command wants: the `obj` of its click context. False again once an answer is printed."""

    as_json: bool = False


def json_option(text: str) -> Callable[[_Decorated], _Decorated]:
    return click.option("--json", "as_json", is_flag=True, callback=note_json, help=text)


def note_json(ctx: click.Context, _param: click.Parameter, value: object) -> object:
    answer = ctx.find_object(Answer)
    if answer is not None:
        answer.as_json = value in (True, "json")
    return value


def answered() -> None:
    """The command has printed its JSON: if it fails now, standard output gets no second object."""
    ctx = click.get_current_context(silent=True)
    answer = ctx.find_object(Answer) if ctx is not None else None
    if answer is not None:
        answer.as_json = False


def print_failure(command: str, because: str) -> None:
    """A report of the command that failed: nothing was found, and `unknown` has the reason."""
    from distdbg.collect.runs.known_secrets import known_secrets
    from distdbg.hidden_values import HiddenValues
    from distdbg.model import Report, Unknown
    from distdbg.plain_text import clean
    from distdbg.report.json_form import dumps

    unknown = Unknown(f"the answer of {command}", clean(HiddenValues(known=known_secrets()).mask(because)))
    click.echo(dumps(Report(None, (), unknown=(unknown,))), nl=False)
