"""What `distdbg launch` can be told, by the command line or by a job file: one model, one docstring a field.

Command line over job file over preset. A job file is YAML:

    script: train.py
    args: [--lr, 1e-3]
    nodes: 2
    presets: [debug]
    env: {NCCL_SOCKET_IFNAME: ib0}
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from distdbg.errors import JobFileError, UsageError
from distdbg.model import unfold_ranks

#: More ranks than this on one machine is a slip of the keyboard.
MOST_RANKS_A_NODE = 4096
MOST_NODES = 100_000


class JobSettings(BaseModel):
    """Everything one launch can be told. Unset torchrun flags are torchrun's business and stand in `torchrun`."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    script: str | None = None
    """Python script to run on every rank; exactly one of script, module and command."""
    module: str | None = None
    """Module to run as with `python -m`."""
    command: str | None = None
    """Program that is no Python script (`--no-python`); it has no worker side."""
    args: list[str] = Field(default_factory=list)
    """Arguments of the program, as it gets them."""
    name: str | None = None
    """Name of the run, for its directory; by default that of the program."""
    nodes: int = Field(1, ge=1, le=MOST_NODES)
    """Number of nodes; `local` runs one torchrun for each on this machine."""
    nproc_per_node: int | Literal["auto", "gpu", "cpu"] = "auto"
    """Ranks on each node. auto: the node's GPUs, 1 where it has none (torchrun's auto is its CPU count there)."""
    on: Literal["auto", "local"] = "auto"
    """Where: auto finds out, local is this machine."""
    presets: list[str] = Field(default_factory=list)
    """Named sets of environment variables beside `default`; `distdbg env` explains them."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables for the ranks; over the presets, over what is inherited."""
    show_ranks: str = "0"
    """Whose output the terminal shows: ranks such as 0-3,8, all, or none."""
    capture: bool = True
    """Keep each rank's output in the run directory; off gives the ranks the terminal, for breakpoint()."""
    worker_side: Literal["on", "off"] = "on"
    """distdbg's code inside the ranks; off starts plain ranks."""
    run_dir: Path | None = None
    """Directory for this run, which must not exist; by default a new one in ./distdbg-runs."""
    grace: float = Field(30.0, ge=0, le=86400)
    """Seconds between SIGTERM and SIGKILL when the job is ended."""
    on_finding: str | None = None
    """Shell command that gets report.json on standard input when there is a finding."""
    torchrun: dict[str, str] = Field(default_factory=dict)
    """torchrun's own flags by dashed name; a switch has an empty value."""

    @field_validator("nproc_per_node", mode="before")
    @classmethod
    def _number_of_ranks(cls, value: object) -> object:
        if isinstance(value, str) and value.lstrip("-").isdigit():
            value = int(value)
        if isinstance(value, int) and not 1 <= value <= MOST_RANKS_A_NODE:
            raise ValueError(f"{value} ranks on a node cannot be; it is 1 to {MOST_RANKS_A_NODE}, auto, gpu or cpu")
        if isinstance(value, str) and value not in ("auto", "gpu", "cpu"):
            raise ValueError(f"{value!r} is neither a number nor auto, gpu or cpu")
        return value

    @field_validator("show_ranks", mode="before")
    @classmethod
    def _ranks(cls, value: object) -> object:
        if value not in ("all", "none"):
            unfold_ranks(str(value))
        return str(value)

    @field_validator("args", mode="before")
    @classmethod
    def _words(cls, value: object) -> object:
        """YAML reads 1e-3 as a number or a word, as it likes; an argument is a word."""
        return [str(v) if isinstance(v, (int, float)) else v for v in value] if isinstance(value, list) else value

    @field_validator("env", "torchrun", mode="before")
    @classmethod
    def _texts(cls, value: object) -> object:
        plain = (int, float)
        return (
            {k: str(v) if isinstance(v, plain) else v for k, v in value.items()} if isinstance(value, dict) else value
        )

    @model_validator(mode="after")
    def _one_program(self) -> JobSettings:
        if sum(p is not None for p in (self.script, self.module, self.command)) > 1:
            raise ValueError("name one program: script, module or command")
        return self

    @property
    def program(self) -> str:
        """The program's own word; raises UsageError where none was named."""
        program = self.script or self.module or self.command
        if not program:
            raise UsageError("no script was named", "distdbg launch [OPTIONS] SCRIPT [ARGS…]")
        return program


def settle(given: Mapping[str, Any], job_file: Path | None) -> tuple[JobSettings, dict[str, str]]:
    """Settings from a job file and what the command line `given` says over it, with each one's origin.

    Raises JobFileError with the file's line, UsageError for the command line.
    """
    lines: dict[tuple[str, ...], int] = {}
    values: dict[str, Any] = {}
    if job_file is not None:
        values = read_job_file(job_file, lines)
    origins = dict.fromkeys(values, f"job file {job_file}") | dict.fromkeys(given, "command line")
    if {"script", "module", "command"} & set(given):
        values = {k: v for k, v in values.items() if k not in ("script", "module", "command", "args")}
    merged = {**values, **given}
    for nested in ("env", "torchrun"):
        if isinstance(values.get(nested), dict) and nested in given:
            merged[nested] = {**values[nested], **given[nested]}
    try:
        return JobSettings(**merged), origins
    except ValidationError as error:
        raise _explain(error, given, lines, job_file) from None


def _explain(
    error: ValidationError, given: Mapping[str, Any], lines: Mapping[tuple[str, ...], int], job_file: Path | None
) -> UsageError:
    first = error.errors()[0]
    place = tuple(str(p) for p in first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    field = place[0] if place else ""
    if job_file is not None and field not in given:
        line = next((lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in lines), 0)
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(field, JobSettings.model_fields, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Keys are {', '.join(JobSettings.model_fields)}."
            return JobFileError(str(job_file), line, f"there is no key {field!r}", hint)
        value = first.get("input")
        return JobFileError(str(job_file), line, f"{'.'.join(place)}: {message}, and {value!r} was found")
    option = f"--{field.replace('_', '-')}: " if field else ""
    value = first.get("input")
    shown = "" if isinstance(value, dict) or str(value) in message else f", and {value!r} was given"
    return UsageError(f"{option}{message}{shown}")


def read_job_file(path: Path, lines: dict[tuple[str, ...], int]) -> dict[str, Any]:
    """The mapping in a YAML file; fills `lines` with the 1-based line of each key. Raises JobFileError."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise JobFileError(str(path), 0, f"it is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise JobFileError(str(path), 0, f"it cannot be read: {error.strerror}") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise JobFileError(str(path), 0, "it is empty", "A job file needs at least `script:`.")
        if not isinstance(node, yaml.MappingNode):
            raise JobFileError(str(path), node.start_mark.line + 1, "a job file is a mapping: `key: value` lines")
        for keys, line, doubled in _keys(node, ()):
            if doubled:
                raise JobFileError(str(path), line, f"the key {'.'.join(keys)!r} stands here for the second time")
            lines[keys] = line
        values = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise JobFileError(str(path), mark.line + 1 if mark else 0, f"it is not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise JobFileError(str(path), 0, f"it is not YAML: {error}") from None
    finally:
        loader.dispose()
    return {str(key): value for key, value in values.items()}


def _keys(node: yaml.MappingNode, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int, bool]]:
    """(path of a key, its line, whether it stood there before), depth first."""
    seen: set[str] = set()
    for key, value in node.value:
        keys = (*above, str(key.value))
        yield keys, key.start_mark.line + 1, keys[-1] in seen
        seen.add(keys[-1])
        if isinstance(value, yaml.MappingNode):
            yield from _keys(value, keys)
