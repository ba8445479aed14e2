"""Options and values that several commands take."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from distdbg.backend_names import AUTO, backend_names
from distdbg.errors import UsageError
from distdbg.rundir import refuse_unreadable
from distdbg.whole_file import refuse_odd_target

_Decorated = TypeVar("_Decorated", bound=Callable[..., object])


class BackendChoice(click.Choice):  # type: ignore[type-arg]  # generic from click 8.2 on
    """Looks for the backends when it is asked for them: other commands do not wait for it."""

    def __init__(self) -> None:
        self.case_sensitive = True

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        return (AUTO, *backend_names())


class SecondsRange(click.FloatRange):
    """A number of seconds within bounds. Click takes `nan` for a number that no bound excludes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        if isinstance(value, str) and value.strip().lower().lstrip("+-") == "nan":
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return super().convert(value, param, ctx)


class EvidencePath(click.Path):
    """A file or folder that is analysed. One that may not be read is no mistake of usage: exit code 4."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        super().__init__(path_type=Path, readable=False, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        refuse_unreadable(value)
        return super().convert(value, param, ctx)


#: The first bytes of what an output option writes, in lower case.
_BEGINS = {
    "page": (b"<!doctype html", b"<html"),
    "archive": (b"pk\x03\x04", b"pk\x05\x06"),
    "picture": (b"<svg", b"<?xml", b"\x89png"),
}


class OutputFile(click.Path):
    """A new file, an empty one, or a regular one of the same kind that is replaced. Anything else, such as a log that a
    pattern put in its place, is refused before any work."""

    def __init__(self, kind: str) -> None:
        super().__init__(path_type=Path, dir_okay=False)
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        path = Path(str(super().convert(value, param, ctx)))
        try:
            if refuse_odd_target(path) is not None and not self._is_replaced(path):
                self.fail(f"{str(path)!r} is not written to: it exists and is not {self._words}", param, ctx)
        except OSError as error:
            self.fail(f"{str(path)!r} is not written to: {error.strerror}", param, ctx)
        return path

    @property
    def _words(self) -> str:
        return f"an {self._kind}" if self._kind[0] in "aeiou" else f"a {self._kind}"

    def _is_replaced(self, path: Path) -> bool:
        with path.open("rb") as file:
            begin = file.read(16).lower()
        return not begin or begin.startswith(_BEGINS[self._kind])


class _OutputOption(click.Option):
    """Refuses a path that leads, by whatever links, to a file that the same command line names or writes, or to a run's
    own."""

    def handle_parse_result(self, ctx: click.Context, opts: Any, args: list[str]) -> tuple[Any, list[str]]:  # noqa: ANN401
        value, rest = super().handle_parse_result(ctx, opts, args)
        if not isinstance(value, Path):
            return value, rest
        outputs = {param.name for param in ctx.command.params if isinstance(param, _OutputOption)} - {self.name}
        if any(value.resolve() == Path(given).resolve() for name, given in opts.items() if name in outputs and given):
            raise UsageError(f"{str(value)!r} is named for two outputs", "Name two paths.")
        if value.exists():
            others = [given for name, given in opts.items() if name != self.name]
            inputs = [word for given in others for word in (given if isinstance(given, (list, tuple)) else [given])]
            if any(_is_same_file(word, value) for word in inputs) or _is_record_of_run(value):
                raise UsageError(f"{str(value)!r} is not written to: it is an input", "Name another path.")
        return value, rest


def _is_same_file(word: object, path: Path) -> bool:
    try:
        return isinstance(word, str) and path.samefile(word)
    except (OSError, ValueError):  # it is no file, but the id of a run, or a pattern
        return False


def _is_record_of_run(path: Path) -> bool:
    """Whether it is in the folders of a run that distdbg itself writes and reads."""
    real = path.resolve()
    return any(
        folder.name in ("attempts", "report") and (folder.parent / "job.json").exists() for folder in real.parents
    )


def output_option(option: str, name: str, kind: str, metavar: str, text: str) -> Callable[[_Decorated], _Decorated]:
    """An option that names a file to write."""
    return click.option(option, name, cls=_OutputOption, type=OutputFile(kind), metavar=metavar, help=text)


html_option = output_option("--html", "html_path", "page", "PATH", "Write the HTML page to PATH as well.")
run_argument = click.argument("run", required=False)


def ranks_of(option: str, text: str | None) -> frozenset[int] | None:
    """The ranks of `0,3` or `0-3`; None for all. Raises UsageError."""
    from distdbg.model import unfold_ranks

    if text is None:
        return None
    why = f"{text!r} names a rank that no job has" if re.search(r"\d{8}", text) else "it names no rank"
    try:
        ranks = () if re.search(r"\d{8}", text) else unfold_ranks(text)
    except ValueError as error:
        ranks, why = (), str(error)
    if not ranks:
        raise UsageError(f"{option}: {why}", "Write ranks as 3, 0-7 or 0,4-6.")
    return frozenset(ranks)
