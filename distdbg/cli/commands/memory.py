"""`distdbg memory` (diagnose): report what fills a GPU, from torch's memory snapshots."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distdbg.cli.epilog import JUDGES, examples, exits
from distdbg.cli.json_answer import json_option
from distdbg.cli.options import EvidencePath, SecondsRange, html_option, output_option, ranks_of, run_argument
from distdbg.errors import ToolMissing, UsageError, install_extra

if TYPE_CHECKING:
    from distdbg.evidence.run import RunEvidence
    from distdbg.shrink.estimate.estimating import Sharding


@examples("distdbg launch --memory train.py", "distdbg memory analyze distdbg-runs/latest")
@click.group("memory")
def command() -> None:
    """Read torch's CUDA memory snapshots: what was allocated at the peak, what leaks, why memory ran out.

    torch.cuda.memory._record_memory_history() begins a recording, torch.cuda.memory._dump_snapshot(PATH) writes it.
    No file can execute code, and neither torch nor a GPU is needed.
    """


@exits(JUDGES | {3: "no snapshot", 4: "not permitted, or no PNG renderer", 10: "memory ran out"})
@examples("distdbg memory analyze distdbg-runs/latest", "distdbg memory analyze --html memory.html snapshot.pickle")
@command.command("analyze", short_help="Report what fills a GPU, what grows, why memory ran out.")
@click.argument("what", nargs=-1, required=True, metavar="FILE|RUN…", type=EvidencePath(exists=True))
@json_option("Print one JSON object (distdbg.report/1, and a key `memory`).")
@html_option
@output_option("--svg", "svg_path", "picture", "PATH", "Write the picture alone to PATH.")
@output_option("--png", "png_path", "picture", "PATH", "Write the picture alone to PATH, as PNG.")
def analyze(
    what: tuple[Path, ...], as_json: bool, html_path: Path | None, svg_path: Path | None, png_path: Path | None
) -> None:
    """Report what fills the GPU: by stack at the peak, what grows with each step, why memory ran out.

    FILE is a snapshot (pickle, or gzip of it); RUN a run's directory, or any folder with snapshots. For one run it also
    reports the memory of each rank over its steps.
    """
    from distdbg.cli import answer
    from distdbg.collect.files.snapshot_files import read_snapshots
    from distdbg.report.memory_report import memory_document, memory_report

    say = answer.ProgressBar()
    say("reading the snapshots")
    run, known = _whole_run(what)
    found = read_snapshots(what, needed=not known)
    say("")
    report = memory_report(found.answers, found.unread, run)
    if html_path is not None:
        from distdbg.report.page.memory_page import memory_page

        answer.write_page(html_path, memory_page(report, found.answers))
    if svg_path is not None or png_path is not None:
        from distdbg.report.page.memory_svg import memory_svg

        picture = memory_svg(found.answers)
        if svg_path is not None:
            answer.write_page(svg_path, picture)
        if png_path is not None:
            answer.write_page(png_path, png(picture))
    answer.show(memory_document(report, found.answers, known), as_json=as_json)
    sys.exit(answer.exit_code(report))


def _whole_run(what: tuple[Path, ...]) -> tuple[RunEvidence | None, str]:
    """The evidence of the run if one is asked for, and a sentence about what it recorded of its memory."""
    from dataclasses import replace

    from distdbg.collect.runs.explaining import is_run
    from distdbg.collect.runs.run_evidence import load_evidence
    from distdbg.collect.runs.run_snapshots import host_snapshots
    from distdbg.report.text.memory_text import run_text
    from distdbg.rundir import RunDir

    if len(what) != 1 or not (what[0].is_dir() and is_run(what[0])):
        return None, ""
    folder = RunDir(what[0].resolve())
    evidence = load_evidence(folder)
    snapshots, unknown = host_snapshots(folder, evidence.attempt)
    return replace(evidence, unknown=(*evidence.unknown, *unknown)), run_text(evidence, snapshots)


@exits({0: "a snapshot of every rank", 3: "no running rank", 4: "not permitted", 6: "a rank wrote no snapshot"})
@examples("distdbg memory snapshot", "distdbg memory snapshot --ranks 0,3 distdbg-runs/latest")
@command.command("snapshot", short_help="Take a memory snapshot of the ranks of a running job.")
@run_argument
@click.option("--ranks", metavar="RANKS", help="Only these ranks, such as 0,3 or 0-3.  [default: all]")
@click.option("--within", type=SecondsRange(1, 3600), default=60.0, show_default=True, help="Seconds to wait.")
def snapshot(run: str | None, ranks: str | None, within: float) -> None:
    """Take a memory snapshot of the ranks of a running RUN; without RUN, of the newest here.

    On CUDA it is torch's own snapshot, with a history if the run was launched with --memory; the host's memory is
    always included. A rank stops while its snapshot is written, without CUDA for about 0.1 s.
    """
    from distdbg.cli import answer
    from distdbg.errors import EXIT_OK, EXIT_REFUSED
    from distdbg.launch.watch.file_requests import take_snapshots
    from distdbg.rundir import find_run_dir

    wanted = ranks_of("--ranks", ranks)
    say = answer.ProgressBar()
    taken = take_snapshots(find_run_dir(run), wanted, within, say)
    say("")
    for one in taken:
        for file in one.files:
            click.echo(str(file))
        if not one.files:
            click.echo(f"distdbg: rank {one.rank} wrote no snapshot: {one.because}", err=True)
    for words in sorted({one.missing for one in taken if one.missing}):
        click.echo(f"distdbg: {words}", err=True)
    sys.exit(EXIT_OK if all(one.files for one in taken) else EXIT_REFUSED)


@exits(
    {
        0: "done",
        3: "no config",
        4: "not permitted, or torch or transformers are missing",
        5: "unreadable",
        6: "such a model cannot be estimated",
    }
)
@examples(
    "distdbg memory estimate qwen3/ --nproc 8 --fsdp full --card H100",
    "distdbg memory estimate train.py:make --batch 4",
)
@command.command("estimate", short_help="Estimate the peak memory of a rank before anything runs.")
@click.argument("model", metavar="MODEL")
@click.option("--nproc", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="Number of ranks.")
@click.option("--fsdp", type=click.Choice(["full", "grad", "none"]), default="none", show_default=True,
              help="FSDP2: full shards all, grad keeps the parameters after the forward; none: DDP.")  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Sequences per rank and step.")
@click.option(
    "--seq", "sequence", type=click.IntRange(min=2), default=1024, show_default=True, help="Tokens per sequence."
)
@click.option("--dtype", type=click.Choice(["fp32", "bf16", "amp"]), default="fp32", show_default=True,
              help="amp: fp32 with autocast to bf16.")  # fmt: skip
@click.option("--checkpointing", is_flag=True, help="With activation checkpointing of each layer.")
@click.option("--optimizer", type=click.Choice(["adamw", "sgd"]), default="adamw", show_default=True)
@click.option(
    "--card", metavar="SIZE|NAME", help="Report what fits on such a GPU (80GiB, H100): batch, sequence, layers."
)
@click.option("--trust-remote-code", "trust", is_flag=True, help="Run code from the model's repository.")
@json_option("Print one JSON object.")
def estimate(  # noqa: PLR0917 -- click passes them by name
    model: str, nproc: int, fsdp: Sharding, batch: int, sequence: int, dtype: str, checkpointing: bool, optimizer: str,
    card: str | None, trust: bool, as_json: bool,
) -> None:  # fmt: skip
    """Estimate the peak memory of one rank before anything runs: by kind, for DDP or FSDP2.

    MODEL is a folder with a config.json, that file, or a model of the hub that is trained on tokens; or a function of
    yours, train.py:make, that returns a model and a function that computes its loss. A step runs on meta tensors: it
    takes seconds, no GPU and no memory. The estimate excludes CUDA's context, NCCL's buffers and fragmentation.
    """
    import json

    from distdbg.cli import answer
    from distdbg.report.text.estimate_text import estimate_text, fits_text
    from distdbg.shrink.estimate import estimating, fitting

    say = answer.ProgressBar()
    gpu = None if card is None else fitting.card(card)
    wanted = estimating.EstimateRequest(batch, sequence, None, dtype, checkpointing, optimizer, trust)

    say("computing steps on meta tensors")
    fits: list[fitting.LargestFit] = []
    if gpu is None:
        found = estimating.estimate(estimating.track(model, wanted), nproc, fsdp)
    else:
        found, fits = fitting.what_fits(model, wanted, nproc, fsdp, gpu.bytes)
    say("")
    if as_json:
        result: dict[str, object] = {"peak": found.total, "kinds": found.kinds, "when": found.when,
                                   "margin": estimating.MARGIN, "unheard": list(found.unheard)}  # fmt: skip
        if gpu is not None:
            result |= {"card": {"name": gpu.name, "bytes": gpu.bytes}, "fits": {one.axis: one.largest for one in fits}}
        click.echo(json.dumps(result, indent=1))
        return
    click.echo(estimate_text(found.kinds, found.when, estimating.MARGIN, found.unheard))
    if gpu is not None:
        click.echo(fits_text(gpu.name, gpu.bytes, fits, batch, sequence))


@exits({0: "done", 3: "no snapshot", 4: "not permitted", 5: "unreadable"})
@examples("distdbg memory diff before.pickle after.pickle", "distdbg memory diff --ranks 0,3 distdbg-runs/latest")
@command.command("diff", short_help="Report which lines allocate more in B than in A.")
@click.argument("a", type=EvidencePath(exists=True), metavar="A|RUN")
@click.argument("b", required=False, type=EvidencePath(exists=True), metavar="[B]")
@click.option("--ranks", metavar="RANKS", help="Two ranks of a RUN, such as 0,3.")
@click.option("--steps", metavar="STEPS", help="Two steps of a RUN, such as 10,200.")
@click.option("--device", type=click.IntRange(min=0), help="Device, if a file has several.")
@json_option("Print one JSON object (distdbg.report/1, and a key `diff`).")
def diff(  # noqa: PLR0917 -- click passes them by name
    a: Path, b: Path | None, ranks: str | None, steps: str | None, device: int | None, as_json: bool
) -> None:
    """Report which lines allocate more in B than in A: two ranks, two steps, before and after a change.

    A and B are files. RUN is a run's directory: --ranks and --steps choose two of its snapshots. The 2,000 largest
    stacks are compared, at the peak and at the end; one line sums up the others. Stacks are equal if the lines of the
    user's code are.
    """
    import json

    from distdbg.cli import answer
    from distdbg.collect.files.snapshot_files import read_one
    from distdbg.evidence.memory.diff import difference
    from distdbg.model import Report
    from distdbg.report.json_form import as_json as plain
    from distdbg.report.memory_report import diff_plain
    from distdbg.report.text.memory_text import diff_lines

    if b is None:
        from distdbg.collect.runs.run_snapshots import two_snapshots

        a, b = two_snapshots(a, _numbers("--ranks", ranks), _numbers("--steps", steps))
    elif ranks is not None or steps is not None:
        raise UsageError(
            "--ranks and --steps choose two snapshots of one run, and two are named", "Name the run alone."
        )
    one, other = read_one(a, device), read_one(b, device)
    found = difference(one, other)
    if as_json:
        report = plain(Report(None, ()))
        click.echo(json.dumps({**report, "diff": diff_plain(one, other, found)}, indent=1, allow_nan=False))
        return
    click.echo("\n".join(diff_lines(one, other, found, answer.screen())))


def _numbers(option: str, words: str | None) -> list[int]:
    try:
        return [int(word) for word in words.split(",")] if words is not None else []
    except ValueError:
        raise UsageError(f"{option} {words!r} is not two numbers", "Write them as 0,3.") from None


#: Two dots for each unit of the picture: sharp on a slide.
_ZOOM = 2.0
_LETTER = '<text x="2" y="15" style="font:11px monospace">W</text>'
#: What `monospace` stands for fontconfig says, which many containers have fonts without.
_FAMILIES = (None, "DejaVu Sans Mono", "Liberation Mono", "Noto Sans Mono", "Ubuntu Mono", "Menlo", "Consolas")


def png(svg: str) -> bytes:
    """Draw a picture as PNG with resvg.

    Raises ToolMissing without resvg-py, and on a machine without fonts, where resvg leaves the letters out.
    """
    try:
        import resvg_py
    except ImportError:
        raise ToolMissing(
            "a PNG needs resvg-py, which is not installed",
            f"Install it ({install_extra('png')}), or take --svg, which any browser shows.",
        ) from None
    empty = resvg_py.svg_to_bytes(svg_string=_sheet(""))
    for family in _FAMILIES:
        if resvg_py.svg_to_bytes(svg_string=_sheet(_LETTER), monospace_family=family) != empty:
            return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=_ZOOM, monospace_family=family))
    raise ToolMissing(
        "this machine has no font to write with", "Install one (fonts-dejavu-core on Debian), or take --svg."
    )


def _sheet(inner: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{inner}</svg>'
