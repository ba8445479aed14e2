"""Where agents on several hosts meet: the port that was tried is kept where that can be, and costs nobody a job."""

import socket

from distdbg.launch.link.meeting import _keep, _listen_from


def test_a_port_that_was_tried_is_kept():
    kept = _keep(_listen_from(0))
    assert kept is not None
    kept.release()


def test_one_that_is_still_held_by_a_connection_is_left_to_torchrun():
    """TIME_WAIT: the side that closes first keeps the port for a minute."""
    listening = _listen_from(0)
    number = listening.getsockname()[1]
    with socket.create_connection(("127.0.0.1", number)) as there:
        listening.accept()[0].close()
        there.recv(1)
    assert _keep(listening) is None


def test_no_port_was_asked_for():
    assert _keep(None) is None
