"""Settings of a job for Slurm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from distdbg.settings.values import passable, plain_text


class SlurmSettings(BaseModel):
    """What a job asks of Slurm, and what becomes of it there. Unset options are the site's defaults."""

    model_config = ConfigDict(extra="forbid", title="A job's Slurm options")

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
    """Image that the nodes' agents and ranks run in, as Slurm's pyxis plugin takes it. Python and torch are the
    image's. Default: no container."""
    container_python: str = "python3"
    """Interpreter in the image, by name or path. Default: python3."""
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

    _passable = field_validator("*")(passable)

    @field_validator("partition", "time", "account", "qos", "gpus_per_node", "constraint", "container_image",
                     "container_python", mode="before")  # fmt: skip
    @classmethod
    def _word(cls, value: object) -> object:
        text = plain_text(value)
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
        return {name: "" if text is True else plain_text(text) for name, text in pairs.items() if text is not False}

    @property
    def container(self) -> dict[str, str]:
        """Options of pyxis, by their long names: they are the step's, and not the batch script's."""
        named = {"container-image": self.container_image} if self.container_image else {}
        own = ("container-", "no-container-")
        return named | {name: value for name, value in self.options.items() if name.startswith(own)}
