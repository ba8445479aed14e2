"""`distdbg shrink-model` (models): make a small copy of a model: fewer layers, each unchanged."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distdbg.cli.epilog import examples, exits
from distdbg.cli.json_answer import json_option
from distdbg.errors import UsageError
from distdbg.terminal import unguarded

if TYPE_CHECKING:
    from distdbg.shrink.checkpoint.plain_names import PlainOrder
    from distdbg.shrink.checkpoint.writing import ShrinkProgress


@exits(
    {
        0: "done",
        3: "no model",
        4: "not permitted, or transformers is missing",
        5: "unreadable",
        6: "no faithful shrink was found",
    }
)
@examples(
    "distdbg shrink-model --anatomy qwen3/",
    "distdbg shrink-model qwen3/ small/ --layers 2",
    "distdbg shrink-model qwen3/ tiny/ --size tiny",
)
@click.command("shrink-model")
@click.argument("src")
@click.argument("dst", type=click.Path(path_type=Path), required=False)
@click.option("--anatomy", is_flag=True, help="Show SRC's stacks and the kinds of their layers; write nothing.")
@click.option("--extrapolate", is_flag=True, help="Estimate the cost of the full model from that of the small one.")
@click.option("--tokens", type=click.IntRange(min=1), default=2048, help="Length of a sequence for --extrapolate.")
@click.option(
    "--layers", default="auto", metavar="N", help="Keep N layers of each stack; auto: one of each kind, 2 at least."
)
@click.option(
    "--keep", default="kinds", metavar="WHICH", help="kinds (default), first, last, ends, or a list: 0-3,-2,last:1."
)
@click.option("--stack", "stacks", multiple=True, metavar="NAME=N", help="Keep N layers of one stack: text=2,vision=4.")
@click.option("--experts", type=click.IntRange(min=1), metavar="K", help="Keep the first K experts; not faithful.")
@click.option("--vocab", type=click.IntRange(min=1), metavar="N", help="Keep N tokens, and cut the tokenizer.")
@click.option("--width", type=float, metavar="F", help="Scale the layers by F, with random weights; not faithful.")
@click.option("--size", metavar="S", help="tiny, or at most so many parameters (100M, 1.5B); not faithful.")
@click.option("--smoke-test", is_flag=True, help="Run a training step and generate; the default with --size tiny.")
@click.option("--pattern", metavar="PREFIX", help="Prefix of a layer's number in a checkpoint without a config.")
@click.option("--random", is_flag=True, help="Use random weights; only the config is needed.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="Type of random weights.")
@click.option(
    "--verify",
    type=click.Choice(["default", "full"]),
    default="default",
    help="full: compare every byte of the weights, and load the model of any size.",
)
@click.option("--no-verify", is_flag=True, help="Write the small model without checking it.")
@click.option("--push", metavar="REPO", help="Push DST to this private repository of the Hugging Face hub.")
@click.option("--trust-remote-code", is_flag=True, help="Run code from the model's repository.")
@json_option("Print what shrink.json says, with every check, as one JSON object.")
def command(*, src: str, dst: Path | None, anatomy: bool, extrapolate: bool, tokens: int, layers: str, keep: str,
            stacks: tuple[str, ...], experts: int | None, vocab: int | None, width: float | None,
            size: str | None, smoke_test: bool, pattern: str | None, random: bool, dtype: str | None, verify: str,
            no_verify: bool, push: str | None, trust_remote_code: bool, as_json: bool) -> None:  # fmt: skip
    """Make a small copy of SRC in DST: fewer layers, each unchanged.

    SRC is a model's folder, its config.json, a URL that serves byte ranges or a hub id; or, without a config, an
    adapter's folder, a .safetensors or torch.save file, or a distributed checkpoint's folder. DST must not exist, or be
    empty. DST/shrink.json lists what was kept, renumbered, sliced, dropped and verified.
    """
    from distdbg.shrink.checkpoint.plain import plain_kind
    from distdbg.shrink.checkpoint.plain_names import PlainOrder
    from distdbg.shrink.choosing import refuse_bad_syntax

    refuse_bad_syntax(keep)
    narrower = (experts, vocab, width, size) != (None,) * 4
    for wrong, why in (
        (as_json and (anatomy or extrapolate), "--json prints what was written: not with --anatomy or --extrapolate"),
        (push and anatomy, "--anatomy writes nothing: not with --push"),
        (size is not None and width is not None, "--size chooses the width: not with --width"),
        (dtype and not random and width is None and size is None,
         "--dtype is for --random: sliced weights keep their type"),
        (extrapolate and narrower,
         "--extrapolate is from faithful layers: not with --experts, --vocab, --width or --size"),
    ):  # fmt: skip
        if wrong:
            raise UsageError(why, "Leave one of them out.")
    if plain_kind(src) is not None:
        if anatomy or extrapolate or random or stacks or push or narrower:
            raise UsageError(f"{src} has no config: only --layers, --keep and --pattern are for it",
                             "Name the model's folder for the other options.")  # fmt: skip
        _plain(src, dst, PlainOrder(_layers(layers), keep, pattern), as_json=as_json)
        return
    if pattern is not None:
        raise UsageError("--pattern is for a checkpoint without a config: this model's layers are found by probing",
                         "Leave it out.")  # fmt: skip
    dst = None if anatomy else dst  # nothing is written
    if dst is None and not anatomy:
        raise UsageError("no DST says where the small model goes", "Name a folder that does not exist yet.")
    from distdbg.shrink import pushing
    from distdbg.shrink.checkpoint.opening import open_source

    wanted, whose = _layers(layers), _stacks(stacks)
    if push is not None:
        pushing.refuse_unpushable(push)
    source = open_source(src)
    with _resumable(dst), _loading(torch=not no_verify):
        from distdbg.shrink.anatomy import anatomy_lines
        from distdbg.shrink.estimate.extrapolating import extrapolation_lines
        from distdbg.shrink.making import ShrinkRequest, full_costs, make, probed

        order = ShrinkRequest(
            wanted,
            keep,
            whose,
            random,
            dtype,
            trust_remote_code,
            "none" if no_verify else verify,
            experts,
            vocab,
            width,
            size,
            smoke_test or size == "tiny",
        )
        if dst is None:
            asked = [
                f"--layers {layers}",
                *([f"--keep {keep}"] if keep != "kinds" else []),
                *(f"--stack {s}" for s in stacks),
            ]
            for line in anatomy_lines(probed(source, order), " ".join(asked)):
                click.echo(line)
            return
        made = make(source, dst, order, _progress())
    _say(made, dst, as_json=as_json)
    if push is not None:
        click.echo(f"pushed to {pushing.push(dst, push)}", err=as_json)
    if extrapolate:
        with _resumable(None):
            costs = full_costs(dst, made, tokens, trust_remote_code)
        for line in extrapolation_lines(costs, tokens):
            click.echo(line)


@contextmanager
def _loading(*, torch: bool) -> Iterator[None]:
    """The process that builds models loads torch meanwhile, if it will be needed. It ends where the command fails."""
    from distdbg.shrink import asking

    if torch:
        asking.tell("load")
    try:
        yield
    except BaseException:
        asking.dismiss()
        raise


def _plain(src: str, dst: Path | None, order: PlainOrder, *, as_json: bool) -> None:
    from distdbg.shrink.checkpoint.plain import make_plain

    if dst is None:
        raise UsageError("no DST says where the small checkpoint goes", "Name a folder that does not exist yet.")
    with _resumable(dst):
        made = make_plain(src, dst, order, _progress())
    _say(made, dst, as_json=as_json)


def _say(made: Mapping[str, Any], dst: Path, *, as_json: bool) -> None:
    from distdbg.shrink.proved import proved

    if as_json:
        click.echo(json.dumps(made))
        return
    click.echo(f"wrote {dst}")
    for stack in made["stacks"]:
        click.echo(f"{stack['path']}: kept {','.join(map(str, stack['kept']))} of {stack['layers']} layers")
    for line in proved(made["verified"]):
        click.echo(line)
    for warning in made["warnings"]:
        click.echo(f"warning: {warning}", err=True)


def _progress() -> ShrinkProgress:
    """A line that says what is done, or counts, on a terminal; nothing in a file."""
    from distdbg.shrink.checkpoint.writing import SILENT, ShrinkProgress

    if not sys.stderr.isatty():
        return SILENT
    from rich.console import Console

    def written(done: int, total: int) -> None:
        unguarded(sys.stderr).write(f"\r{done / 1e6:.0f} of {total / 1e6:.0f} MB" + "\n" * (done >= total))

    return ShrinkProgress(written, Console(file=unguarded(sys.stderr)).status)


@contextmanager
def _resumable(dst: Path | None) -> Iterator[None]:
    """An end from outside leaves what was written, no process and nothing else; and says so. Raises SystemExit."""
    from distdbg.cli.answer import Terminated, terminable
    from distdbg.shrink.checkpoint.staging import partial_of

    try:
        with terminable():
            yield
    except KeyboardInterrupt as error:
        if dst is not None and partial_of(dst).is_dir():
            kept = f"distdbg: what was written is in {partial_of(dst)}; the same command goes on from it"
            click.echo(kept, err=True)
        raise SystemExit(128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)) from None


def _layers(text: str) -> int | None:
    if text == "auto":
        return None
    from distdbg.shrink.checkpoint.layer_names import number_of

    number = number_of(text)
    if not number:
        raise UsageError(f"--layers {text}: it is a number from 1 on, or 'auto'", "Write --layers 2.")
    return number


def _stacks(texts: tuple[str, ...]) -> dict[str, int]:
    from distdbg.shrink.checkpoint.layer_names import number_of

    found = {}
    for text in (part for t in texts for part in t.split(",")):
        name, _, layers = text.partition("=")
        number = number_of(layers)
        if not name or number is None:
            raise UsageError(f"--stack {text!r} is no NAME=N", "Write --stack text=2,vision=4.")
        found[name] = number
    return found
