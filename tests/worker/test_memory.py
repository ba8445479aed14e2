"""`--memory` inside a rank: lines a phase, CUDA's history and snapshots by a fake CUDA, the census, the host's side."""

import collections
import contextlib
import gc
import gzip
import importlib
import json
import os
import re
import sys
import threading
import types
import weakref
from typing import NamedTuple

import pytest

from distdbg.collect.files.snapshot_files import read_snapshot_file
from distdbg.launch.agent.node import Node
from distdbg.launch.agent.rank_connections import take_and_report
from distdbg.protocol.agent_events import MemorySnapshot
from distdbg.rundir import RunDir
from distdbg.worker.hooks.bus import Bus
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.memory import figures, snapshots
from distdbg.worker.memory.census import ContainerCensus, CycleDetector
from distdbg.worker.memory.holders import holder_of
from distdbg.worker.memory.snapshots import ENTRIES, History, SnapshotWriter
from distdbg.worker.memory.watch import MemoryWatch, read_steps
from distdbg.worker.user_code import variables
from tests.made_snapshot import Made, snapshot, train
from tests.worker.test_session import Rank

pytestmark = pytest.mark.slow  # torch in this process


class FakeSession:
    """A session that keeps what it would have sent."""

    def __init__(self, folder):
        self.stem, self.rank, self.reported, self.steps = f"{folder}/00003", 3, [], 0
        self.link = types.SimpleNamespace(send=lambda op, fields, **_: self.reported.append({"op": op, **fields}))
        self.page = types.SimpleNamespace(steps=lambda: self.steps, batches=lambda: 0, epochs=lambda: 0)
        self.model = types.SimpleNamespace(newest=lambda: None)
        self.bus = Bus(ImportWatch(print), lambda *why: pytest.fail(str(why)))

    def fact(self, kind, **fields):
        self.reported.append({"op": "fact", "kind": kind, **fields})

    def said(self, what):
        return [reported for reported in self.reported if what in (reported["op"], reported.get("kind"))]


class FakeCuda(types.SimpleNamespace):
    """torch.cuda as 2.13 has it, as far as we ask: lazily begun, one nested dict of counts, a snapshot."""

    def __init__(self, old=False):
        self.begun, self.queue, self.recorded, self.observers, self.taken = False, [], [], [], 0
        self.stats = {name: {"all": {"current": n, "peak": 2 * n}} for name, n in
                      (("allocated_bytes", 100), ("reserved_bytes", 300))}  # fmt: skip
        made = Made()
        train(made, 6)
        self.state = snapshot(made)
        self.memory = types.SimpleNamespace(
            memory_stats_as_nested_dict=lambda: self.stats,
            _snapshot=self._snapshot,
            _record_memory_history=self._record,
        )
        self.old = old
        self.entered = []

    def is_available(self):
        return True

    def is_initialized(self):
        return self.begun

    def mem_get_info(self):
        return 400, 1000

    def device_count(self):
        return 3

    def memory_reserved(self, index):
        return 300 if index == 2 else 0

    def device(self, index):
        self.entered.append(index)
        return contextlib.nullcontext()

    def _lazy_call(self, call):
        call() if self.begun else self.queue.append(call)

    def begin(self):
        for call in self.queue:
            call()
        self.begun = True

    def _record(self, enabled="all", context="all", stacks="all", max_entries=sys.maxsize, **more):
        if self.old and more:
            raise TypeError("_record_memory_history() got an unexpected keyword argument")
        self.recorded.append({"context": context, "stacks": stacks, "max_entries": max_entries, **more})

    def _snapshot(self):
        self.taken += 1
        return self.state


@pytest.fixture
def session(tmp_path):
    return FakeSession(tmp_path)


@pytest.fixture
def cuda(monkeypatch, request):
    fake = FakeCuda()
    c = types.SimpleNamespace(
        _cuda_attach_out_of_memory_observer=fake.observers.append,
        DisableTorchFunctionSubclass=contextlib.nullcontext,
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=fake, _C=c, Tensor=type("Tensor", (), {})))
    return fake


def test_a_ring_is_bounded_and_begins_with_cuda_not_before(session, cuda):
    history = History(session)
    history.begin(SnapshotWriter(session, history).ran_out)
    assert cuda.recorded == [] and not history.recording, "we do not begin CUDA"
    cuda.begin()
    (how,) = cuda.recorded
    assert (how["stacks"], how["max_entries"], how["context"]) == ("python", ENTRIES, "alloc")
    assert how["global_record_annotations"] is True, "the optimizers' names are the steps' marks"
    assert session.said("memory-history")[0] == {
        "op": "fact", "kind": "memory-history", "recorded": True, "entries": ENTRIES, "observed": True}  # fmt: skip


def test_a_snapshot_is_taken_on_the_gpu_that_the_rank_uses(session, cuda):
    """A thread of ours begins with GPU 0: to ask about it would begin a context there."""
    cuda.begin()
    SnapshotWriter(session, None).take("asked")
    assert cuda.entered == [2]


def test_an_older_torch_records_without_annotations_and_without_an_observer(session, cuda, monkeypatch):
    cuda.old = True
    monkeypatch.delattr(sys.modules["torch"]._C, "_cuda_attach_out_of_memory_observer")
    history = History(session)
    history.begin(SnapshotWriter(session, history).ran_out)
    cuda.begin()
    assert "global_record_annotations" not in cuda.recorded[0]
    assert history.recording and not history.observed


def test_what_goes_wrong_in_torchs_start_of_cuda_is_reported_and_not_raised(session, cuda):
    def broken(**_):
        raise RuntimeError("no such thing")

    cuda.memory._record_memory_history = broken
    History(session).begin(None)
    cuda.begin()
    assert session.said("memory-history")[0]["because"] == "RuntimeError('no such thing')"


def test_a_phases_figures_are_those_at_its_end(session, cuda):
    cuda.begin()
    MemoryWatch(session, range(0))
    tell = {event: session.bus.channel(event) for event in ("backward", "optimizer", "step", "data-end")}
    for step, sizes in enumerate(((100, 50, 60), (110, 50, 60)), 1):
        session.steps = step
        for event, size in zip(("backward", "optimizer", "step"), sizes, strict=True):
            cuda.stats["allocated_bytes"]["all"] = {"current": size, "peak": 120}
            tell[event][0](None)
    first = session.said("memory")[0]
    assert first["step"] == 1 and list(first["phases"]) == ["forward", "backward", "optimizer"]
    assert [p["MA"] for p in first["phases"].values()] == [100, 50, 60]
    assert first["phases"]["forward"] | {"RSS": 0, "ANON": 0, "DATA": 0} == {
        "RSS": 0,
        "ANON": 0,
        "DATA": 0,
        "MA": 100,
        "Max_MA": 120,
        "CA": 300,
        "Max_CA": 600,
    }
    assert (first["NV"], first["NV_total"]) == (600, 1000), "outside of torch is 600 - 300"
    assert 0 < first["PSS"] <= 2 * first["phases"]["forward"]["RSS"]


@pytest.fixture
def texts(cuda):
    """What stands beside the events of the fake's history, as torch 2.13 keeps it."""
    said = [""]
    c = sys.modules["torch"]._C
    c._cuda_setMemoryMetadata, c._cuda_getMemoryMetadata = said.append, lambda: said[-1]
    return said


def test_step_and_phase_stand_beside_each_event(session, cuda, texts):
    cuda.begin()
    MemoryWatch(session, range(0))
    for event in ("backward", "optimizer"):
        session.bus.channel(event)[0](None)
    session.steps = 1
    session.bus.channel("step")[0](None)
    assert texts[1:] == ["ddbg 1 b", "ddbg 1 o", "ddbg 2 f"]
    assert all(re.fullmatch(r"ddbg \d+ [fbo]", text) and len(text) < 16 for text in texts[1:])


def test_what_the_script_has_put_there_stays(session, cuda, texts):
    cuda.begin()
    MemoryWatch(session, range(0))
    session.bus.channel("backward")[0](None)
    texts.append("its own")
    session.bus.channel("optimizer")[0](None)
    assert texts[-1] == "its own"
    texts.append("")
    session.bus.channel("step")[0](None)
    assert texts[-1].startswith("ddbg")


def test_without_a_history_nothing_is_marked(session, cuda, texts):
    MemoryWatch(session, range(0))
    session.bus.channel("backward")[0](None)
    assert texts == [""], "CUDA has not begun"


def test_with_accumulation_a_phase_has_the_highest_of_its_ends(session, cuda):
    cuda.begin()
    MemoryWatch(session, range(0))
    for size in (10, 90, 40):
        cuda.stats["allocated_bytes"]["all"]["current"] = size
        session.bus.channel("backward")[0](None)
    session.bus.channel("step")[0](None)
    assert session.said("memory")[0]["phases"]["forward"]["MA"] == 90


def test_an_epochs_end_is_a_phase_of_its_own_and_counted_whether_it_has_a_line_or_not(session, cuda):
    cuda.begin()
    session.page.batches = lambda: 4
    watch = MemoryWatch(session, range(0))
    tell = {event: session.bus.channel(event) for event in ("backward", "optimizer", "step", "data-end")}

    def epoch(step, size, due):
        session.steps, watch._on = step, True
        for event in ("backward", "optimizer", "step"):
            tell[event][0](None)
        watch._due = due
        session.page.epochs = lambda: step // 4
        cuda.stats["allocated_bytes"]["all"] = {"current": size, "peak": 900}  # what an evaluation has left behind
        tell["data-end"][0](None)

    epoch(4, 70, due=1 << 62)
    assert [line["step"] for line in session.said("memory")] == [4], "so soon after a line there is none"
    epoch(8, 80, due=0)
    _, step, end = session.said("memory")
    assert (step["step"], step["epochs"], list(step["phases"])) == (8, 1, ["forward", "backward", "optimizer"])
    assert (end["step"], end["epochs"], list(end["phases"])) == (8, 2, ["epoch"])
    assert (end["phases"]["epoch"]["MA"], end["phases"]["epoch"]["Max_MA"]) == (80, 900)
    assert watch._census.epochs == 2


def test_lines_grow_rarer_with_their_cost(session, monkeypatch):
    """Quick steps: not each of them has a line."""
    MemoryWatch(session, range(0))
    step = session.bus.channel("step")
    for number in range(5000):
        session.steps = number
        step[0](None)
    assert 1 <= len(session.said("memory")) < 500


def test_a_failed_request_leaves_a_snapshot_that_can_be_read(session, cuda, tmp_path):
    history = History(session)
    snapshots = SnapshotWriter(session, history)
    history.begin(snapshots.ran_out)
    cuda.begin()
    session.steps = 41
    (observer,) = cuda.observers
    for _ in range(5):
        observer(0, 1 << 20, 2 << 20, 0)
    assert cuda.taken == 3, "a script that looks for a batch that fits fails again and again"
    reported = session.said("snapshot")[0]
    assert reported["why"] == "oom" and reported["missing"] == ""
    packed, host = reported["files"]
    assert packed["name"] == "oom-step000041-001.pickle.gz" and host["name"].endswith(".host.json.gz")
    (answer,) = read_snapshot_file(tmp_path / packed["file"], packed["file"])
    assert answer.events > 0 and answer.peak.active > 0
    assert not list(tmp_path.glob("*.tmp"))


def test_an_error_is_a_failed_request_where_nobody_saw_it(session, cuda):
    cuda.begin()
    snapshots = SnapshotWriter(session, None)
    snapshots.failed(ValueError("x"))
    assert cuda.taken == 0
    snapshots.failed(type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory"))
    assert cuda.taken == 1
    assert "launched without --memory" in session.said("snapshot")[0]["missing"]


def test_the_error_that_ends_the_script_has_a_snapshot_however_many_were_caught(session, cuda):
    ended = type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory")
    snapshots = SnapshotWriter(session, None)
    cuda.begin()
    for _ in range(5):
        snapshots.ran_out(0, 1, 2, 3)
    session.steps = 400
    snapshots.failed(ended)
    assert session.said("snapshot")[-1]["files"][0]["name"] == "oom-step000400-004.pickle.gz"
    once = SnapshotWriter(session, None)
    once.ran_out(0, 1, 2, 3)
    once.failed(ended)
    assert cuda.taken == 5, "what the observer has seen needs no second one"


def test_many_steps_snapshots_leave_room_for_the_error(session, cuda):
    snapshots = SnapshotWriter(session, None)
    snapshots.taken = 200
    snapshots.take("step")
    snapshots.ran_out()
    assert ["because" in reported for reported in session.said("snapshot")] == [True, False]


def torn(path):
    os.truncate(path, os.path.getsize(path) - 5)


def bent(path):
    with open(path, "r+b") as file:
        file.seek(20)
        byte = file.read(1)[0]
        file.seek(20)
        file.write(bytes([byte ^ 255]))


@pytest.mark.parametrize("spoil", [torn, bent])
def test_what_reads_otherwise_than_it_was_written_is_reported_and_leaves_nothing(session, tmp_path, monkeypatch, spoil):
    """A disk that takes a file and does not keep it."""
    check = snapshots._check
    monkeypatch.setattr(snapshots, "_check", lambda path, length: (spoil(path), check(path, length)))
    SnapshotWriter(session, None).take("asked", 7)
    (reported,) = session.said("snapshot")
    assert reported["id"] == 7 and "ValueError" in reported["because"]
    assert not [path for path in tmp_path.iterdir() if "memory" in path.name]


def test_a_snapshot_leaves_room_for_the_loaders(session, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "free_bytes", lambda _: 0)
    SnapshotWriter(session, None).take("asked", 7)
    (reported,) = session.said("snapshot")
    assert "no room to spare" in reported["because"]
    assert not [path for path in tmp_path.iterdir() if "memory" in path.name]


def test_what_cannot_be_written_is_reported_and_not_raised(session):
    session.stem = "/nowhere/00003"
    SnapshotWriter(session, None).take("asked", 7)
    (reported,) = session.said("snapshot")
    assert reported["id"] == 7 and "No such file" in reported["because"]


def test_without_cuda_the_host_tells_and_says_what_is_missing(session, tmp_path):
    torch = pytest.importorskip("torch")
    kept = [torch.ones(3000, 1000) for _ in range(7)]
    nowhere = [torch.empty(n, 1 << 30, device="meta") for n in range(1, 60)]  # of no size, whatever they say
    SnapshotWriter(session, None).take("asked", 1)
    (reported,) = session.said("snapshot")
    assert "no CUDA here" in reported["missing"]
    (file,) = reported["files"]
    found = json.loads(gzip.decompress((tmp_path / file["file"]).read_bytes()))
    (group,) = [g for g in found["groups"] if g["shape"] == [3000, 1000]]
    assert (group["count"], group["bytes"]["cpu"], group["kind"]) == (7, 7 * 12_000_000, "tensor")
    assert found["figures"]["RSS"] > 50 << 20 and found["gc"]["objects"] > 1000 and found["missing"]
    del kept, nowhere


class Holder:
    def __init__(self):
        self.kept = []

    def keep(self, one):
        self.kept.append(one)


def test_a_list_on_an_object_is_named_with_the_line_that_adds_to_it(session):
    census, holder, numbers = ContainerCensus(session), Holder(), []
    for step in range(1, 129):
        holder.keep(bytes(10_000))
        numbers.append(step)
        census.at(step)
    last = session.said("census")[-1]
    (found,) = last["growing"]
    assert found["name"].endswith(".kept") and found["rate"] == 1.0
    assert abs(found["bytes_a_step"] - 10_000) < 100 and found["file"] == __file__
    assert found["device_a_step"] == 0, "it is on the host"
    assert found["most"] is None, "nothing ends it"
    line = found["lines"][0]
    with open(__file__, encoding="utf-8") as source:
        assert source.read().splitlines()[line - 1].strip() == "self.kept.append(one)"


def test_a_ring_that_is_not_full_is_reported_with_its_length(session):
    census, rings = ContainerCensus(session), [collections.deque(maxlen=length) for length in (100, 10_000)]
    for step in range(1, 129):
        for ring in rings:
            ring.append(bytes(10_000))
        census.at(step)
    (found,) = session.said("census")[-1]["growing"]
    assert (found["most"], found["length"], found["rate"]) == (10_000, 128, 1.0)


class Point(NamedTuple):
    model: object
    data: bytes


class Output(collections.OrderedDict):
    """As a model's output of transformers: its entries are its attributes."""

    def __init__(self, data):
        super().__init__(data=data)
        self.data = data

    def __getattribute__(self, name):
        pytest.fail(f"asked for {name}")


class Slotted:
    __slots__ = ("parts",)

    def __init__(self, data):
        self.parts = [{"data": data}]


@pytest.mark.parametrize("kind", [Slotted, Output, lambda data: Point(MODEL, data)])
@pytest.mark.parametrize("into", [list, collections.OrderedDict, lambda: collections.defaultdict(int)])
def test_records_are_as_large_as_what_is_in_each_of_them(session, kind, into):
    """Without running their code, and without what they share."""
    census, kept = ContainerCensus(session), into()
    for step in range(1, 129):
        one = kind(bytes(10_000))
        kept.append(one) if type(kept) is list else kept.update({step: one})
        census.at(step)
    (found,) = session.said("census")[-1]["growing"]
    assert found["name"] == "kept" and 10_000 <= found["bytes_a_step"] < 12_000 and not found["graph"]


MODEL = [bytes(1 << 20)]


@pytest.mark.parametrize("until", [60, 90, 200])
def test_a_cache_that_is_full_is_not_in_the_last_count(session, until):
    census, cache = ContainerCensus(session), {}
    for step in range(1, 257):
        if step <= until:
            cache[step] = bytes(50_000)
        census.at(step)
    assert session.said("census")[-1]["growing"] == []


def test_graphs_in_a_list_are_reported_however_small(session):
    torch = pytest.importorskip("torch")
    census, losses, weight = ContainerCensus(session), [], torch.ones(2, requires_grad=True)
    for step in range(1, 129):
        losses.append((weight * 2).sum())
        census.at(step)
    (found,) = [g for g in session.said("census")[-1]["growing"] if g["length"] == len(losses) - 9 or g["graph"]]
    assert found["graph"] and found["name"] == "losses" and found["lines"]


class Looped:
    """Points at itself, as an object does that keeps one of its own bound methods."""

    def __init__(self, tensor, itself):
        self.tensor = tensor
        self.itself = self if itself else None


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("itself", [True, False])
def test_tensors_that_only_a_collection_frees_are_reported_with_their_owner(session, itself, asked):
    """`asked`: an instance has a `__dict__` of its own, as all have in Python 3.10. To look makes no cycle."""
    torch = pytest.importorskip("torch")
    held = [Looped(torch.zeros(1 << 16), itself) for _ in range(12)]
    assert not asked or all(vars(one) for one in held)
    cycles = CycleDetector(session)
    cycles.watch([one.tensor for one in held])
    held.clear()
    gc.collect()
    cycles.watch([])
    reported = session.said("cycles")
    assert bool(reported) is itself
    assert not any(getattr(c, "__self__", None) is cycles for c in gc.callbacks)
    if itself:
        assert reported[0]["freed"] == 12 and reported[0]["bytes"] == 12 << 18
        assert list(reported[0]["owners"]) == [f"Looped ({__file__})"]


def test_a_holder_that_nobody_names_is_none():
    found = holder_of(object())
    assert found == {}


def other_function():
    kept = []
    kept.append("somebody else's")
    return kept


def this_function():
    kept = []
    kept.append(1)
    return holder_of(kept)


def test_the_line_is_of_the_function_that_holds_it():
    line = this_function.__code__.co_firstlineno + 2
    assert this_function() == {"name": "kept", "file": __file__, "lines": [line]} and other_function()


def elsewhere(meter):
    """Adds to something of the same name as the meter's, in another file."""
    values = []
    values.append(2)
    meter.update(1)
    return holder_of(meter.values)


def test_the_line_of_an_objects_list_is_in_its_class_wherever_that_is(tmp_path, monkeypatch):
    """Or in one that it inherits from; another class of that file has a list of that name, too."""
    (tmp_path / "meters_of_a_test.py").write_text(
        "class Other:\n    def add(self, v):\n        self.values.append(0)\n\n\n"
        "class Base:\n    values: list\n    def update(self, v):\n        self.values.append(v)\n\n\n"
        "class Meter(Base):\n    def __init__(self):\n        self.values = []\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = elsewhere(importlib.import_module("meters_of_a_test").Meter())
    assert found == {"name": "meter.values", "file": str(tmp_path / "meters_of_a_test.py"), "lines": [9]}


def lists_of_a_dict():
    history = collections.defaultdict(list)
    history["rate"].append(0.1)
    history["loss"].append(object())
    kept = {"outputs": [], "others": []}
    for name in ("outputs", "others"):
        kept[name].append(1)
    return holder_of(history["loss"]), holder_of(kept["others"])


def test_a_list_in_a_dict_is_named_with_its_key():
    """Where no line names its key, with those that name any."""
    first = lists_of_a_dict.__code__.co_firstlineno
    loss, others = lists_of_a_dict()
    assert (loss["name"], loss["lines"]) == ("history['loss']", [first + 3])
    assert (others["name"], others["lines"]) == ("kept['others']", [first + 6])


def test_an_attribute_is_named_as_it_is_called():
    class Outer:
        def __init__(self):
            self.inner, self.other = Holder(), 1

    boxed = [Outer()]
    boxed[0].inner.keep(1)
    found = holder_of(boxed[0].inner.kept)
    assert found["name"] == "Holder.kept"


def try_twice(torch, elsewhere=None):
    """A training loop that is looked at when its first try has failed, and has then let go of it."""
    output = torch.zeros(700, 12340)  # larger than what other tests have left
    gone = weakref.ref(output)
    found = elsewhere() if elsewhere else holder_of(output)["name"]
    output = torch.zeros(2, 3)
    gc.collect()
    return found, gone() is None, output.shape


def test_whoever_looks_for_a_holder_keeps_nothing_alive(session):
    """Neither within the loop's thread nor from another one, as a snapshot that is asked for while it runs."""
    torch = pytest.importorskip("torch")

    def elsewhere():
        thread = threading.Thread(target=SnapshotWriter(session, None).take, args=("asked", 1))
        thread.start()
        thread.join()
        (file,) = session.said("snapshot")[0]["files"]
        with gzip.open(f"{os.path.dirname(session.stem)}/{file['file']}") as reported:
            return next(one["name"] for one in json.load(reported)["largest"] if one["shape"] == [700, 12340])

    assert try_twice(torch) == try_twice(torch, elsewhere) == ("output", True, (2, 3))


def test_what_a_script_knows_of_its_own_variables_stays_as_it_is():
    def configured(rate):
        given = locals()
        model = object()
        variables(sys._getframe())
        return given, model

    def executed():
        exec("hidden = 5")
        variables(sys._getframe())
        return eval("hidden") if sys.version_info < (3, 13) else 5

    def theirs():
        return sys._getframe(1).f_locals

    def watched():
        mine = theirs()
        two = 2
        return variables(sys._getframe())["two"], mine.get("two"), two

    def traced():
        """A debugger's prompt, in whose hands the variables are."""
        one = 1

        def tracer(frame, event, _):
            if event == "line":
                variables(frame)
            return tracer

        sys._getframe().f_trace = tracer
        sys.settrace(tracer)
        try:
            one += 1
            return one
        finally:
            sys.settrace(None)

    assert configured(0.1)[0] == {"rate": 0.1} and executed() == 5
    assert watched() == (2, 2, 2) and traced() == 2


def test_steps_are_read():
    assert list(read_steps("10:12")) == [10, 11, 12] and list(read_steps("4")) == [4] and not read_steps("")


def test_figures_of_a_process_without_a_gpu_are_the_hosts():
    found = figures.quick()
    assert set(found) == {"RSS", "ANON", "DATA"} and found["RSS"] > found["ANON"] > 1 << 20
    assert {"PSS", "SHM"} <= set(figures.slow())


class Disk:
    def __init__(self):
        self.did = []

    def take(self, path, source):
        self.did.append((path, source))

    def append(self, path, data):
        self.did.append((path.name, json.loads(data)))


def test_the_agent_follows_no_name_that_leads_elsewhere(tmp_path):
    node = Node(RunDir(tmp_path), 0, "host", tmp_path / "node", 1, Disk())
    files = [{"file": "../../etc/passwd", "name": "x"}, {"file": "00003.memory-a", "name": "a"}]
    take_and_report(node, MemorySnapshot, tmp_path / "memory", 3, {"id": 1, "files": files, "why": "oom"})
    moved, (name, event) = node.disk.did
    assert moved == (tmp_path / "memory" / "a", tmp_path / "node" / "00003.memory-a")
    assert name == "events.jsonl" and event["files"] == ["a"] and event["rank"] == 3


def test_a_rank_tells_lines_and_takes_its_snapshots(tmp_path):
    source = """
        import torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(25):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    """
    rank = Rank(tmp_path, source, DISTDBG_MEMORY="on", DISTDBG_MEMORY_STEPS="3:4")
    assert rank.process.returncode == 0, rank.err
    assert [s["step"] for s in rank.said("snapshot")] == [3, 4]
    assert list(rank.said("memory")[0]["phases"]) == ["forward", "backward", "optimizer"]
    assert [f["step"] for f in rank.said("fact") if f["kind"] == "census"] == [16]
    for reported in rank.said("snapshot"):
        assert os.path.exists(rank.node_dir / reported["files"][0]["file"])


def test_not_asked_for_nothing_of_it_is_loaded(tmp_path):
    rank = Rank(tmp_path, "import sys, torch; print([m for m in sys.modules if 'worker.memory.' in m])")
    assert rank.out == "[]\n"
