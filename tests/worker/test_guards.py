"""A guard that fails is off, and nothing else is: every one of them is made to raise."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch as _torch  # noqa: F401 -- a rank has it loaded where a guard asks sys.modules for it

from distdbg.worker.guards import guard_classes, read_modes
from distdbg.worker.guards.shared.base import Guard, GuardContext
from distdbg.worker.guards.shared.runner import GuardRunner
from distdbg.worker.hooks.bus import EVENTS, Bus
from distdbg.worker.hooks.importing import ImportWatch
from distdbg.worker.models import LastModel
from distdbg.worker.page import BACKWARD, BACKWARDS, OTHER, STEPS, PageWriter
from distdbg.worker.user_code import is_ignored

GUARDS = list(guard_classes())
#: What GuardRunner calls: all else of a guard is called by the bus.
CALLED_BY_RUNNER = ("begin", "open_window", "close_window", "window", "window_ends", "look_at_loss", "finish")


class Ears(Bus):
    """A bus that listens to no torch."""

    def _install_later(self, point):
        pass

    def of(self, kind):
        return [s for subscribers in self._subscribers.values() for s in subscribers if type(s.__self__) is kind]


class Stand:
    """A rank's guards, with a page and a list in place of an agent."""

    def __init__(self, folder, modes=None):
        self.reported, self.failed, self.dropped = [], [], []
        self.page = PageWriter(str(folder / "page"), 0, 1)
        self.bus = Ears(ImportWatch(lambda *_: None), self._dropped)
        self.bus.subscribe("step", self.page.ticker(OTHER, STEPS).__call__)
        self.bus.subscribe("backward", self.page.ticker(BACKWARD, BACKWARDS).__call__)
        context = SimpleNamespace(rank=0, bus=self.bus, page=self.page, fact=self._tell, model=LastModel())
        self.runner = GuardRunner(GuardContext(context, modes or {}))

    def _tell(self, kind, **fields):
        self.reported.append((kind, fields))
        if kind == "guard-failed":
            self.failed.append((fields["guard"], fields["error"]))
        return True

    def _dropped(self, _event, subscriber, error):
        self.dropped.append(subscriber)
        self.runner.subscriber_failed(subscriber, error)

    def hear(self, event, subject):
        self.bus.channel(event)[0](subject)


class Subject:
    """Nothing that a guard knows: it has no attribute that could be of use."""

    param_groups = ()
    training = False
    f_locals: ClassVar = {}
    f_code = (lambda: None).__code__


Subject._index_sampler = Subject()


def listeners(guard):
    """What the bus calls of it, inherited methods included."""
    own = guard.__mro__[: guard.__mro__.index(Guard)]
    methods = {name for cls in own for name, value in vars(cls).items() if callable(value)}
    return sorted(methods - {*CALLED_BY_RUNNER, "__init__"})


CASES = [(g, w) for g in GUARDS for w in ("a subscriber", *CALLED_BY_RUNNER) if w != "a subscriber" or listeners(g)]


@pytest.mark.parametrize(("broken", "where"), CASES, ids=lambda c: c if isinstance(c, str) else c.id)
def test_a_guard_that_raises_is_off_and_the_others_stay(tmp_path, monkeypatch, broken, where):
    def raises(*_, **__):
        raise ValueError("planted")

    for name in listeners(broken) if where == "a subscriber" else [where]:
        monkeypatch.setattr(broken, name, raises)
    stand = Stand(tmp_path, {broken.id: "warn"})
    stand.runner.begin()
    for _ in range(15):
        for event in EVENTS:
            stand.hear(event, (Subject(), None) if event == "pass-begins" else Subject())
    stand.runner.finish()
    assert stand.failed == [(broken.id, "ValueError('planted')")]
    assert stand.bus.of(broken) == []
    assert stand.page.steps() == 15, "what is no guard's listens on"


class Writer:
    """As torch's: the file is written by the time that `with` ends."""

    def __init__(self, name):
        self.name = self.file = name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        Path(self.file).write_text("new")


@pytest.fixture
def mending(tmp_path, monkeypatch):
    """A rank's guards on a torch that only saves; what it tells, and its module."""
    torch = SimpleNamespace(_open_zipfile_writer_file=Writer)
    monkeypatch.setitem(sys.modules, "torch.serialization", torch)
    stand = Stand(tmp_path, {"all": "off", "checkpoint-not-atomic": "fix"})
    stand.runner.begin()
    yield stand, torch
    stand.runner.finish()
    assert torch._open_zipfile_writer_file is Writer


def test_a_guard_that_fails_to_publish_mends_no_more_and_the_file_has_its_name(mending, tmp_path):
    stand, torch = mending

    def raises(*_, **__):
        raise ValueError("planted")

    stand.runner.context.saves.publish.append(raises)
    file = tmp_path / "saves" / "last.pt"
    file.parent.mkdir()
    with torch._open_zipfile_writer_file(str(file)) as writer:
        assert (writer.name, writer.file) == (str(file), f"{file.with_suffix('')}.distdbg-00000-0")
    assert [f.name for f in file.parent.iterdir()] == ["last.pt"] and file.read_text() == "new"
    assert [(kind, reported["guard"]) for kind, reported in stand.reported] == [
        ("guard-failed", "checkpoint-not-atomic")
    ]
    assert torch._open_zipfile_writer_file is Writer


def test_what_cannot_be_replaced_is_written_in_place(mending, tmp_path, monkeypatch):
    _, torch = mending
    file = tmp_path / "last.pt"
    file.write_text("old")
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1))
    for name in (str(file), "/dev/null", str(tmp_path / ".hidden")):
        assert torch._open_zipfile_writer_file(name).file == name


def test_modes_are_read_leniently():
    assert read_modes("a=off, b = fix,,c") == {"a": "off", "b": "fix"}
    assert read_modes("") == {}


def test_a_comment_silences_its_own_id(tmp_path):
    script = tmp_path / "script.py"
    lines = ["x()  # distdbg: ignore[a, b]", "x()", "# distdbg: ignore[a]", "x()", "x()  # distdbg: ignore"]
    script.write_text("\n".join(lines))
    assert [is_ignored("a", [str(script), n, "f"]) for n in range(1, 6)] == [True, False, True, True, True]
    assert not is_ignored("c", [str(script), 1, "f"])
    assert not is_ignored("a", None)
    (tmp_path / "whole.py").write_text("# distdbg: ignore-file[a]\nx()\n\nx()")
    assert [is_ignored(name, [str(tmp_path / "whole.py"), n, "f"]) for n in (2, 4) for name in "ab"] == [
        True,
        False,
    ] * 2


def test_a_guard_speaks_a_few_times_and_once_a_line(tmp_path):
    stand = Stand(tmp_path)
    guard = Guard(stand.runner.context)
    assert guard.report(["a.py", 1, "f"]) and not guard.report(["a.py", 1, "g"])
    for line in range(100):
        guard.report(["b.py", line, "f"])
    assert len(stand.reported) == guard.most


def test_windows_open_near_the_start_and_then_each_thousand(tmp_path):
    stand = Stand(tmp_path)
    seen = []

    class Watching(Guard):
        id = "watching"

        def window(self):
            seen.append(stand.page.steps())

        def window_ends(self):
            seen.append(-stand.page.steps())

    stand.runner._guards.append(Watching(stand.runner.context))
    stand.runner.context.page.at_step(1, stand.runner._toggle_window)
    tick = stand.page.ticker(OTHER, STEPS)
    for _ in range(3500):
        tick(None)
    assert seen == [1, -11, 100, -110, 1000, -1010, 2000, -2010, 3000, -3010]
