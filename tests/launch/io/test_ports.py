import socket

import pytest

from distdbg.launch.io.ports import ReservedPort


def test_nobody_else_can_bind_a_reserved_port():
    port = ReservedPort()
    with socket.socket() as other, pytest.raises(OSError):
        other.bind(("127.0.0.1", port.number))
    port.release()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port.number))


def test_a_server_that_reuses_addresses_gets_it_while_it_is_held():
    port = ReservedPort()
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port.number))
        server.listen()
        socket.create_connection(("127.0.0.1", port.number)).close()


def test_two_reservations_never_share_a_port():
    ports = [ReservedPort() for _ in range(200)]
    assert len({p.number for p in ports}) == 200
