"""`distdbg env` (housekeeping): list the variables of the presets, each with its reason."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os

import click

from distdbg.cli.epilog import examples, exits
from distdbg.cli.json_answer import json_option
from distdbg.collect.machine.versions import torch_version
from distdbg.errors import NothingToAnalyse
from distdbg.launch.plan.environment import (
    Preset,
    PresetVariable,
    explain,
    known_names,
    lint,
    load_preset,
    nccl2_note,
    preset_names,
    resolve,
)
from distdbg.masking import mask


@exits({0: "done", 3: "nothing is known of NAME"})
@examples("distdbg env", "distdbg env TORCH_FR_BUFFER_SIZE", "distdbg env --preset debug --shell")
@click.command("env")
@click.option("--preset", "presets", multiple=True, metavar="NAME", help="Only this preset; may be repeated.")
@json_option("Print one JSON object.")
@click.option("--shell", is_flag=True, help="Print export lines: default, and the presets that are named.")
@click.argument("name", required=False)
def command(presets: tuple[str, ...], as_json: bool, shell: bool, name: str | None) -> None:
    """Show the variables that presets set for a job, or explain the one called NAME.

    A preset never overrides a variable of your environment; `distdbg launch --dry-run` shows the result.
    """
    if shell:
        click.echo(_as_shell(presets))
        return
    default_first = sorted(preset_names(), key=lambda preset: (preset != "default", preset))
    chosen = [load_preset(preset) for preset in presets or default_first]
    if name is not None:
        chosen = _only(chosen, name)
        if not chosen and not as_json:
            _explain(name)
            return
    if as_json:
        listed: dict[str, object] = {
            p.name: {"summary": p.summary, "variables": [_json(v) for v in p.variables]} for p in chosen
        }
        if name is not None and not listed and not explain(name):
            raise NothingToAnalyse(f"nothing is known of {name}", "`distdbg env` lists what presets set.")
        click.echo(json.dumps({"schema": "distdbg.env/1", "presets": listed}, indent=1))
        return
    for preset in chosen:
        click.echo(click.style(preset.name, bold=True) + f": {preset.summary}")
        for variable in preset.variables:
            click.echo(f"  {variable.name}={variable.value}")
            for label, text in _explanation(variable, full=name is not None):
                click.echo(f"      {label:<8}{text}" if label else f"      {text}")
        click.echo()
    for note in lint(os.environ, torch_version()):
        click.echo(f"{click.style('your environment', fg='yellow')}: {note}")


def _as_shell(presets: tuple[str, ...]) -> str:
    """What the presets set here; what a rank must be known for is left to `distdbg launch`."""
    from distdbg.launch.plan.shell_words import quote

    variables, notes = resolve(presets, {}, {}, os.environ, torch_version())
    lines = [f"# {note}" for note in notes]
    lines += [f"# {v.name} is set for each rank by distdbg launch" for v in variables if v.per_rank]
    lines += [f"export {v.name}={quote(v.value)}" for v in variables if v.origin != "inherited" and not v.per_rank]
    return "\n".join(lines)


def _explain(name: str) -> None:
    """A variable that no preset sets, or none at all."""
    known = explain(name)
    if not known:
        of_presets = {v.name for preset in preset_names() for v in load_preset(preset).variables}
        near = difflib.get_close_matches(name.upper(), [*of_presets, *known_names()], n=1)
        hint = f"Did you mean {near[0]}?" if near else "`distdbg env` lists what presets set."
        raise NothingToAnalyse(f"nothing is known of {name}", hint)
    click.echo(f"{name}: no preset sets it")
    for line in known:
        click.echo(f"      {line}")
    if name in os.environ:
        click.echo(f"      yours   {mask(name, os.environ[name])}")


def _only(presets: list[Preset], name: str) -> list[Preset]:
    """The presets that set a variable, with that variable alone."""
    found = [
        dataclasses.replace(preset, variables=tuple(v for v in preset.variables if name in (v.name, v.replaces)))
        for preset in presets
    ]
    return [preset for preset in found if preset.variables]


def _explanation(variable: PresetVariable, *, full: bool) -> list[tuple[str, str]]:
    """(label, text): the reason and what the environment says; everything that is known where it is `full`."""
    yours = os.environ.get(variable.name)
    lines = [("yours", mask(variable.name, yours))] if yours is not None else []
    if note := nccl2_note(variable.name):
        lines.insert(0, ("nccl2", note))
    if not full:
        return [("", variable.reason), *lines]
    known = [("why", variable.reason), ("costs", variable.cost), ("since", variable.since), ("source", variable.source)]
    if variable.replaces:
        known.append(("was", f"{variable.replaces}, the deprecated name"))
    return known + lines


def _json(variable: PresetVariable) -> dict[str, str | None]:
    yours = os.environ.get(variable.name)
    return {
        **dataclasses.asdict(variable),
        "nccl2": nccl2_note(variable.name),
        "yours": None if yours is None else mask(variable.name, yours),
    }
