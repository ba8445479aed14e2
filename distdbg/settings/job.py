"""The settings of one launch: each field has one docstring, which is its text in the schema and in the docs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from distdbg.errors import UsageError
from distdbg.settings.slurm import SlurmSettings
from distdbg.settings.values import (
    BACKENDS_SCHEMA,
    MOST_NODES,
    RANKS_SCHEMA,
    WATCH_SCHEMA,
    few_steps,
    flags,
    known_backend,
    modes,
    number_of_layers,
    number_of_ranks,
    passable,
    plain_words,
    profiled_ranks,
    seconds,
    shown_ranks,
    timeout_schema,
    variables,
    watch_levels,
)


class JobSettings(BaseModel):
    """The settings of one launch. Other flags of torchrun are given in `torchrun`."""

    model_config = ConfigDict(extra="forbid", title="A job file of distdbg launch")

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
    nproc_per_node: int | str = Field("auto", json_schema_extra=RANKS_SCHEMA)
    """Ranks on each node: a number, or auto (the node's GPUs, 1 where it has none), gpu, cpu (the CPUs that this
    process may use) or xpu. torchrun's own auto is the number of CPUs where there is no GPU. Default: auto."""
    on: Annotated[str, BeforeValidator(known_backend), WithJsonSchema(BACKENDS_SCHEMA)] = "auto"
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
    watch: Annotated[list[str], WithJsonSchema(WATCH_SCHEMA)] = Field(default_factory=list)
    """What is watched in the ranks, one or more of: numerics (the first module whose output or gradient is not finite,
    with its step, its rank and what went into it), gradients (each layer's norms every ten steps: growing, vanishing,
    dead), shapes (a table of what each module takes and gives), compile (where torch.compile breaks its graphs, and
    what makes it compile anew). Default: nothing."""
    on_nonfinite: Literal["report", "dump"] = "report"
    """With numerics: dump saves the batch and the model at the first value that is not finite, for `distdbg replay`.
    Default: report."""
    memory_steps: str | None = None
    """Steps of the optimizer at whose end each rank takes a memory snapshot, FIRST:LAST, at most 100 of them.
    Default: none."""
    profile: str | None = None
    """Steps of the optimizer to run under torch.profiler, FIRST:LAST, at most 100 of them; it costs only in them.
    Default: none."""
    profile_ranks: str = "all"
    """With profile: whose steps, ranks such as 0-3,8, or all. Default: all."""
    overfit_batch: int | None = Field(None, ge=5, le=1_000_000)
    """Repeat the first batch of the training for so many steps, then end the script and say whether its loss fell.
    Changes what is trained on. Default: no."""
    prom_dir: Path | None = None
    """Folder on each node where its agent keeps a .prom file of its figures, for the textfile collector of
    node_exporter. Default: none."""
    metrics_port: int | None = Field(None, ge=1, le=65535)
    """Port on loopback (127.0.0.1) where each agent serves the same at /metrics; of several nodes on one machine, this
    port plus the node's number. Default: none."""
    run_dir: Path | None = None
    """Directory for this run, which must not exist. Default: a new one in ./distdbg-runs."""
    grace: float = Field(30.0, ge=0, le=86400)
    """Seconds between SIGTERM and SIGKILL when the job is ended. Default: 30."""
    hang_timeout: float | Literal["auto", "off"] = Field("auto", json_schema_extra=timeout_schema("auto", "off"))
    """Seconds without any progress of any rank after which the job is looked at as hung: a number, auto (learnt from
    the job's own steps, at least 60), or off. Default: auto."""
    startup_timeout: float | Literal["auto"] = Field("auto", json_schema_extra=timeout_schema("auto"))
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

    _number_of_ranks = field_validator("nproc_per_node", mode="before")(number_of_ranks)
    _number_of_layers = field_validator("skip_attention", mode="before")(number_of_layers)
    _watch_levels = field_validator("watch", mode="before")(watch_levels)
    _few_steps = field_validator("memory_steps", "profile", mode="before")(few_steps)
    _seconds = field_validator("hang_timeout", "startup_timeout", mode="before")(seconds)
    _shown_ranks = field_validator("show_ranks", mode="before")(shown_ranks)
    _profiled_ranks = field_validator("profile_ranks", mode="before")(profiled_ranks)
    _plain_words = field_validator("args", mode="before")(plain_words)
    _modes = field_validator("guards", mode="before")(modes)
    _variables = field_validator("env", mode="before")(variables)
    _passable = field_validator("*")(passable)
    _flags = field_validator("torchrun", mode="before")(flags)

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
        asked = self.memory or self.memory_steps or self.watch or self.profile or self.overfit_batch
        if asked and (self.worker_side == "off" or self.command):
            raise ValueError("memory, memory_steps, watch, profile and overfit_batch need distdbg's code inside the "
                             "ranks: a Python script, and worker_side on")  # fmt: skip
        if self.profile_ranks != "all" and not self.profile:
            raise ValueError("profile_ranks needs profile: which steps are to be profiled")
        if self.on_nonfinite == "dump" and "numerics" not in self.watch:
            raise ValueError("on_nonfinite: dump needs watch: numerics, which is what sees it")
        return self

    @property
    def program(self) -> str:
        """The program's own word; raises UsageError where none was named."""
        program = self.script or self.module or self.command
        if not program:
            raise UsageError("no script was named", "Name it after the options: [OPTIONS] SCRIPT [ARGS…].")
        return program
