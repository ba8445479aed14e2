"""The document of a rehearsal: whether it fits, what fills the devices, and what the ranks tell one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby

from distdbg.evidence.memory.answer import gib
from distdbg.model import Report, fold_ranks
from distdbg.protocol.chosen_ranks import ChosenRanks
from distdbg.rehearse.fitting import Fit
from distdbg.rehearse.reading import RehearsedRun, ValueBranch
from distdbg.rehearse.rehearsal import GroupSchedule, RankPeak, Rehearsal
from distdbg.report.document import Column, Document, Paragraph, Section, Table
from distdbg.report.memory_report import MemoryUse

#: Rows of a group's table.
_MOST_ROWS = 12
_LIMITS = (
    "Not modelled: time, overlap, the speed of links. Kernels compute nothing unless --values is given, so that what "
    "depends on a value (a loss, a mask, a sampled token) is arbitrary. Beside torch's own memory a device has 512 MiB "
    "for the context and 256 MiB for each communicator; workspaces of cuBLAS and cuDNN are missing."
)


def rehearsal_document(run: RehearsedRun, devices: str, *, verdict: bool) -> Document:
    """`devices` names what was simulated; with `verdict` the document has the findings of the run, too."""
    found = run.rehearsal
    sections = [Section("Ranks", (Paragraph(_chosen(found.chosen)),))] if found.chosen is not None else []
    sections.append(Section("Memory", tuple(_memory(found, fits=run.fits))))
    if run.snapshot is not None:
        sections.append(Section("", (MemoryUse([run.snapshot], ""),)))
    sections += _collectives(found)
    sections += _values(run.branches)
    sections.append(Section("What a rehearsal does not show", (Paragraph(_LIMITS, "dim"),)))
    alone = replace(run.report, run={}, findings=(), unknown=run.unknown)
    return Document(
        replace(run.report, unknown=(*run.report.unknown, *run.unknown)) if verdict else alone,
        title=f"rehearsal on {devices}",
        sections=tuple(sections),
        json_keys=lambda: {"rehearsal": _plain(found, run)},
    )


@dataclass(frozen=True)
class Try:
    """One rehearsal of a search. `peak` is the highest that was seen, None where no step ended; `run` its directory."""

    value: int
    fits: bool
    peak: RankPeak | None
    run: str


def fit_document(fit: Fit, tries: Sequence[Try]) -> Document:
    best = fit.answer({one.value: one.fits for one in tries})
    if best is None:
        words = f"Nothing from {fit.low} to {fit.high} fits." if fit.fewest else f"Not even {fit.name} {fit.low} fits."
    else:
        words = f"{best} GPUs a node are enough." if fit.fewest else f"The largest {fit.name} that fits is {best}."
    figures = (Column(title, number=True) for title in ("allocated", "reserved"))
    columns = (Column(fit.name, number=True), Column("fits"), *figures, Column("run", code=True))
    rows = tuple(
        (str(one.value), "yes" if one.fits else "no", gib(one.peak.allocated) if one.peak else "",
         gib(one.peak.reserved) if one.peak else "", one.run.rpartition("/")[2])
        for one in sorted(tries, key=lambda one: one.value)
    )  # fmt: skip
    return Document(
        Report(None, ()),
        title=f"rehearsal of {fit.name} from {fit.low} to {fit.high}",
        sections=(Section("", (Paragraph(words, "strong"), Table(columns, rows))),),
        json_keys=lambda: {"fit": {"name": fit.name, "best": best, "tries": [asdict(one) for one in tries]}},
    )


def _chosen(chosen: ChosenRanks) -> str:
    return (
        f"Run were ranks {fold_ranks(chosen.ranks)} of {chosen.size}. In each group the other members did as the "
        f"lowest of these does. Not seen: what another rank alone would do (run out of memory, leave out a collective, "
        f"raise an exception), and what it would have sent."
    )


def _memory(found: Rehearsal, *, fits: bool | None) -> Iterator[Paragraph | Table]:
    highest = found.highest
    if found.ran_out:
        one = len(found.ran_out) == 1
        who = f"rank {found.ran_out[0]}" if one else f"ranks {fold_ranks(found.ran_out)}"
        yield Paragraph(f"It does not fit: {who} ran out of memory. The line is in the verdict above.", "strong")
    elif highest is None:
        yield Paragraph("The peak is not known: no rank came to the end of a step that used its device.", "strong")
    else:
        lead = "It fits: the peak is" if fits else "The job did not come to its end. Until then the peak is"
        yield Paragraph(
            f"{lead} {gib(highest.allocated)} of {gib(highest.total)}, on rank {highest.rank} by step "
            f"{highest.step}. The allocator held {gib(max(peak.reserved for peak in found.peaks))} at most.", "strong",
        )  # fmt: skip
    if highest is None:
        return
    columns = (Column("ranks"), *(Column(title, number=True) for title in ("allocated", "reserved", "left")))
    rows = []
    for figures, peaks in groupby(found.peaks, key=lambda peak: (peak.allocated, peak.reserved, peak.total)):
        allocated, reserved, total = figures
        ranks = fold_ranks([peak.rank for peak in peaks])
        rows.append((ranks, gib(allocated), gib(reserved), gib(total - allocated)))
    yield Table(columns, tuple(rows))


def _collectives(found: Rehearsal) -> Iterator[Section]:
    of = f"of step {found.step}" if found.step else "of the run"
    inside, across = (sum(g.bytes for g in found.groups if g.across is far) for far in (False, True))
    if found.groups:
        yield Section(f"Collectives {of}", (Paragraph(f"{gib(inside)} inside a node, {gib(across)} across nodes"),))
    for group in found.groups:
        far = "across nodes" if group.across else "inside a node"
        title = f"{group.title}: {len(group.ranks)} ranks, {far}, {gib(group.bytes)}"
        yield Section(title, tuple(_schedule(group)))


def _schedule(group: GroupSchedule) -> Iterator[Paragraph | Table]:
    if group.difference:
        yield Paragraph(f"The ranks differ: {group.difference}", "strong")
    columns = (Column("operation"), Column("times", number=True), Column("bytes", number=True), Column("phase"),
               Column("line", code=True))  # fmt: skip
    rows = [
        (row.operation, str(row.count), gib(row.bytes), row.phase, row.where.rpartition("/")[2])
        for row in group.rows[:_MOST_ROWS]
    ]
    yield Table(columns, tuple(rows))
    if rest := group.rows[_MOST_ROWS:]:
        yield Paragraph(f"and {sum(row.count for row in rest)} smaller ones", "dim")


def _values(branches: Sequence[ValueBranch]) -> Iterator[Section]:
    if not branches:
        return
    loops = [one for one in branches if one.loops]
    words = "These conditions read values that no device has computed: which way they go is arbitrary."
    if loops:
        words += " A loop that they end may end early, or never: --values computes them."
    columns = (Column("condition", code=True), Column("line", code=True), Column("ends a loop"), Column("ranks"))
    rows = [(one.words, one.where.rpartition("/")[2], "yes" if one.loops else "", fold_ranks(one.ranks))
            for one in sorted(branches, key=lambda one: not one.loops)[:_MOST_ROWS]]  # fmt: skip
    yield Section("Branches that depend on values", (Paragraph(words), Table(columns, tuple(rows))))


def _plain(found: Rehearsal, run: RehearsedRun) -> Mapping[str, object]:
    """The JSON form: the dataclasses' fields."""
    return {
        "fits": run.fits,
        "ran_out": found.ran_out,
        "ranks": found.chosen.ranks if found.chosen is not None else None,
        "step": found.step,
        "peaks": [asdict(one) for one in found.peaks],
        "groups": [{**asdict(group), "bytes": group.bytes} for group in found.groups],
        "branches": [asdict(one) for one in run.branches],
    }
