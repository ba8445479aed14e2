"""One run from plan to verdict: run directory, agents, view, report, exit code."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distdbg.collect.runs.known_secrets import remember_secrets
from distdbg.errors import EXIT_HUNG, EXIT_LOST, CannotStart, process_limit
from distdbg.evidence.exit_status import shell_code
from distdbg.launch.backends import named
from distdbg.launch.backends.nodes import AttemptStart, Nodes
from distdbg.launch.io.disk import DiskWriter
from distdbg.launch.io.journal import Journal
from distdbg.launch.live.console import Console, Show
from distdbg.launch.live.explain import explain
from distdbg.launch.live.on_finding import tell_finding
from distdbg.launch.live.readers import show_rest, wait_for_readers
from distdbg.launch.live.remarks import BlockedRestart, LintInPassing, Remarks
from distdbg.launch.live.state import RunState
from distdbg.launch.live.view import PlainView, make_view
from distdbg.launch.plan.job_record import complete_later, job_record, write_job
from distdbg.launch.watch.hang import HangWatch, close_look_after, hang_lines
from distdbg.launch.watch.straggler_watch import StragglerWatch
from distdbg.launch.watch.write_delay import WriteDelay
from distdbg.model import fold_ranks, unfold_ranks
from distdbg.protocol.agent_events import WriteRefused
from distdbg.protocol.chosen_ranks import KEY as CHOSEN_RANKS
from distdbg.protocol.chosen_ranks import chosen_ranks
from distdbg.protocol.launcher_events import AgentsGone, Finished, Launched, NotStarted, ReportFailed
from distdbg.rundir import RunDir
from distdbg.terminal import outlive_terminal

if TYPE_CHECKING:
    from distdbg.launch.plan.job import Plan
    from distdbg.model import Report
    from distdbg.settings import JobSettings

#: A file system that does not answer for this long is not waited for at the end.
_REPORT_WITHIN_S = 60.0


def run_job(settings: JobSettings, plan: Plan, run: RunDir) -> int:
    """Start the plan's nodes here, follow them to the end, write and show the verdict; the job's exit code."""
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    outlive_terminal()
    remember_secrets({v.name: v.value for node in plan.nodes for v in node.environment}, plan.program)
    disk = DiskWriter()
    journal = Journal(run, disk)
    record = job_record(run, settings.name or run.id, plan)
    write_job(run, record, disk)
    try:
        nodes, hang, wait = _follow(
            settings, plan, run, journal, lambda: complete_later(run, record, settings.script, disk)
        )
    except CannotStart as error:
        journal.note(NotStarted(because=error.message))
        disk.close(5.0)
        raise
    fallback = EXIT_HUNG if hang.ended == "kill" else _fallback_code(nodes)
    journal.note(
        AgentsGone(
            exit_codes=[a.exit_code for a in nodes.agents],
            cancelled_by=nodes.cancelled_by,
            seconds=round(time.clock_gettime(time.CLOCK_BOOTTIME) - began, 3),
        )
    )
    because = "" if disk.flush(10.0) else "does not answer"
    if refused := disk.why_refused(run.events):  # nor do the agents' records tell how the ranks ended
        because = f"cannot be written ({refused})"
    report, because = (None, because) if because else _judged(settings, run, journal, hang.explained)
    code = fallback if report is None or report.exit_code is None else report.exit_code
    journal.note(Finished(exit_code=code))
    disk.close(5.0)
    if report is None:
        print(f"distdbg: {run.path} {because}: no report; exit code {code} is torchrun's", file=sys.stderr)
    else:
        if settings.profile:
            from distdbg.launch.live.merged_profiles import say_profiles

            say_profiles(run)
        if settings.on_finding and report.findings:
            tell_finding(settings.on_finding, run.report_json)
    wait()
    return code


def _follow(
    settings: JobSettings, plan: Plan, run: RunDir, journal: Journal, find_facts: Callable[[], threading.Thread]
) -> tuple[Nodes, HangWatch, Callable[[], None]]:
    """From the start to the last agent's end, through every restart of a hung job: the nodes as they were at last,
    what was done about hangs, and a function that waits for the reader of the output. `find_facts` runs while the ranks
    start."""
    state = RunState()
    view = make_view(state, run.id) if plan.capture else PlainView(state)
    hang = HangWatch(settings, run, state, journal, view)
    stragglers, remarks = StragglerWatch(journal), Remarks(os.path.relpath(run.path))
    blocked = BlockedRestart(settings.torchrun.get("max-restarts", ""))
    # on this machine it is no file system that takes its time
    showing = WriteDelay(run, journal, view.say if plan.place.remote else lambda _sentence: None)

    def listen(node_rank: int, event: dict[str, Any]) -> None:
        state.apply(node_rank, event)
        journal.begin_attempt(state.attempt)
        if sentence := remarks.on(event):
            view.say(sentence)
        if event.get("event") == WriteRefused.spec.name and event.get("at_end"):  # its own record does not have it
            journal.note(WriteRefused.from_record(event))
        showing.hear(node_rank, event)
        hang.hear(node_rank, event)
        stragglers.hear(event, state.ranks)

    def start(attempt: int) -> Nodes:
        journal.begin_attempt(attempt)
        own = _own_arguments(settings, run, plan, attempt)
        started = named(plan.place.on).nodes(
            AttemptStart(plan, run, attempt, own, settings.grace, journal, listen, view.say)
        )
        hang.guard(started)
        stragglers.guard(started)
        started.start()
        return started

    journal.note(Launched(nodes=len(plan.nodes)))
    for line in [*_start_lines(plan, run), *hang_lines(settings)]:
        print(f"distdbg: {line}", file=sys.stderr)
    try:
        nodes = start(run.next_attempt)
        facts, lint = find_facts(), LintInPassing(settings.script, settings.guards)
        console = Console(run, _shown(plan), world_size=plan.topology["world_size"], live=view.live)
    except (RuntimeError, BlockingIOError) as error:
        raise process_limit(error) or error from error

    def turn() -> None:
        for remark in (*lint.remarks(), blocked.look(state), remarks.on_disk(journal.refusal)):
            if remark:
                view.say(remark)
        showing.tick()
        hang.tick(view.tick(console.poll()))

    try:
        while True:
            nodes.run(turn)
            hang.finish()
            if hang.ended != "restart":
                break
            nodes = start(state.attempt + 1)
        show_rest(console, view)
    finally:
        view.close()
    facts.join(10.0)  # without the digests of the secrets no bundle is written elsewhere
    return nodes, hang, lambda: wait_for_readers(console, view)


def _start_lines(plan: Plan, run: RunDir) -> list[str]:
    """What starts, where its files are, and what was decided without being asked."""
    topology = plan.topology
    what = f"{topology['nodes']} x {topology['nproc_per_node']} ranks"
    if chosen := chosen_ranks(topology.get(CHOSEN_RANKS)):
        ranks = "rank" if len(chosen.ranks) == 1 else "ranks"
        what = f"{ranks} {fold_ranks(chosen.ranks)} of {chosen.nodes} x {chosen.gpus}"
    if topology["one_of_many"]:
        what = f"one node of several, {topology['nproc_per_node']} ranks here"
    return [f"{what}, everything about this run in {os.path.relpath(run.path)}", *plan.notes]


def _own_arguments(settings: JobSettings, run: RunDir, plan: Plan, attempt: int) -> list[str]:
    """The order to every agent, without its node."""
    stdin = "inherit" if plan.inherit_stdin else "null"
    own = ["--run-dir", str(run.path), "--grace", str(settings.grace), "--stdin", stdin]
    own += ["--rank-env", json.dumps(plan.rank_env)]
    own += ["--attempt", str(attempt), "--close-look", str(close_look_after(settings))]
    handled = settings.torchrun.get("signals-to-handle")
    own += ["--torchrun-handles", handled] if handled else []
    own += ["--prom-dir", str(settings.prom_dir.absolute())] if settings.prom_dir else []
    own += ["--metrics-port", str(settings.metrics_port)] if settings.metrics_port else []
    return [*own, *([] if plan.capture else ["--no-capture"])]


def _shown(plan: Plan) -> Show:
    if not plan.capture or plan.show_ranks == "none":
        return "none"
    return "all" if plan.show_ranks == "all" else unfold_ranks(plan.show_ranks)


def _fallback_code(nodes: Nodes) -> int:
    """The exit code where no evidence says more: of the signal that cancelled the job, else torchrun's first bad
    code."""
    if nodes.cancelled_by:
        return shell_code(-getattr(signal, nodes.cancelled_by, signal.SIGTERM))
    codes = [a.exit_code if a.exit_code is not None else EXIT_LOST for a in nodes.agents]
    worst = next((code for code in codes if code), 0)
    return shell_code(worst)


def _judged(settings: JobSettings, run: RunDir, journal: Journal, shown: Report | None) -> tuple[Report | None, str]:
    """The report, which is shown; or None, and what the run directory does. An error of ours costs the job nothing."""
    built: list[Report] = []
    because = "does not answer"

    def show() -> None:
        text, report = explain(run, shown)
        built.append(report)
        print(text, file=sys.stderr)
        if "shapes" in settings.watch:
            print(f"distdbg: {_shapes_line(run)}", file=sys.stderr)

    try:
        _within(_REPORT_WITHIN_S, show)
    except Exception as error:
        traceback.print_exc()
        print("distdbg: this is an error of distdbg's own; please report it with the lines above", file=sys.stderr)
        journal.note(ReportFailed(error=repr(error), traceback=traceback.format_exc()))
        because = "could not be explained"
    return next(iter(built), None), because


def _shapes_line(run: RunDir) -> str:
    """The path of the tables of `--watch shapes`, or why there are none."""
    attempts = run.attempts()
    path = attempts[-1].rank(0).shapes if attempts else None
    if path is not None and path.is_file():
        return f"what each module takes and gives is in {os.path.relpath(path)}"
    return ("no shapes were seen: no forward of the model came, or it is compiled as a whole; "
            "distdbg.watch(model) names the model")  # fmt: skip


def _within(seconds: float, work: Callable[[], None]) -> None:
    """Do it; where a file system holds it up for longer, it is left alone. Raises what it raises."""
    failure: list[BaseException] = []

    def body() -> None:
        try:
            work()
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(seconds)
    if failure:
        raise failure[0]
