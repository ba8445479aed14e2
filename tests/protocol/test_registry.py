"""The registry has every message that distdbg writes: no event, fact or op that is not in it, no field that is not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from distdbg.protocol import agent_events, events, facts, launcher_events
from distdbg.protocol.message import SCHEMA, Event, Fact, Message, RankMessage, Unreadable
from distdbg.protocol.requests import Question, Request, read_request

PACKAGE = Path(facts.__file__).resolve().parent.parent
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "protocol"]
# One worker of pytest-xdist runs them all: the sources are parsed once.
pytestmark = pytest.mark.xdist_group("source")
KINDS = [*Event.kinds.values(), *Fact.kinds.values(), *RankMessage.kinds.values()]
#: Envelopes on the wire, with an event in them.
ENVELOPES = {"launch/link/wire.py"}
#: They pass on a name that their caller has chosen.
PASSES_ON = {"worker/agent_files.py", "worker/context.py", "worker/link.py"}


class Written(NamedTuple):
    """`name` is None where it is no literal; `fields` None where not all are written there."""

    registry: type[Message]
    name: str | None
    fields: frozenset[str] | None
    place: str


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def written() -> tuple[Written, ...]:
    found: list[Written] = []
    for path in SOURCES:
        name = path.relative_to(PACKAGE).as_posix()
        for node in nodes(path):
            found += _of_call(node, name) if isinstance(node, ast.Call) else ()
    return tuple(found)


def _of_call(call: ast.Call, path: str) -> Iterator[Written]:
    function, place = ast.unparse(call.func), f"{path}:{call.lineno}"
    receiver, _, method = function.rpartition(".")
    receiver = receiver.rpartition(".")[2].strip("_")
    first = call.args[0] if call.args else None
    if method == "fact" and receiver in ("context", "self", "rank"):
        yield Written(Fact, _text(first), _keywords(call), place)
    elif (receiver, method) == ("link", "send") and path.startswith("worker/"):
        fields = call.args[1]
        keys = _keys(fields) if isinstance(fields, ast.Dict) else None
        if _text(first) != "fact":
            yield Written(RankMessage, _text(first), keys, place)
        elif isinstance(fields, ast.Dict):
            kinds = [v for k, v in zip(fields.keys, fields.values, strict=True) if _text(k) == "kind"]
            yield Written(Fact, _text(kinds[0]) if kinds else None, None, place)
    elif function == "AgentFiles":
        yield Written(RankMessage, _text(call.args[1]), None, place)


def _text(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _keywords(call: ast.Call) -> frozenset[str] | None:
    names = [keyword.arg for keyword in call.keywords]
    return None if None in names else frozenset(n for n in names if n is not None)


def _keys(display: ast.Dict) -> frozenset[str] | None:
    names = [_text(key) for key in display.keys]
    return None if None in names else frozenset(n for n in names if n is not None)


def test_no_message_is_written_that_is_not_registered() -> None:
    found = [w for w in written() if w.name is not None]
    assert len(found) > 35, "the calls that write have another form now: the test must find them"
    wrong = [
        f"{w.place} writes {w.name!r}: add it to distdbg/protocol" for w in found if w.name not in w.registry.kinds
    ]
    assert not wrong


def test_no_field_is_written_that_is_not_registered() -> None:
    wrong = []
    for w in written():
        kind = w.registry.kinds.get(w.name or "")
        if kind is not None and w.fields is not None and not kind.is_open():
            wrong += [f"{w.place} writes {field!r} of {w.name!r}" for field in sorted(w.fields - kind.types.keys())]
    assert not wrong


def test_a_name_is_a_literal_except_where_it_is_passed_on() -> None:
    assert {w.place.partition(":")[0] for w in written() if w.name is None} <= PASSES_ON


def test_an_event_is_only_made_by_its_class() -> None:
    """Node.event and Journal.note take nothing else, as mypy checks; a dict with an event in it would bypass them."""
    wrong = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {ast.unparse(node)[:60]}: use a class of distdbg/protocol"
        for path in SOURCES
        if path.relative_to(PACKAGE).parts[0] in ("launch", "worker", "cli", "collect")
        for node in nodes(path)
        if isinstance(node, ast.Dict) and "event" in map(_text, node.keys)
        if path.relative_to(PACKAGE).as_posix() not in ENVELOPES
    ]
    assert not wrong


def test_a_request_is_only_made_by_its_class() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {ast.unparse(node)[:60]}: use protocol/requests.py"
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.Dict) and "request" in map(_text, node.keys)
    ]
    assert not wrong


def test_every_request_and_question_is_made_and_answered() -> None:
    made = {n for path in SOURCES for n in re.findall(r"\b(\w+)\(", path.read_text(encoding="utf-8"))}
    for kind in (*Request.kinds.values(), *Question.kinds.values()):
        assert kind.__name__ in made, kind.spec.name
    session = (PACKAGE / "worker" / "session.py").read_text(encoding="utf-8")
    assert set(re.findall(r'\bop == "([a-z-]+)"', session)) == Question.kinds.keys()


def test_a_request_goes_to_all_nodes_but_one() -> None:
    record = Request.kinds["exceptions"]().record(except_node=1)
    assert read_request(record, 1) is None
    assert isinstance(read_request(record, 0), Request.kinds["exceptions"])
    assert read_request({"request": "profile", "first": "one"}, 0) is None, "a number is missing"
    assert read_request({"request": "unknown"}, 0) is None


def test_every_kind_is_written_somewhere() -> None:
    names = {(w.registry, w.name) for w in written()}
    words = {word for path in SOURCES for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    elsewhere = {
        "time-up": "slurm/job.sbatch",
        "start": "launch/agent/logs_specs.py",
        "ends": "launch/agent/logs_specs.py",
    }
    missing = [
        kind.spec.name
        for kind in KINDS
        if not any((registry, kind.spec.name) in names for registry in (Fact, RankMessage))
        if not (issubclass(kind, Event) and kind.__name__ in words)
        if kind.spec.name not in elsewhere
    ]
    assert not missing


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.spec.name)
def test_every_kind_is_described(kind: type[Message]) -> None:
    assert (
        kind.spec.by in ("worker", "torchrun", "replay", "agent", "keeper", "launcher")
        and 1 <= kind.spec.since <= SCHEMA
    )
    assert not (kind.types.keys() & {"t", "op", "event_"})
    assert bool(kind.spec.lost) == bool(kind.spec.because)


def test_a_message_becomes_a_record_and_is_read_again() -> None:
    message = launcher_events.AgentExited(node_rank=3, exit_code=70, because="ssh: no route")
    assert message.fields() == {"node_rank": 3, "exit_code": 70, "because": "ssh: no route"}
    again = launcher_events.AgentExited.from_record({"t": 1.0, "event": "agent-exited", **message.fields()})
    assert (again.node_rank, again.exit_code, again.host, again.because) == (3, 70, "", "ssh: no route")


def test_open_fields_stand_beside_the_listed_ones() -> None:
    guard_fact = facts.GuardReport(guard="overfit", mode="warn", step=3, where=None, more={"ended": "as asked"})
    assert guard_fact.fields() == {"guard": "overfit", "mode": "warn", "step": 3, "where": None, "ended": "as asked"}
    assert facts.GuardReport.from_record(guard_fact.fields()).more == {"ended": "as asked"}


@pytest.mark.parametrize("value", [None, "3", 3.5, True, [3], 2**70])
def test_a_number_of_another_type_is_unreadable(value: Any) -> None:
    with pytest.raises(Unreadable):
        launcher_events.AgentExited.from_record({"node_rank": value, "exit_code": 1})


def test_old_and_foreign_records_are_read_as_far_as_they_go() -> None:
    assert launcher_events.Cancelled.from_record({}).by == ""
    assert launcher_events.Requeued.from_record({"without": "node1", "because": 3}).fields() == {
        "because": "",
        "without": [],
    }
    assert agent_events.AttemptStarted.from_record({"ranks": {"0": 0}}).attempt == 1
    assert launcher_events.Launched.from_record({"nodes": "two"}).nodes is None


def test_a_message_without_its_fields_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="guard-failed has no error"):
        facts.GuardFailed(guard="x")
    with pytest.raises(TypeError, match="guard-failed has no field eror"):
        facts.GuardFailed(guard="x", error="y", eror="z")


def test_what_is_not_registered_is_no_failure() -> None:
    for record in ({}, {"event": 3}, {"event": "who-knows"}, {"event": []}, {"op": "fact", "kind": []}, {"op": {}}):
        assert events.failure_of(record) is None and facts.failure_of(record) is None


@pytest.mark.parametrize(
    ("kind", "field", "good", "bad"),
    [
        (agent_events.GpuXid, "ranks", [1, 2], [1, [2]]),
        (agent_events.GpuXid, "ranks", [], [2**70]),
        (agent_events.AgentStarted, "argv", ["a"], ["a", None]),
        (agent_events.Reached, "why_not", {"a": None, "b": "x"}, {"a": 1}),
        (agent_events.AttemptStarted, "ranks", {"0": 0}, {"0": "0"}),
    ],
)
def test_a_list_or_object_with_an_item_of_another_type_counts_as_missing(kind, field, good, bad):
    record = {"xid": 1, "uuid": "", "attempt": 1}
    assert getattr(kind.from_record({**record, field: good}), field) == good
    assert getattr(kind.from_record({**record, field: bad}), field) in ([], {})
