"""What a test asked of the child that knows torch ends with the test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pkgutil import resolve_name

import pytest

from distdbg.shrink import asking, checking, making
from distdbg.shrink.checkpoint import plain
from distdbg.shrink.child import TASKS
from distdbg.shrink.estimate import estimating


@pytest.fixture(autouse=True)
def no_child(own_home: None) -> Iterator[None]:
    yield
    asking.dismiss()


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child's tasks run in this process, which spares a test the seconds that loading torch takes."""

    def ask(task: str, **arguments):
        return json.loads(json.dumps(resolve_name(TASKS[task])(json.loads(json.dumps(arguments)))))

    for module in (making, checking, estimating, plain):
        monkeypatch.setattr(module, "ask", ask)
