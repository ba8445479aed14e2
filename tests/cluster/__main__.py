"""A bed at the terminal.

python -m tests.cluster up /tmp/b --nodes 2 --slurm
python -m tests.cluster exec /tmp/b node1 -- hostname -I
python -m tests.cluster cut|blackhole|heal|kill /tmp/b node2
python -m tests.cluster down /tmp/b
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from tests.cluster.bed import Bed, take_down
from tests.cluster.host import PLAIN_ENVIRONMENT
from tests.cluster.slurm import Slurm, missing

_FOLDER = click.Path(path_type=Path)


@click.group()
def cluster() -> None:
    """A cluster in a box."""


@cluster.command()
@click.argument("folder", type=_FOLDER)
@click.option("--nodes", default=2, type=click.IntRange(1, 200))
@click.option("--slurm", is_flag=True, help="Real Slurm, with a host `head` for its controller.")
@click.option("--gpus", default=0, help="Devices a node that Slurm takes for GPUs.")
@click.option("--tcp-retries", default=15, help="4 makes a cut wire show after ten seconds.")
def up(folder: Path, nodes: int, slurm: bool, gpus: int, tcp_retries: int) -> None:
    """Make FOLDER and a bed in it, which stays until `down`."""
    if os.geteuid() != 0:
        raise click.ClickException("namespaces need root")
    if slurm and (lacking := missing()):
        raise click.ClickException(lacking)
    if folder.exists():
        raise click.ClickException(f"{folder} exists already; name another, or `down` it first")
    bed = Bed(
        folder.absolute(), nodes=nodes, slurm=Slurm(gpus=gpus) if slurm else None, tcp_retries=tcp_retries, kept=False
    )
    try:
        bed.up()
    except (RuntimeError, OSError) as error:
        bed.down()
        raise click.ClickException(str(error)) from None
    click.echo(f"{', '.join(bed.hosts)} in {bed.seconds['all']:.1f} s; all see {bed.shared}")


@cluster.command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("folder", type=_FOLDER)
@click.argument("host")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(folder: Path, host: str, command: tuple[str, ...]) -> None:
    """Run COMMAND on HOST."""
    line = _host(_load(folder), host).enter(*command)
    sys.stdout.flush()
    os.execvpe(line[0], line, {**PLAIN_ENVIRONMENT, "TERM": os.environ.get("TERM", "dumb")})


def _fault(name: str, text: str) -> None:
    @cluster.command(name, help=text)
    @click.argument("folder", type=_FOLDER)
    @click.argument("host")
    def command(folder: Path, host: str) -> None:
        bed = _load(folder)
        getattr(bed, name)(_host(bed, host).name)


_fault("cut", "Pull HOST's cable.")
_fault("blackhole", "Drop what HOST sends and gets, without an error.")
_fault("heal", "Undo a cut or a blackhole.")
_fault("kill", "End HOST with all that runs there.")


@cluster.command()
@click.argument("folder", type=_FOLDER)
def down(folder: Path) -> None:
    """End every host and remove FOLDER."""
    _load(folder)
    take_down(folder)


def _load(folder: Path) -> Bed:
    try:
        return Bed.load(folder.absolute())
    except (OSError, ValueError, KeyError, TypeError):
        raise click.ClickException(f"{folder} holds no bed") from None


def _host(bed: Bed, name: str):  # type: ignore[no-untyped-def]
    if name not in bed.hosts:
        raise click.ClickException(f"no host is called {name!r}; there are {', '.join(bed.hosts)}")
    return bed[name]


if __name__ == "__main__":
    cluster(prog_name="python -m tests.cluster")
