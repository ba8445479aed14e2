"""Descriptors of ours whose numbers the script closes and gives to files of its own."""

import os
import socket

import pytest

from distdbg.worker.descriptors import OwnDescriptor, find_listening_socket
from distdbg.worker.link import Link
from distdbg.worker.mapping import map_new_file


@pytest.fixture
def script_file(tmp_path):
    """A descriptor of a file that the script is about to open."""
    with (tmp_path / "script.txt").open("w") as file:
        yield file


def test_number_is_high_and_not_inherited():
    descriptor = OwnDescriptor(os.open(os.devnull, os.O_RDONLY))
    number = descriptor.number()
    assert number > 63 and not os.get_inheritable(number)
    descriptor.close()
    assert descriptor.number() is None
    with pytest.raises(OSError):
        os.fstat(number)


def test_number_that_the_script_reuses_is_left_alone(script_file):
    descriptor = OwnDescriptor(os.open(os.devnull, os.O_RDONLY))
    number = descriptor.number()
    os.dup2(script_file.fileno(), number)
    assert descriptor.number() is None
    descriptor.close()
    assert os.path.samestat(os.fstat(number), os.fstat(script_file.fileno()))
    os.close(number)


def test_closing_twice_closes_no_file_of_the_script(script_file):
    descriptor = OwnDescriptor(os.open(os.devnull, os.O_RDONLY))
    number = descriptor.number()
    descriptor.close()
    os.dup2(script_file.fileno(), number)
    descriptor.close()
    assert os.path.samestat(os.fstat(number), os.fstat(script_file.fileno()))
    os.close(number)


def test_link_neither_sends_to_nor_reads_from_a_socket_of_the_script(tmp_path):
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent.sock"))
        agent.listen()
        link = Link(str(tmp_path / "agent.sock"))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            number = link._descriptor.number()
            os.dup2(ours.fileno(), number)
            theirs.sendall(b"for the script")
            assert (link.send("fact", {}), link.wait(), link.peer()) == (False, b"", 0)
            link.close()
            del link
            theirs.setblocking(False)
            with pytest.raises(BlockingIOError):
                theirs.recv(1)
            assert os.read(number, 100) == b"for the script"
            os.close(number)


def test_mapped_file_keeps_no_descriptor(tmp_path):
    before = os.listdir("/proc/self/fd")
    memory = map_new_file(str(tmp_path / "page"), 4096)
    memory[5] = 7
    assert (tmp_path / "page").read_bytes()[:6] == b"\0\0\0\0\0\7"
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_listening_socket_is_found_by_its_path(tmp_path):
    with socket.socket(socket.AF_UNIX) as server, socket.socket() as other:
        server.bind(str(tmp_path / "recorder"))
        found = find_listening_socket(str(tmp_path / "recorder"))
        assert found.number() == server.fileno()
        assert find_listening_socket(str(tmp_path / "nothing")) is None
        assert server.fileno() > 0 and other.fileno() > 0


def test_search_leaves_the_mode_of_sockets_under_a_default_timeout(tmp_path):
    """`socket.setdefaulttimeout()` of the script makes Python's constructor change a socket's mode."""
    mine, other = socket.socketpair()
    previous = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)
    try:
        assert find_listening_socket(str(tmp_path / "none")) is None
        assert os.get_blocking(mine.fileno()) and os.get_blocking(other.fileno())
    finally:
        socket.setdefaulttimeout(previous)
        mine.close()
        other.close()
