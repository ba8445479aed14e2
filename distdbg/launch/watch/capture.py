"""Captures where a node's ranks stand: a process of its own, so that nothing it waits for holds an agent up.

    python <absolute>/distdbg/launch/watch/capture.py < request.json

Request: {"folder": the dump's, "node_rank": 0, "host": "…", "looks": 2, "interval": 1.0, "within": 10.0, "native": 2,
"values": false, "targets": [{"rank": 3, "pid": 123, "stem": "<node dir>/00003" or null}, …], "parent": 99}. `native`
is the number of stacks with C frames, taken of the rarest kinds of ranks; with the parent it ends, too. Standard
output gets a line of JSON when all is written: {"ranks": {"3": "collected", "5": {"failed": because}}}.

What it writes into the dump's folder, each file under another name first:

    stacks/<rank>.<look>.json    py-spy's own JSON, or the rank's own word in that form where it may not be traced
    recorder/<rank>.<look>.json  torch's own JSON, long lists of ranks as ranges, or its .pickle; of a process with
                                 several recorders also <look>.1, <look>.2
    nccl-ras[.after].json        what NCCL's RAS says at the first look; of a job that is not ours also after the last
    calls/<rank>.calls, .sites   see worker/calls.py      sources/<name>               the scripts that stacks name
    nodes/<node>.json            every rank's looks: process state, heartbeat page, and of each collector the file
                                 or {"failed": because} or {"not_tried": because}

What a later look sees unchanged, as in a hang, is not written twice.

Standard library only. A target is never left stopped: py-spy alone stops one, for milliseconds, and detaches.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # started by its path: our folder must not shadow the standard library
    sys.path[0] = sys.path[0].rsplit("/distdbg/", 1)[0]

import contextlib
import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from distdbg.collect.machine import pyspy, recorder
from distdbg.collect.machine.kept_source import MOST_SOURCES, read_kept_source
from distdbg.collect.machine.nccl_ras import NoRas, ask_ras
from distdbg.collect.machine.process_look import OF_THREAD, look, usage, waits_in
from distdbg.collect.machine.procfs import settled_switches, switches
from distdbg.collect.machine.recorder import PIPE_ANSWERS_WITHIN_S, NoPipe, PipeAsked, ask_by_pipe
from distdbg.collect.machine.worker_server import RequestFailed, find_worker_server
from distdbg.evidence.frames import Activity, is_user
from distdbg.evidence.stacks.crash import read_faulthandler_text
from distdbg.launch.io.processes import die_with_parent
from distdbg.launch.watch.capture_targets import (
    Target,
    activities,
    awaited_children,
    judged,
    judged_frames,
    place_of,
    targets_of,
)
from distdbg.launch.watch.surroundings import surroundings
from distdbg.protocol.dump import (
    COLLECTED,
    CaptureRequest,
    CaptureTarget,
    NodePart,
    NoStacks,
    PageReading,
    RankPart,
    collected,
    failed,
    not_tried,
)
from distdbg.protocol.page import PAGE_BYTES, Page, read_page
from distdbg.whole_file import make_private_folder, write_whole

_AT_ONCE = 4
#: A rank that may not be traced is asked by its agent at each look, and is as quick as it gets the GIL.
_ANSWERS_WITHIN_S = 3.0
_ASKS_NCCL_S = 4.0
#: The second dump of a rank that is not ours is fast; for the first see PIPE_ANSWERS_WITHIN_S.
_ANSWERS_AGAIN_S = 3.0
#: For the threads that a look has paused to wait again; the rest of the interval between two looks is measured.
_SETTLES_WITHIN_S = 0.1
_FRESH_NS = 5_000_000_000
_TIME_OVER = not_tried("the time for this capture was over")
_COMMUNICATES = {Activity.COLLECTIVE, Activity.GROUP_SETUP, Activity.DISTRIBUTED, Activity.PICKLING, Activity.AUTOGRAD}


class Capture:
    """One request, carried out by `run`."""

    def __init__(self, request: CaptureRequest) -> None:
        self.request = request
        self.folder = Path(request.folder)
        self.until = time.monotonic() + request.within
        asked = map(CaptureTarget.from_record, request.targets)
        self.targets = [target for one in asked for target in targets_of(one)]
        self.sources: dict[str, str] = {}
        self.ras: dict[str, str] = {}
        self.ras_after: dict[str, str] | None = None

    def run(self) -> Path:
        """The path of the node's part, which is written last."""
        looks = self.request.looks
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            ras = pool.submit(self._ask_nccl, "nccl-ras.json")
            if self._ask_strangers():
                self.until = time.monotonic() + self.request.within
            for number in range(1, looks + 1):
                begun = time.monotonic()
                list(pool.map(lambda t: self._look(t, number), self.targets))  # noqa: B023 -- done within the turn
                if number == min(looks, 2):
                    list(pool.map(self._native, self._rarest(self.request.native)))
                if number < looks:
                    self._end_look(begun + self.request.interval)
                    time.sleep(max(0.0, min(begun + self.request.interval, self.until) - time.monotonic()))
        self.ras = ras.result()
        if "file" in self.ras and any(target.stem is None for target in self.targets):
            self.ras_after = self._ask_nccl("nccl-ras.after.json")
        for target in self.targets:
            self._keep_calls(target)
        self._keep_sources()
        return self._write(f"nodes/{self.request.node_rank:04d}.json", json.dumps(self._part().fields()))

    def accounts(self) -> dict[str, Any]:
        """Of each rank `collected`, or why its stacks were not: the manifest's words."""
        return {str(t.rank): _account(t.looks) for t in self.targets}

    def _part(self) -> NodePart:
        ranks = [RankPart(rank=t.rank, pid=t.pid, looks=t.looks).fields() for t in self.targets]
        request = self.request
        return NodePart(
            node_rank=request.node_rank, host=request.host, ranks=ranks, sources=self.sources, ras=self.ras,
            ras_after=self.ras_after,
        )  # fmt: skip

    def _ask_nccl(self, name: str) -> dict[str, str]:
        """On one node: it knows of all."""
        if self.request.node_rank != 0 or not self.targets:
            return {}
        try:
            told = ask_ras([t.pid for t in self.targets], min(self.until - time.monotonic(), _ASKS_NCCL_S))
            return {"file": self._name(name, told)}
        except NoRas as error:
            return not_tried(str(error))

    def _ask_strangers(self) -> bool:
        """Before the first look, since the dump makes them work: what the looks show has to be their own work.

        True where any was asked.
        """
        asked: dict[int, PipeAsked] = {}
        for number, target in enumerate(self.targets):
            if target.stem is None and (server := find_worker_server(target.pid)) is not None:
                target.server = server
            elif target.stem is None:
                try:
                    asked[number] = ask_by_pipe(target.pid, target.rank)
                except NoPipe as error:
                    target.recorder = not_tried(str(error)) if str(error) else {}
                except RequestFailed as error:
                    target.recorder = failed(str(error))
        until = time.monotonic() + PIPE_ANSWERS_WITHIN_S
        for number, one in asked.items():
            self.targets[number].recorder = self._answer(self.targets[number], one, until - time.monotonic(), 1)
        return bool(asked)

    def _answer(self, target: Target, asked: PipeAsked, within_s: float, number: int) -> dict[str, Any]:
        try:
            data = asked.answer(within_s)
        except RequestFailed as error:
            return failed(str(error))
        return self._pickle(target, number, data)

    def _pickle(self, target: Target, number: int, data: bytes) -> dict[str, Any]:
        return {"file": self._name(f"recorder/{target.rank:05d}.{number}.pickle", data)}

    def _end_look(self, until: float) -> None:
        """Note what each rank has used so far, once the threads that the look paused wait again: only what a rank uses
        from then on, until the next look begins, is its own work."""
        until = min(until, time.monotonic() + _SETTLES_WITHIN_S)
        for target in self.targets:
            target.looks[-1]["rested"] = settled_switches(target.pid, judged(target) or target.pid, until)
        for target in self.targets:
            target.looks[-1]["after"] = usage(target.pid)

    # -- one look -------------------------------------------------------------------------------------------

    def _look(self, target: Target, number: int) -> None:
        seen: dict[str, Any] = {"t": time.time(), "process": look(target.pid), "page": _page(target)}
        seen["switched"] = switches(target.pid, judged(target) or target.pid)  # by the look before
        seen["recorder"] = self._recorder(target, number, seen["process"].get("state"))
        seen["stacks"] = self._stacks(target, number)
        if seen["process"] and (thread := judged(target)) not in (0, target.pid):
            kept = {name: value for name, value in seen["process"].items() if name not in OF_THREAD}
            seen["process"] = kept | waits_in(target.pid, thread)
        seen["children"] = {
            str(pid): look(pid) for pid in {t.get("pid") for t in target.threads} if pid and pid != target.pid
        }
        seen |= surroundings(target.pid, judged_frames(target), seen["process"].get("syscall", ""))
        target.looks.append(seen)

    def _stacks(self, target: Target, number: int) -> dict[str, Any]:
        left, name = self.until - time.monotonic(), f"stacks/{target.rank:05d}.{number}.json"
        if left <= 0:
            return _TIME_OVER
        try:
            target.threads = pyspy.stacks(target.pid, within_s=min(left, 5.0), values=self.request.values)
        except pyspy.PySpyFailed as error:
            told = _told_by_itself(target, min(self.until, time.monotonic() + _ANSWERS_WITHIN_S))
            if told is None:
                return failed(str(error), error.kind)
            return {"file": self._keep(target, "stacks", name, told), "told_by_itself_because": str(error)}
        for child in awaited_children(target):
            with contextlib.suppress(pyspy.PySpyFailed):  # one that has ended meanwhile is no loss
                target.threads += pyspy.stacks(child, within_s=min(left, 5.0), values=self.request.values)
        return {"file": self._keep(target, "stacks", name, json.dumps(target.threads).encode())}

    def _recorder(self, target: Target, number: int, state: str | None) -> dict[str, Any]:
        if state in ("T", "t"):
            return not_tried("the process is stopped")
        left = self.until - time.monotonic()
        if left <= 0:
            return _TIME_OVER
        try:
            if target.server is not None:
                found = recorder.ask_by_port(target.server, target.pid, target.rank, min(left, _ANSWERS_AGAIN_S))
            elif target.stem is None:
                return self._recorder_of_stranger(target, number, min(left, _ANSWERS_AGAIN_S))
            else:
                found = recorder.ask(Path(f"{target.stem}.recorder"), target.rank, min(left, 3.0))
        except RequestFailed as error:
            return failed(str(error))
        files = recorder.files_of(found, target.rank, number)
        return collected([self._keep(target, f"recorder.{part}", *file) for part, file in enumerate(files.items())])

    def _recorder_of_stranger(self, target: Target, number: int, within_s: float) -> dict[str, Any]:
        """Anew at the last look: what its device has completed meanwhile is progress."""
        if number < self.request.looks or (number == 1 and "file" in target.recorder):
            return target.recorder
        try:
            if "file" in target.recorder:
                return self._answer(target, ask_by_pipe(target.pid, target.rank), within_s, number)
        except RequestFailed as error:
            return failed(str(error))
        data = recorder.written_before(target.pid, target.rank)
        return target.recorder if data is None else self._pickle(target, number, data)

    def _rarest(self, count: int) -> list[Target]:
        """One of each kind of stack: of the fewest ranks first, among equals those outside of torch.distributed.

        A rank that was a step further at its second look only crawls: it is not paused for a second on top.
        """
        still = [t for t in self.targets if t.threads and not _moves(t)]
        kinds = Counter(place_of(t) for t in self.targets)
        first = {place_of(t): t for t in reversed(still)}

        def communicates(target: Target) -> bool:
            return not _COMMUNICATES.isdisjoint(activities(judged_frames(target)))

        return [first[k] for k in sorted(first, key=lambda k: (kinds[k], communicates(first[k]), first[k].rank))][
            :count
        ]

    def _native(self, target: Target) -> None:
        left = self.until - time.monotonic()
        state = target.looks[-1]["process"].get("state")
        if left <= 0 or state in ("T", "t"):
            return
        try:
            found = pyspy.stacks(target.pid, within_s=min(left, 5.0), native=True, values=self.request.values)
        except pyspy.PySpyFailed as error:
            refused = pyspy.why_not_paused(target.pid)
            target.looks[-1]["native"] = failed(refused or str(error), NoStacks.REFUSED if refused else error.kind)
            return
        name = self._name(f"stacks/{target.rank:05d}.native.json", json.dumps(found))
        target.looks[-1]["native"] = {"file": name}

    # -- files ----------------------------------------------------------------------------------------------

    def _keep(self, target: Target, kind: str, name: str, data: bytes) -> str:
        """The name of the file that holds it: a hang's second look is its first, and wide jobs have many ranks."""
        before = target.kept.get(kind)
        if before is not None and before[0] == data:
            return before[1]
        target.kept[kind] = (data, self._name(name, data))
        return name

    def _keep_calls(self, target: Target) -> None:
        """The ring of calls is 64 KiB of zeros where there were none: those are not kept."""
        for kind in ("calls", "sites") if target.stem else ():
            with contextlib.suppress(OSError):
                if data := Path(f"{target.stem}.{kind}").read_bytes().rstrip(b"\0"):
                    self._write(f"calls/{target.rank:05d}.{kind}", data)

    def _keep_sources(self) -> None:
        """Scripts as they are now; a verdict that is built elsewhere can still show the line."""
        for file in dict.fromkeys(_files(self.targets)):
            if len(self.sources) >= MOST_SOURCES:
                return
            with contextlib.suppress(OSError):
                if (kept := read_kept_source(file)) is not None:
                    self.sources[file] = self._name(*kept)

    def _name(self, name: str, data: bytes | str) -> str:
        self._write(name, data)
        return name

    def _write(self, name: str, data: bytes | str) -> Path:
        path = self.folder / name
        make_private_folder(path.parent)
        write_whole(path, data.encode("utf-8", "backslashreplace") if isinstance(data, str) else data)
        return path


def _told_by_itself(target: Target, until: float) -> bytes | None:
    """The rank's own word, since the last look; None from one that nobody asked, or that does not get the GIL."""
    if target.server is not None:
        try:
            text = target.server.stacks(until - time.monotonic())
        except RequestFailed:
            return None
        target.threads = read_faulthandler_text(text.split("\n"), target.pid)
        return json.dumps(target.threads).encode() if target.threads else None
    if target.stem is None:
        return None
    path = Path(f"{target.stem}.stacks")
    while True:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            written = path.stat().st_mtime_ns
            if written > max(target.told_ns, time.time_ns() - _FRESH_NS):
                data = path.read_bytes()
                target.threads, target.told_ns = json.loads(data), written
                return data
        if time.monotonic() >= until:
            return None
        time.sleep(0.02)


def _account(looks: list[dict[str, Any]]) -> str | dict[str, str]:
    told = [seen[what] for seen in looks for what in ("stacks", "recorder")]
    if any("file" in item for item in told):
        return COLLECTED
    return next((item for item in told if item), _TIME_OVER)


def _page(target: Target) -> dict[str, Any] | None:
    if target.stem is None:
        return None
    page: Page | None = None
    with contextlib.suppress(OSError):
        page = read_page(Path(f"{target.stem}.page").read_bytes()[:PAGE_BYTES])
    if page is None or page.pid != target.pid:
        return None
    return PageReading.of(page, time.monotonic_ns(), time.time_ns()).fields()


def _moves(target: Target) -> bool:
    return len({(seen["page"]["step"], seen["page"]["user_step"]) for seen in target.looks if seen["page"]}) > 1


def _files(targets: list[Target]) -> Iterator[str]:
    for target in targets:
        for thread in target.threads:
            for frame in thread.get("frames", ()):
                name = str(frame.get("filename") or "")
                if name.startswith("/") and is_user(name):
                    yield name


def main() -> int:
    request = CaptureRequest.from_record(json.load(sys.stdin))
    folder = Path(request.folder)
    make_private_folder(folder)
    if shutil.disk_usage(folder).free < 4 << 20:
        sys.stderr.write("there is no room for a dump\n")
        return 1
    if request.parent:
        die_with_parent(request.parent, signal.SIGKILL)
    capture = Capture(request)
    capture.run()
    sys.stdout.write(json.dumps({"ranks": capture.accounts()}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
