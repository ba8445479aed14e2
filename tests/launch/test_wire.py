import socket

from distdbg.launch.wire import MAX_UNSENT, Wire


def pair():
    a, b = socket.socketpair()
    return Wire(a), Wire(b)


def test_messages_arrive_whole_and_in_order_whatever_the_pieces():
    a, b = socket.socketpair()
    wire = Wire(b)
    a.send(b'{"n": 1}\n{"n"')
    assert wire.receive() == [{"n": 1}]
    a.send(b': 2}\nnot json\n[1]\n{"n": 3}\n')
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
