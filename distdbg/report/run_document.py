"""Build the document of a run: its verdict, and the sections that show where its ranks were and what they printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from distdbg.diagnosis.failures.of_ranks import RankFailure, failures
from distdbg.diagnosis.rank_states import ALIVE, rank_state
from distdbg.diagnosis.timeline.groups import groups
from distdbg.diagnosis.waits.hang import hang_of
from distdbg.diagnosis.waits.picture import picture_of
from distdbg.evidence.dump import Dump
from distdbg.evidence.run import NodeRecord, RankRecord, RunEvidence
from distdbg.hidden_values import HiddenValues
from distdbg.model import CauseClass, Report, fold_ranks, grouped, is_plausible_time
from distdbg.plain_text import clean
from distdbg.report.document import (
    MOST_QUOTE_LINES,
    Block,
    Cell,
    Column,
    Details,
    Document,
    Paragraph,
    Quote,
    Section,
    StackPicture,
    Table,
    pairs,
)
from distdbg.report.logs_document import logs_json, logs_sections
from distdbg.report.page.course import Course, course
from distdbg.report.page.timeline import FOLD_ABOVE, TimelineSpan, step_boxes, timeline
from distdbg.report.profile_document import profile_sections
from distdbg.wording import counted, duration

#: All log tails together; the page stays below 2 MB.
_LOG_BUDGET = 600_000
_ONE_LOG = 24_000
_MOST_LOGS = 12
_MOST_RANK_ROWS = 48
#: Lines of evidence below a finding where logs are all that there is.
_LOG_QUOTE = 10
#: How a rank ended, the worst first: a class of the style sheet, and its words.
_KINDS = {"root": "root cause", "suspect": "possible cause", "failed": "failed after it", "stopped": "stopped",
          "unknown": "unknown", "running": "running", "finished": "finished"}  # fmt: skip


@dataclass(frozen=True)
class RankCell:
    """One rank in the grid and the table. `kind` is one of _KINDS."""

    rank: int
    node: str
    node_rank: int
    state: str
    kind: str
    step: int | None
    phase: str
    where: str
    pid: int | None
    ran: str
    memory: str
    span: TimelineSpan | None


@dataclass(frozen=True)
class Legend(Block):
    """(kind, words, how many ranks)."""

    counts: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class GridNode:
    node_rank: int
    host: str
    cells: tuple[RankCell, ...]


@dataclass(frozen=True)
class RankGrid(Block):
    """Every rank as a square, by node."""

    nodes: tuple[GridNode, ...]


def run_document(
    report: Report, evidence: RunEvidence | None = None, *, pictures: bool = True, whole: bool = False
) -> Document:
    """`pictures`: with those of a dump. `whole`: with the sections that only a page has room for."""
    run = report.run or {}
    argv = run.get("argv")
    sections: list[Section] = []
    logs = evidence.logs if evidence is not None else None
    if evidence is not None:
        if pictures and evidence.dump is not None:
            sections += _stack_section(report, evidence, evidence.dump)
        if whole:
            sections += _page_sections(report, evidence)
        if logs is not None:
            sections += logs_sections(logs, evidence.hidden)
    return Document(
        report=report,
        title=str(run.get("id") or ""),
        command=" ".join(map(str, argv)) if isinstance(argv, list) else "",
        facts=tuple(_facts(run)),
        started=_utc(run.get("started")),
        folder=str(run.get("path") or ""),
        ending=_ending(report),
        sections=tuple(sections),
        json_keys=(lambda: {"logs": logs_json(logs)}) if logs is not None else dict,
        quote_lines=_LOG_QUOTE if logs is not None else MOST_QUOTE_LINES,
        hidden=evidence.hidden if evidence is not None else HiddenValues(),
    )


def _facts(run: Mapping[str, Any]) -> Iterator[str]:
    if run.get("world_size"):
        yield f"{counted(run['world_size'], 'rank')} on {counted(len(run.get('nodes') or ()), 'node')}"
    if (run.get("attempt") or 1) > 1:
        yield f"attempt {run['attempt']}"
    started, ended = run.get("started"), run.get("ended")
    if isinstance(started, (int, float)) and isinstance(ended, (int, float)) and ended >= started:
        yield duration(ended - started)


def _utc(started: object) -> str:
    """Epoch seconds as UTC."""
    if not isinstance(started, (int, float)) or not is_plausible_time(started):
        return ""
    return datetime.fromtimestamp(started, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ending(report: Report) -> str:
    """A sentence about whose exit code it is; nothing where nothing was run."""
    if report.exit_code is not None:
        return f"exit code {report.exit_code}: {clean(report.exit_code_of or 'no rank')}"
    if report.run is not None and not report.run.get("id"):
        return ""
    if report.exit_code_of:
        return f"exit code: {report.exit_code_of}"
    if any(rank.state in ALIVE for rank in report.ranks):
        return "exit code: none yet: the job was still running"
    return "exit code unknown: what the job ended with is not recorded"


def _stack_section(report: Report, evidence: RunEvidence, dump: Dump) -> Iterator[Section]:
    """The ranks that errors of the verdict name are marked."""
    hang = hang_of(evidence)
    known = hang.groups if hang is not None else groups(dump, {rank.rank: rank for rank in evidence.ranks})
    picture = picture_of(dump, groups=known, hang=hang, culprits=_named(report))
    if picture.tree.ranks:
        kinds = f"{counted(len(picture.tree.ranks), 'rank')}, {counted(picture.tree.classes, 'kind')} of stack"
        yield Section(f"Where the ranks are: {kinds}", (StackPicture(picture),))


def _named(report: Report) -> set[int]:
    """The ranks that errors of the verdict name."""
    return {rank for f in report.verdict if f.severity == "error" for rank in f.ranks}


def _roots(report: Report) -> set[int]:
    """The ranks that are named as the cause of the end, and not as one of several that are possible."""
    causes = (f for f in report.verdict if f.severity == "error" and f.cause_class < CauseClass.OBSERVATION)
    return {rank for f in causes if f.confidence != "possible" for rank in f.ranks}


def _page_sections(report: Report, evidence: RunEvidence) -> Iterator[Section]:
    own = {f.rank.rank: f for f in failures(evidence)}
    named = dict.fromkeys(_named(report), "suspect") | dict.fromkeys(_roots(report), "root")
    cells = [_cell(evidence, rank, own.get(rank.rank), named.get(rank.rank, "")) for rank in evidence.ranks]
    over = course(report, evidence)
    sections: tuple[tuple[str, Callable[[], Iterator[Block]]], ...] = (
        ("Ranks in time", lambda: _times(cells)),
        ("Over the run's steps", lambda: iter([over] if over is not None else [])),
        ("Ranks", lambda: _ranks(evidence, cells)),
        ("Step times", lambda: _step_times(evidence, over)),
        (
            "Profile: where a step's time goes",
            lambda: (b for section in profile_sections(evidence.profiles) for b in section.blocks),
        ),
        ("Topology", lambda: _topology(evidence, cells)),
        ("Last lines of the logs", lambda: _logs(evidence, report, own)),
        ("Environment", lambda: _environment(evidence)),
    )
    for title, build in sections:
        if blocks := tuple(build()):
            yield Section(title, blocks, page_only=True)


# -- ranks --------------------------------------------------------------------------------------------------------


def _cell(evidence: RunEvidence, rank: RankRecord, failure: RankFailure | None, named: str) -> RankCell:
    """`named` is the kind of a rank that the verdict names."""
    state = rank_state(evidence, rank, failure)
    kind = named or _kind(rank, failure, state)
    span = None
    if rank.started is not None:
        end = max(rank.ended or rank.started, rank.started)
        mark = failure.t if failure is not None else None
        inside = mark is not None and rank.started <= mark <= end + 1
        span = TimelineSpan(
            rank.rank, rank.host, rank.started, end, kind, state, min(mark, end) if inside and mark else None
        )
    return RankCell(
        rank=rank.rank,
        node=rank.host,
        node_rank=rank.node_rank,
        state=state,
        kind=kind,
        step=rank.step,
        phase=rank.phase or "",
        where=str(failure.where) if failure is not None and failure.where else "",
        pid=rank.pid,
        ran=duration(rank.ended - rank.started) if rank.ended and rank.started else "",
        memory=f"{rank.rss_bytes / 2**30:.2f} GiB" if rank.rss_bytes else "",
        span=span,
    )


def _kind(rank: RankRecord, failure: RankFailure | None, state: str) -> str:
    if rank.own_exit_code is None:
        return "running" if state in ALIVE else "unknown"
    if rank.own_exit_code == 0 or (failure is not None and failure.cause_class is CauseClass.OBSERVATION):
        return "finished"
    return "stopped" if failure is None or failure.cause_class is CauseClass.VICTIM else "failed"


def _counts(cells: Sequence[RankCell]) -> list[tuple[str, str, int]]:
    """(kind, words, how many), the worst first, those that occur."""
    every = [(kind, words, sum(cell.kind == kind for cell in cells)) for kind, words in _KINDS.items()]
    return [entry for entry in every if entry[2]]


def _times(cells: Sequence[RankCell]) -> Iterator[Block]:
    drawn = timeline([cell.span for cell in cells if cell.span is not None])
    if drawn is not None:
        yield Legend(tuple(_counts(cells)))
        yield drawn


def _ranks(evidence: RunEvidence, cells: Sequence[RankCell]) -> Iterator[Block]:
    if not cells:
        return
    by_node = _by_node(cells)
    folded = len(cells) > FOLD_ABOVE
    if folded:
        hosts = {node.node_rank: node.host for node in evidence.nodes}
        yield Legend(tuple(_counts(cells)))
        yield RankGrid(tuple(GridNode(n, hosts.get(n, ""), tuple(own)) for n, own in sorted(by_node.items())))
    alone = [[cell] for cell in cells]
    many = len(cells) > _MOST_RANK_ROWS
    yield _rank_table(_alike(cells)[:_MOST_RANK_ROWS] if many else alone, "ranks" if folded else "rank")
    if many:
        yield Details(f"each of the {len(cells)} ranks", (_rank_table(alone, "rank"),))


def _by_node(cells: Sequence[RankCell]) -> dict[int, list[RankCell]]:
    return grouped((cell.node_rank, cell) for cell in cells)


def _alike(cells: Sequence[RankCell]) -> list[list[RankCell]]:
    """Ranks that ended alike at the same place, the worst and the smallest groups first."""
    same = grouped(((cell.kind, cell.state, cell.where, cell.step, cell.phase), cell) for cell in cells)
    order = list(_KINDS)
    return sorted(same.values(), key=lambda g: (order.index(g[0].kind), len(g), g[0].rank))


def _rank_table(rows: Sequence[Sequence[RankCell]], title: str) -> Table:
    columns = (Column(title), Column("node"), Column("state"), Column("step", number=True), Column("phase"),
               Column("where", code=True), Column("ran", number=True), Column("memory", number=True),
               Column("pid", number=True))  # fmt: skip
    return Table(columns, tuple(map(_rank_row, rows)))


def _rank_row(group: Sequence[RankCell]) -> tuple[Cell | str, ...]:
    lead, one = group[0], len(group) == 1
    nodes = {cell.node for cell in group}
    ranks = fold_ranks(cell.rank for cell in group)
    return (
        Cell(_shortened(ranks), "" if one else f"({len(group)})", "" if one else ranks),
        lead.node if len(nodes) == 1 else f"{len(nodes)} nodes",
        Cell(lead.state, kind=lead.kind),
        "" if lead.step is None else str(lead.step),
        lead.phase,
        lead.where,
        *((lead.ran, lead.memory, "" if lead.pid is None else str(lead.pid)) if one else ("", "", "")),
    )


def _shortened(text: str, most: int = 40) -> str:
    """A list with commas, cut between two entries."""
    return text if len(text) <= most else text[:most].rpartition(",")[0] + ",…"


def _step_times(evidence: RunEvidence, over: Course | None) -> Iterator[Block]:
    """Not beside a curve of them."""
    boxes = step_boxes(evidence) if over is None or not over.has_step_times else None
    if boxes is not None:
        yield boxes


# -- nodes, logs, environment -------------------------------------------------------------------------------------


def _topology(evidence: RunEvidence, cells: Sequence[RankCell]) -> Iterator[Block]:
    """A row for each node; of many nodes, a row for those that are alike."""
    by_node = _by_node(cells)
    alone = len(evidence.nodes) <= FOLD_ABOVE
    same: dict[tuple[int, int, str, int | None], list[NodeRecord]] = {}
    for node in evidence.nodes:
        own = by_node.get(node.node_rank, [])
        states = ", ".join(f"{n} {words}" for _, words, n in _counts(own))
        same.setdefault((node.node_rank if alone else -1, len(own), states, node.torchrun_exit_code), []).append(node)
    rows: list[tuple[Cell | str, ...]] = []
    for (_, count, states, code), nodes in sorted(same.items(), key=lambda item: (len(item[1]), item[1][0].node_rank)):
        numbers = fold_ranks(node.node_rank for node in nodes)
        ranks = fold_ranks(cell.rank for node in nodes for cell in by_node.get(node.node_rank, ()))
        hosts = nodes[0].host if len(nodes) == 1 else f"{nodes[0].host} … {nodes[-1].host}"
        rows.append((Cell(_shortened(numbers), full=numbers), hosts, str(count), Cell(_shortened(ranks), full=ranks),
                     states, "unknown" if code is None else str(code)))  # fmt: skip
    if rows:
        columns = (Column("node"), Column("host"), Column("ranks per node", number=True), Column("ranks"),
                   Column("state"), Column("exit code of torchrun", number=True))  # fmt: skip
        yield Table(columns, tuple(rows))


def _logs(evidence: RunEvidence, report: Report, own: Mapping[int, RankFailure]) -> Iterator[Block]:
    """The logs of the root causes, of the first other ranks that failed and of rank 0; then torchrun's own."""
    wanted = [rank for finding in report.verdict for rank in finding.ranks[:3]]
    wanted += [*list(sorted(own, key=lambda r: (own[r].cause_class, r))[:3]), 0]
    by_rank = {rank.rank: rank for rank in evidence.ranks}
    sources = [
        (f"rank {rank.rank} · {name}", path, text)
        for rank in (by_rank.get(number) for number in list(dict.fromkeys(wanted))[:_MOST_LOGS])
        if rank is not None
        for name, path, text in (("stderr", rank.stderr_path, rank.stderr_tail),
                                 ("stdout", rank.stdout_path, rank.stdout_tail))
    ]  # fmt: skip
    sources += [(f"torchrun on node {node.node_rank}", node.torchrun_path, node.torchrun_tail)
                for node in [n for n in evidence.nodes if n.torchrun_exit_code][:2]]  # fmt: skip
    left, first = _LOG_BUDGET, report.outcome != "succeeded"
    for title, path, text in sources:
        if text.strip() and left > 0:
            tail = clean(evidence.hidden.mask(text))[-min(left, _ONE_LOG) :]
            left -= len(tail)
            yield Details(title, (Quote(tail),), note=path, open=first)
            first = False


def _environment(evidence: RunEvidence) -> Iterator[Block]:
    """Variables by their origin, those inherited last. Masked values stay as job.json has them."""
    job, hidden = evidence.job, evidence.hidden
    found: dict[str, list[tuple[str, str]]] = {}
    entries = job.get("environment")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            row = str(entry.get("name", "")), hidden.mask(str(entry.get("value", "")))[:2000]
            found.setdefault(str(entry.get("origin", "unknown")), []).append(row)
    for origin, rows in sorted(found.items(), key=lambda item: (item[0].startswith("inherited"), item[0])):
        yield Details(origin, (pairs(rows),), note=f"({len(rows)})", open=not origin.startswith("inherited"))
    for name in ("versions", "git"):
        if isinstance(facts := job.get(name), Mapping):
            yield Details(name, (pairs([(str(key), str(value)) for key, value in facts.items()]),), open=True)
    notes = job.get("notes")
    for note in notes if isinstance(notes, list) else ():
        yield Paragraph(str(note), "dim")
