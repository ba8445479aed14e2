"""What `distdbg launch` can be told, by the command line or by a job file: one model, one docstring a field.

Command line over job file over preset. A job file is YAML:

    script: train.py
    args: [--lr, 1e-3]
    nodes: 2
    presets: [debug]
    env: {NCCL_SOCKET_IFNAME: ib0}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from distdbg.errors import UsageError
from distdbg.model import unfold_ranks

if TYPE_CHECKING:
    from distdbg.job_file import JobFile

#: More ranks than this on one machine is a slip of the keyboard.
MOST_RANKS_A_NODE = 4096
MOST_NODES = 100_000
#: Seconds without progress: ranks are looked at once a second, and a month is no timeout any more.
SHORTEST_TIMEOUT = 2
LONGEST_TIMEOUT = 30 * 86400
#: Each is a file a rank.
MOST_SNAPSHOTS = 100
#: What stands for a number of ranks; the number is found where the ranks run.
SKIP_WORDS = ("all", "all-but-last")
RANK_WORDS = ("auto", "gpu", "cpu", "xpu")

_RANKS_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST_RANKS_A_NODE}, {"enum": list(RANK_WORDS)}]
}


def _timeout_schema(*words: str) -> dict[str, Any]:
    return {"anyOf": [{"type": "number", "minimum": SHORTEST_TIMEOUT, "maximum": LONGEST_TIMEOUT}, {"enum": [*words]}]}


def _text(value: object) -> object:
    """Plain values of YAML as the text of a word or a variable: true is true, and not Python's True."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


class SlurmSettings(BaseModel):
    """What a job asks of Slurm, and what becomes of it there. Unset options are the site's defaults."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, title="A job's Slurm options")

    partition: str | None = None
    """Partition to run in. Default: the site's."""
    time: str | None = None
    """Time limit, as sbatch takes it: minutes, HH:MM:SS, D-HH. Default: the partition's."""
    account: str | None = None
    """Account to charge. Default: the user's own."""
    qos: str | None = None
    """Quality of service. Default: the account's."""
    gpus_per_node: str | None = None
    """GPUs of each node: a number, or TYPE:NUMBER. Default: none are asked for."""
    constraint: str | None = None
    """Features that the nodes must have. Default: none."""
    container_image: str | None = None
    """Image that the nodes' agents run in, passed to srun as the pyxis plugin takes it; Python, torch and distdbg must
    be in it, at the same paths. Default: no container."""
    options: dict[str, str] = Field(default_factory=dict)
    """More of sbatch's options by their long name, as in `mem: 64G`; a switch is true."""
    template: Path | None = None
    """Template of the batch script (jinja2). Default: the one that ships, slurm/job.sbatch."""
    signal_before: int = Field(default=120, ge=30, le=86400)
    """Seconds before the time limit, or at a preemption that is announced, at which the job is warned. Default: 120."""
    on_preempt: Literal["signal", "checkpoint-file", "nothing"] = "signal"
    """How ranks are warned: SIGUSR1 to those that handle it, a file that DISTDBG_CHECKPOINT_FILE names, or not at all.
    Default: signal."""
    max_requeues: int = Field(default=0, ge=0, le=1000)
    """How often a job that was warned goes back into the queue, to run on as its next attempt. Default: 0."""
    exclude_culprit: bool = False
    """Leave the node out that the verdict names, when the job goes back into the queue. Default: false."""

    @field_validator("partition", "time", "account", "qos", "gpus_per_node", "constraint", "container_image",
                     mode="before")  # fmt: skip
    @classmethod
    def _word(cls, value: object) -> object:
        text = _text(value)
        if isinstance(text, str) and (not text or not text.isprintable()):
            raise ValueError(f"{text!r} is no value that sbatch could take")
        return text

    @field_validator("options", mode="before")
    @classmethod
    def _options(cls, value: object) -> object:
        """A switch that is true has an empty value, one that is false is not there."""
        if not isinstance(value, dict):
            return value
        pairs = {str(name).lstrip("-").replace("_", "-"): text for name, text in value.items()}
        bad = next((n for n, t in pairs.items() if not re.fullmatch(r"[a-z][a-z0-9-]*", n) or
                    not str(t).isprintable()), None)  # fmt: skip
        if bad is not None:
            raise ValueError(f"{bad!r}: {pairs[bad]!r} is no long option of sbatch with its value")
        return {name: "" if text is True else _text(text) for name, text in pairs.items() if text is not False}

    @property
    def container(self) -> dict[str, str]:
        """Options of pyxis, by their long names: they are srun's, and not sbatch's."""
        named = {"container-image": self.container_image} if self.container_image else {}
        return named | {name: value for name, value in self.options.items() if name.startswith("container-")}


class JobSettings(BaseModel):
    """Everything one launch can be told. Unset torchrun flags are torchrun's business and stand in `torchrun`."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, title="A job file of distdbg launch")

    script: str | None = None
    """Python script to run on every rank, from the current folder; exactly one of script, module and command."""
    module: str | None = None
    """Module to run on every rank as with `python -m`."""
    command: str | None = None
    """Program that is no Python script (`--no-python`), by path or on PATH; it has no worker side."""
    args: list[str] = Field(default_factory=list)
    """Arguments of the program, word by word, as it gets them."""
    name: str | None = Field(None, min_length=1, max_length=200)
    """Name of the run, for its directory. Default: that of the program."""
    nodes: int = Field(1, ge=1, le=MOST_NODES)
    """Number of nodes; `local` runs one torchrun for each on this machine. Default: 1."""
    nproc_per_node: int | str = Field("auto", json_schema_extra=_RANKS_SCHEMA)
    """Ranks on each node: a number, or auto (the node's GPUs, 1 where it has none), gpu, cpu (the CPUs that this
    process may use) or xpu. torchrun's own auto is the number of CPUs where there is no GPU. Default: auto."""
    on: Literal["auto", "local", "slurm", "ssh"] = "auto"
    """Where to run: local is this machine; slurm runs in the allocation that this is, or submits a batch job; ssh runs
    on the hosts that are named; auto is slurm within an allocation, and where several nodes are asked for and Slurm
    answers. Default: auto."""
    hosts: list[str] = Field(default_factory=list)
    """Hosts to reach by ssh, one node each, as your own ~/.ssh/config knows them. Default: none."""
    slurm: SlurmSettings = Field(default=SlurmSettings())
    """What the job asks of Slurm."""
    presets: list[str] = Field(default_factory=list)
    """Named sets of environment variables beside `default`; later ones win. `distdbg env` explains them."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables for the ranks, NAME: value; over the presets, over what is inherited."""
    show_ranks: str = "0"
    """Whose output the terminal shows: ranks such as 0-3,8, or all, or none. Default: 0."""
    capture: bool = True
    """Keep each rank's output in the run directory; false gives the ranks the terminal, for breakpoint().
    Default: true."""
    worker_side: Literal["on", "off"] = "on"
    """distdbg's code inside the ranks; off starts plain ranks. Default: on."""
    guards: dict[str, str] = Field(default_factory=dict)
    """What each guard does, ID: off, warn, fix or error; `all: off` silences them. `distdbg guards` lists them."""
    memory: bool = False
    """Write down what memory does, step by step; record CUDA's allocations; take snapshots when memory runs out and on
    request. Costs under 0.5 % of a 50 ms step, 2 % of a 0.5 ms one. Default: false."""
    watch: Literal["numerics"] | None = None
    """What of the training's numbers is watched. numerics: the first module whose output or gradient is not finite,
    with its step, its rank and what went into it. Default: nothing."""
    memory_steps: str | None = None
    """Steps of the optimizer at whose end each rank takes a memory snapshot, FIRST:LAST, at most 100 of them.
    Default: none."""
    run_dir: Path | None = None
    """Directory for this run, which must not exist. Default: a new one in ./distdbg-runs."""
    grace: float = Field(30.0, ge=0, le=86400)
    """Seconds between SIGTERM and SIGKILL when the job is ended. Default: 30."""
    hang_timeout: float | Literal["auto", "off"] = Field("auto", json_schema_extra=_timeout_schema("auto", "off"))
    """Seconds without any progress of any rank after which the job is looked at as hung: a number, auto (learnt from
    the job's own steps, at least 60), or off. Default: auto."""
    startup_timeout: float | Literal["auto"] = Field("auto", json_schema_extra=_timeout_schema("auto"))
    """The same before the first step or collective: a number, or auto (1200, or 80 % of the smallest timeout of a
    process group where that is less). Default: auto."""
    on_hang: Literal["report", "kill", "restart"] = "report"
    """What to do once a hang is captured and explained: report lets the job live, kill ends it with exit code 75,
    restart starts it again, as often as torchrun's max-restarts says, else once. Default: report."""
    keep_layers: int | None = Field(None, ge=1, le=100_000)
    """Build only the first N layers of each stack of a transformers model, more where a kind of layer comes later.
    Changes what is computed: for reproducing a problem, not for training. Default: all."""
    full_load: bool = False
    """With keep_layers: load and wrap all layers, but let those that are not kept pass on what they get. Memory,
    gradients, optimizer states and collectives are the full model's. Default: false."""
    skip_attention: str | None = None
    """Leave attention out, with its shapes, memory and gradients as they were: all, all-but-last, or the first N
    layers. Changes what is computed. Default: none."""
    on_finding: str | None = None
    """Shell command that gets report.json on standard input when there is a finding. Default: none."""
    torchrun: dict[str, str] = Field(default_factory=dict)
    """torchrun's own flags by their long name, as in `max-restarts: 3`; a switch is true."""

    @field_validator("nproc_per_node", mode="before")
    @classmethod
    def _number_of_ranks(cls, value: object) -> object:
        if isinstance(value, str) and value.lstrip("-").isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise ValueError("a number is expected, or auto, gpu, cpu or xpu")  # noqa: TRY004 -- pydantic takes this one
        if isinstance(value, int) and not 1 <= value <= MOST_RANKS_A_NODE:
            raise ValueError(f"{value} ranks on a node cannot be; it is 1 to {MOST_RANKS_A_NODE}, auto, gpu or cpu")
        if isinstance(value, str) and value not in RANK_WORDS:
            raise ValueError(f"{value!r} is neither a number nor one of {', '.join(RANK_WORDS)}")
        return value

    @field_validator("skip_attention", mode="before")
    @classmethod
    def _layers(cls, value: object) -> object:
        text = _text(value)
        if text is None or text in SKIP_WORDS or (isinstance(text, str) and text.isdecimal() and int(text) > 0):
            return text
        raise ValueError(f"a number of layers is expected, or {' or '.join(SKIP_WORDS)}")

    @field_validator("memory_steps", mode="before")
    @classmethod
    def _steps(cls, value: object) -> object:
        if value is None:
            return None
        first, _, last = str(value).partition(":")
        last = last or first
        if not (first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < int(first) + MOST_SNAPSHOTS):
            raise ValueError(f"FIRST:LAST is expected, from 1 on and at most {MOST_SNAPSHOTS} steps, as in 10:12")
        return f"{int(first)}:{int(last)}"

    @field_validator("hang_timeout", "startup_timeout", mode="before")
    @classmethod
    def _seconds(cls, value: object, info: ValidationInfo) -> object:
        """YAML reads `off` as false."""
        words = ("auto", "off") if info.field_name == "hang_timeout" else ("auto",)
        value = "off" if value is False else value
        if isinstance(value, str) and value in words:
            return value
        try:
            seconds = float(value) if isinstance(value, (str, int, float)) and value is not True else None
        except ValueError:
            seconds = None
        if seconds is None or seconds != seconds:  # noqa: PLR0124 -- not a number is unequal to itself
            raise ValueError(f"a number of seconds is expected, or {' or '.join(words)}")
        if not SHORTEST_TIMEOUT <= seconds <= LONGEST_TIMEOUT:
            raise ValueError(f"{seconds:g} s cannot be; it is {SHORTEST_TIMEOUT} to {LONGEST_TIMEOUT}, or {words[-1]}")
        return seconds

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
        return [_text(v) for v in value] if isinstance(value, list) else value

    @field_validator("guards", mode="before")
    @classmethod
    def _modes(cls, value: object) -> object:
        """YAML reads `off` as false."""
        return {k: "off" if v is False else v for k, v in value.items()} if isinstance(value, dict) else value

    @field_validator("env", mode="before")
    @classmethod
    def _variables(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        bad = next((n for n in value if not str(n) or "=" in str(n)), None)
        if bad is not None:
            raise ValueError(f"{bad!r} cannot be the name of a variable")
        return {str(name): _text(text) for name, text in value.items()}

    @field_validator("script", "module", "command", "args", "env", "name", "torchrun", "on_finding")
    @classmethod
    def _passable(cls, value: object) -> object:
        """What a process can be given: a NUL ends a word, and half of a surrogate pair has no bytes."""
        words = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else [value]
        for word in (w for w in words if isinstance(w, str)):
            try:
                good = b"\0" not in word.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                good = False
            if not good:
                raise ValueError(f"{word!r} holds a character that no command line can carry")
        return value

    @field_validator("torchrun", mode="before")
    @classmethod
    def _flags(cls, value: object) -> object:
        """A switch that is true has an empty value, one that is false is not there."""
        if not isinstance(value, dict):
            return value
        pairs = ((str(name).lstrip("-").replace("_", "-"), text) for name, text in value.items())
        return {name: "" if text is True else _text(text) for name, text in pairs if text is not False}

    @model_validator(mode="after")
    def _one_program(self) -> JobSettings:
        if sum(p is not None for p in (self.script, self.module, self.command)) > 1:
            raise ValueError("name one program: script, module or command")
        return self

    @model_validator(mode="after")
    def _shrinkable(self) -> JobSettings:
        if (self.keep_layers or self.skip_attention) and (self.worker_side == "off" or self.command):
            raise ValueError("keep_layers and skip_attention need distdbg's code inside the ranks: a Python script, "
                             "and worker_side on")  # fmt: skip
        if self.full_load and not self.keep_layers:
            raise ValueError("full_load needs keep_layers: which layers are to run")
        return self

    @model_validator(mode="after")
    def _watchable(self) -> JobSettings:
        if (self.memory or self.memory_steps or self.watch) and (self.worker_side == "off" or self.command):
            raise ValueError("memory, memory_steps and watch need distdbg's code inside the ranks: a Python script, "
                             "and worker_side on")  # fmt: skip
        return self

    @property
    def program(self) -> str:
        """The program's own word; raises UsageError where none was named."""
        program = self.script or self.module or self.command
        if not program:
            raise UsageError("no script was named", "distdbg launch [OPTIONS] SCRIPT [ARGS…]")
        return program


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
        raise UsageError(_command_line_mistake(error)) from None


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
