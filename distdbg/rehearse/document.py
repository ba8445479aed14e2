"""The document of a rehearsal: whether it fits, what fills the devices, and what the ranks tell one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, groupby

from distdbg.evidence.memory.answer import MemoryAnswer, gib
from distdbg.model import Report, fold_ranks
from distdbg.protocol.chosen_ranks import ChosenRanks
from distdbg.rehearse.fitting import Fit
from distdbg.rehearse.reading import RehearsedRun, ValueBranch
from distdbg.rehearse.rehearsal import GroupSchedule, RankPeak, Rehearsal
from distdbg.report.document import Column, Document, Paragraph, Section, Table
from distdbg.report.memory_report import MemoryUse

#: Rows of a group's table, kinds of memory, and columns of the picture of a step.
_MOST_ROWS = 12
_MOST_KINDS = 6
_MOST_COLUMNS = 72
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LIMITS = (
    "Not modelled: time, overlap, the speed of links. Kernels compute nothing unless --values is given, so that what "
    "depends on a value (a loss, a mask, a sampled token) is arbitrary. Beside torch's own memory a device has 512 MiB "
    "for the context and 256 MiB for each communicator; what other libraries allocate themselves is missing."
)


def rehearsal_document(run: RehearsedRun, devices: str, *, verdict: bool, resumed: str | None = None) -> Document:
    """`devices` names what was simulated; with `verdict` the document has the findings of the run, too. `resumed` is
    the directory of the run whose checkpoint it has resumed."""
    found = run.rehearsal
    sections = [Section("Ranks", (Paragraph(_chosen(found.chosen)),))] if found.chosen is not None else []
    sections += _may_be_ours(run)
    sections.append(Section("Memory", tuple(_memory(found, run.snapshots, fits=run.fits))))
    if run.snapshots:
        sections.append(Section("", (MemoryUse(run.snapshots[:1], ""),)))
    sections += _collectives(found)
    sections += _values(run.branches)
    sections.append(Section("What a rehearsal does not show", (Paragraph(_LIMITS, "dim"),)))
    alone = replace(run.report, run={}, findings=(), unknown=run.unknown)
    return Document(
        replace(run.report, unknown=(*run.report.unknown, *run.unknown)) if verdict else alone,
        title=f"rehearsal on {devices}",
        sections=tuple(sections),
        json_keys=lambda: {"rehearsal": {**_plain(found, run), "resumed": resumed}},
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


def _may_be_ours(run: RehearsedRun) -> Iterator[Section]:
    """Warn if a rehearsal alone may hang or fail so: by values that no device has computed."""
    deciding = run.branches[:3] if run.report.outcome == "hung" else _branches_that_failed(run)
    if deciding:
        places = ", ".join(dict.fromkeys(one.where.rpartition("/")[2] for one in deciding))
        what = "hang" if run.report.outcome == "hung" else "failure"
        words = (
            f"This {what} can be one of the rehearsal alone: ranks decided by values that no device has computed "
            f"({places}), each for itself. Run it with --values, with a small model, to know."
        )
        yield Section("", (Paragraph(words, "strong"),))


def _branches_that_failed(run: RehearsedRun) -> Sequence[ValueBranch]:
    """The conditions in a line that a finding of severity error cites, such as an assert."""
    cited = {
        (citation.where or "").partition(" in ")[0]
        for finding in run.report.findings
        if finding.severity == "error"
        for citation in finding.evidence
    }
    return [one for one in run.branches if one.where.rpartition("/")[2] in cited]


def _chosen(chosen: ChosenRanks) -> str:
    return (
        f"Run were ranks {fold_ranks(chosen.ranks)} of {chosen.size}. In each group the other members did as the "
        f"lowest of these does. Not seen: what another rank alone would do (run out of memory, leave out a collective, "
        f"raise an exception), and what it would have sent."
    )


def _memory(found: Rehearsal, snapshots: Sequence[MemoryAnswer], *, fits: bool | None) -> Iterator[Paragraph | Table]:
    highest = found.highest
    if found.ran_out:
        one = len(found.ran_out) == 1
        who = f"rank {found.ran_out[0]}" if one else f"ranks {fold_ranks(found.ran_out)}"
        yield Paragraph(f"It does not fit: {who} ran out of memory. The line is in the verdict above.", "strong")
    elif highest is None:
        yield Paragraph("The peak is unknown: no rank used its device up to the end of a step or script.", "strong")
    else:
        lead = "It fits: the peak is" if fits else "The job did not come to its end. Until then the peak is"
        when = f"by step {highest.step}" if highest.step else "over the whole run, in which no optimizer stepped"
        yield Paragraph(
            f"{lead} {gib(highest.allocated)} of {gib(highest.total)}, on rank {highest.rank} {when}. "
            f"The allocator held {gib(max(peak.reserved for peak in found.peaks))} at most.", "strong",
        )  # fmt: skip
    if highest is None:
        return
    columns = [Column("ranks"), *(Column(title, number=True) for title in ("allocated", "reserved", "beside", "left"))]
    rows = []
    for _, group in groupby(found.peaks, key=lambda peak: replace(peak, rank=0, step=0)):
        peaks = list(group)
        figures = (peaks[0].allocated, peaks[0].reserved, peaks[0].beside, peaks[0].left)
        rows.append((fold_ranks([peak.rank for peak in peaks]), *map(gib, figures)))
    yield Table(tuple(columns), tuple(rows))
    yield from _kinds(snapshots)


def _kinds(snapshots: Sequence[MemoryAnswer]) -> Iterator[Paragraph | Table]:
    """What fills each rank, and what expandable segments would give."""
    kinds = list(dict.fromkeys(kind for one in snapshots for kind in one.peak.kinds if one.peak.kinds[kind]))
    columns = [Column("rank"), *(Column(kind, number=True) for kind in kinds[:_MOST_KINDS])]
    columns += [Column("all", number=True), Column("if expandable", number=True)]
    rows = []
    for one in snapshots:
        held = [gib(one.peak.kinds.get(kind, 0)) for kind in kinds[:_MOST_KINDS]]
        expandable = gib(one.expandable_reserved) if one.expandable_reserved is not None else ""
        rows.append((str(one.rank), *held, gib(one.peak.active), expandable))
    if rows:
        yield Paragraph(
            "At the peak of the step with a snapshot, one rank of those with equal peaks; and what the allocator would "
            "hold at most with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True:", "dim",
        )  # fmt: skip
        yield Table(tuple(columns), tuple(rows))


def _collectives(found: Rehearsal) -> Iterator[Section]:
    of = f"of step {found.step}" if found.step else "of the run"
    inside, across = (sum(g.bytes for g in found.groups if g.across is far) for far in (False, True))
    if found.groups:
        yield Section(f"Collectives {of}", (Paragraph(f"{gib(inside)} inside a node, {gib(across)} across nodes"),))
    if found.crossed:
        words = (
            f"The orders of collectives contradict each other: {found.crossed}. These ranks can wait for one another."
        )
        yield Section("", (Paragraph(words, "strong"),))
    firsts = list(accumulate((min(len(group.rows), _MOST_ROWS) for group in found.groups), initial=0))[:-1]
    if found.groups:
        yield Section("", tuple(_picture(found.groups, firsts)))
    for group, first in zip(found.groups, firsts, strict=True):
        far = "across nodes" if group.across else "inside a node"
        title = f"{group.title}: {len(group.ranks)} ranks, {far}, {gib(group.bytes)}"
        yield Section(title, tuple(_schedule(group, first)))


def _picture(groups: Sequence[GroupSchedule], firsts: Sequence[int]) -> Iterator[Paragraph | Table]:
    """The order of a step: a line for each group, from left to right, a letter for equal operations in sequence."""
    ranks = Counter(group.rank for group in groups)
    rank = max(ranks, key=lambda rank: (ranks[rank], -rank))
    shown = [(group, first) for group, first in zip(groups, firsts, strict=True) if group.rank == rank]
    placed = [
        (at, number, _LETTERS[(first + row) % len(_LETTERS)] if row < _MOST_ROWS else "-")
        for number, (group, first) in enumerate(shown)
        for at, row in group.order
    ]
    runs = [one for one, _ in groupby((number, letter) for _, number, letter in sorted(placed))]
    columns = runs[:_MOST_COLUMNS]
    rows = tuple(
        (group.title, "".join(letter if of == number else "." for of, letter in columns))
        for number, (group, _) in enumerate(shown)
    )
    more = f" The first {len(columns)} of {len(runs)} columns." if len(runs) > len(columns) else ""
    words = f"The order on rank {rank}: a letter is a row below, once for equal operations in sequence.{more}"
    yield Paragraph(words, "dim")
    yield Table((Column("group"), Column("order", code=True)), rows)


def _schedule(group: GroupSchedule, first: int) -> Iterator[Paragraph | Table]:
    if group.difference:
        yield Paragraph(f"The ranks differ: {group.difference}", "strong")
    named = any(row.module for row in group.rows)
    columns = [Column(""), Column("operation"), Column("times", number=True), Column("bytes", number=True),
               Column("phase"), Column("line", code=True)]  # fmt: skip
    columns += [Column("module", code=True)] if named else []
    rows = []
    for place, row in enumerate(group.rows[:_MOST_ROWS], first):
        letter, line = _LETTERS[place % len(_LETTERS)], row.where.rpartition("/")[2]
        cells = (letter, row.operation, str(row.count), gib(row.bytes), row.phase, line)
        rows.append((*cells, row.module) if named else cells)
    yield Table(tuple(columns), tuple(rows))
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
        "peaks": [{**asdict(one), "left": one.left} for one in found.peaks],
        "kinds": [
            {"rank": one.rank, "peak": one.peak.active, "kinds": one.peak.kinds, "phases": one.peak.phases,
             "expandable_reserved": one.expandable_reserved}
            for one in run.snapshots
        ],
        "groups": [{**asdict(group), "bytes": group.bytes} for group in found.groups],
        "crossed": found.crossed,
        "branches": [asdict(one) for one in run.branches],
    }  # fmt: skip
