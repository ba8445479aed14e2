import json
import os
import socket

from distdbg.launch.link.wire import MAX_UNSENT, CarrierWire, StdioWire, Wire, fragments


def pair():
    a, b = socket.socketpair()
    return Wire(a), Wire(b)


def test_messages_arrive_whole_and_in_order_whatever_the_pieces():
    a, b = socket.socketpair()
    wire = Wire(b)
    a.send(b'{"n": 1}\n{"n"')
    assert wire.receive() == [{"n": 1}]
    a.send(b": 2}\n" + b"[" * 20_000 + b'\nnot json\n[1]\n{"n": 3}\n')
    assert wire.receive() == [{"n": 2}, {"n": 3}]


def test_a_peer_that_does_not_read_never_blocks_the_sender():
    a, b = pair()
    for _ in range(3 * MAX_UNSENT // 1000):
        a.send({"text": "x" * 1000})
    assert len(a._unsent) <= MAX_UNSENT + 2000
    assert b.receive()[0] == {"text": "x" * 1000}


def test_what_was_sent_before_the_end_is_still_received():
    a, b = pair()
    a.send({"last": "words"})
    a.close()
    assert b.receive() == [{"last": "words"}]
    assert b.closed


def test_text_that_is_no_unicode_survives():
    a, b = pair()
    a.send({"path": "caf\udce9"})
    assert b.receive() == [{"path": "caf\udce9"}]


def test_only_receiving_closes_so_that_the_descriptor_is_forgotten_before_its_number_is_another_s():
    a, b = pair()
    b.close()
    a.send({"nobody": "listens"})
    assert not a.closed
    assert a.fileno() >= 0
    assert a.receive() == []
    assert a.closed


def test_messages_of_several_nodes_through_one_carrier():
    """Cut short, mixed, and with a banner between."""
    ours, theirs = socket.socketpair()
    wire = CarrierWire(ours)
    long = {"event": "long", "text": "x" * 5000}
    lines = [
        fragments(node, json.dumps(message).encode()).splitlines(keepends=True)
        for node, message in ((7, long), (12, long), (0, {"event": "short"}))
    ]
    assert max(len(line) for group in lines for line in group) <= 1000
    assert all(len(group) > 3 for group in lines[:2]) and len(lines[2]) == 1
    mixed = [line for pair in zip(lines[0], lines[1], strict=True) for line in pair]
    theirs.sendall(
        b"Welcome to the cluster!\n" + b"".join(mixed[:3]) + lines[2][0] + b"12 o'clock\n" + b"".join(mixed[3:])
    )
    got = []
    while len(got) < 3:
        got += wire.receive()
    assert got == [{"node": 0, "event": {"event": "short"}}, {"node": 7, "event": long}, {"node": 12, "event": long}]
    theirs.close()
    wire.receive()
    assert wire.closed


def test_standard_streams_carry_an_agents_words_and_its_launchers():
    to_agent, from_launcher = os.pipe()
    to_launcher, from_agent = os.pipe()
    agent = StdioWire(3, to_agent, from_agent)
    agent.send({"event": "here"})
    assert os.read(to_launcher, 1000) == b'3={"event": "here"}\n'
    os.write(from_launcher, b'{"request": "ping"}\n')
    assert agent.receive() == [{"request": "ping"}]
    os.close(from_launcher)
    assert agent.receive() == []
    assert agent.closed
    os.close(to_launcher)
