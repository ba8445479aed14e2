"""Merge the command line over the job file: one set of settings, each with its origin; all mistakes at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from distdbg.errors import UsageError
from distdbg.settings.job import JobSettings
from distdbg.settings.slurm import SlurmSettings

if TYPE_CHECKING:
    from distdbg.job_file import JobFile

#: (keys, sentence) of each mistake in a part that this module does not know by itself: torchrun's flags, presets.
Checker = Callable[[JobSettings], list[tuple[tuple[str, ...], str]]]
_PROGRAMS = ("script", "module", "command")


def settle(
    given: Mapping[str, Any], job_file: Path | None, check: Checker | None = None
) -> tuple[JobSettings, dict[str, str]]:
    """Settings from a job file and what the command line `given` says over it, with each one's origin.

    Origins are by key; for `env` and `torchrun` also by `env.NAME`. Raises JobFileError that names every mistake with
    its line, UsageError for the command line.
    """
    written: JobFile | None = None
    if job_file is not None:
        from distdbg.job_file import read_job_file

        written = read_job_file(job_file)
        _check_file(written, check)
    values = dict(written.values) if written else {}
    if set(_PROGRAMS) & set(given):
        values = {k: v for k, v in values.items() if k not in (*_PROGRAMS, "args")}
    merged = {**values, **given}
    for nested in ("env", "torchrun", "guards", "slurm"):
        if isinstance(values.get(nested), dict) and nested in given:
            merged[nested] = {**values[nested], **given[nested]}
            for below in (n for n in given[nested] if isinstance(given[nested][n], dict)):
                over = values[nested].get(below)
                merged[nested][below] = {**(over if isinstance(over, dict) else {}), **given[nested][below]}
    try:
        return JobSettings(**merged), _origins(values, given, job_file)
    except ValidationError as error:
        raise UsageError(_command_line_mistake(error), "`distdbg launch --help` shows what it takes.") from None


def _origins(values: Mapping[str, Any], given: Mapping[str, Any], job_file: Path | None) -> dict[str, str]:
    origins: dict[str, str] = {}
    for source, origin in ((values, f"job file {job_file}"), (given, "command line")):
        for key, value in source.items():
            origins[key] = origin
            if key in ("env", "torchrun") and isinstance(value, dict):
                origins |= {f"{key}.{name}": origin for name in value}
    return origins


def _check_file(written: JobFile, check: Checker | None) -> None:
    """Every mistake of the file at once, in the order of its lines."""
    try:
        settings = JobSettings(**written.values)
    except ValidationError as error:
        known = {(): [*JobSettings.model_fields], ("slurm",): [*SlurmSettings.model_fields]}
        raise written.error([written.mistake(e, known) for e in error.errors()]) from None
    if check is not None and (found := check(settings)):
        raise written.error([(written.line(keys), sentence) for keys, sentence in found])


def _command_line_mistake(error: ValidationError) -> str:
    first = error.errors()[0]
    own = [str(part) for part in first["loc"] if part not in ("slurm", "options")]
    field = own[0] if own else ""
    option = f"--{field.replace('_', '-')}: " if field else ""
    message = str(first["msg"]).removeprefix("Value error, ")
    value = first.get("input")
    shown = "" if isinstance(value, dict) or str(value) in message else f", and {value!r} was given"
    return f"{option}{message}{shown}"
