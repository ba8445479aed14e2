"""A trace's text becomes its events, however it is cut into pieces, and says where it stops being one."""

import json

import pytest

from distdbg.evidence.trace.text import NoTrace, TraceSplitter

EVENTS = [
    {"ph": "X", "name": 'a {[ " \\ ]}', "ts": 1.5, "dur": 2, "args": {"Input Dims": [[1, 2], []]}},
    {"ph": "M", "name": "process_name", "args": {"name": "ü"}},
    {"ph": "X", "name": "b", "ts": -3e5},
]
OBJECT = json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": 3}, "traceEvents": EVENTS, "traceName": "t"})
ARRAY = json.dumps(EVENTS, indent=2)


def read(text, piece):
    splitter = TraceSplitter()
    events = [event for at in range(0, len(text), piece) for event in splitter.feed(text[at : at + piece])]
    splitter.close()
    return splitter, events


@pytest.mark.parametrize("text", [OBJECT, ARRAY, "\ufeff \n" + OBJECT], ids=["object", "array", "mark"])
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_events_come_whole_from_any_pieces(text, piece):
    splitter, events = read(text, piece)
    assert events == EVENTS and splitter.whole and not splitter.broken
    assert splitter.header == ({} if text == ARRAY else {"schemaVersion": 1, "distributedInfo": {"rank": 3}})


@pytest.mark.parametrize("left", range(OBJECT.index('"b"'), OBJECT.index('"traceName"') - 5, 3))
def test_what_is_cut_short_is_used_as_far_as_it_goes(left):
    splitter, events = read(OBJECT[:left], 16)
    assert events == EVENTS[: len(events)] and len(events) >= 2
    assert not splitter.whole and not splitter.broken


def test_what_stops_being_json_is_said():
    splitter, events = read(ARRAY[:-1] + ", nonsense, {}]", 1 << 20)
    assert events == EVENTS and splitter.broken == "what follows its first 3 events is no JSON"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("Traceback (most recent call last):", "not JSON"),
        ('{"nodes": []}', "no traceEvents"),
    ],
)
def test_what_is_no_trace_is_named(text, why):
    with pytest.raises(NoTrace, match=why):
        read(text, 8)
