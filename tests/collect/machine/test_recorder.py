"""What is asked of a rank's recorder, and what a capture keeps of its answer: long lists of ranks are folded."""

import json
import socket
import threading

import pytest

from distdbg.collect.machine.recorder import RecorderFailed, completed, folded
from distdbg.evidence.recorder.log import Signatures
from distdbg.evidence.recorder.reading import read_recorder


def answer(ranks):
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(ranks)}}
    return json.dumps({"version": "2.10", "pg_config": groups}, separators=(",", ":")).encode()


def test_a_wide_groups_ranks_become_ranges():
    wide = [*range(1000), *range(2000, 4000)]
    kept = folded(answer(wide))
    assert b'"ranks":"[0-999,2000-3999]"' in kept
    assert read_recorder(json.loads(kept), Signatures()) is not None


def test_an_order_of_its_own_and_a_short_list_stay():
    for ranks in ([1, 0, *range(2, 1000)], [0, 1, 2, 3], [*range(500), 499]):
        assert folded(answer(ranks)) == answer(ranks)


@pytest.fixture
def served(tmp_path):
    """`served(answer)`: the path of a socket that gives this answer once; and what it was asked."""
    listeners, asked = [], []

    def start(answer):
        path = tmp_path / f"{len(listeners)}.recorder"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        listeners.append(listener)

        def serve():
            connection = listener.accept()[0]
            asked.append(connection.recv(1 << 16).split()[1])
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + answer)
            connection.close()

        threading.Thread(target=serve, daemon=True).start()
        return path

    yield start, asked
    for listener in listeners:
        listener.close()


def test_completed_collectives_of_all_groups_without_the_entries(served):
    serve, asked = served
    status = {"0": {"last_completed_collective": "7"}, "1": {"last_completed_collective": 3}}
    assert completed(serve(json.dumps({"pg_status": status}).encode()), 5.0) == 10
    assert asked == [b"/handler/dump_nccl_trace_json?includecollectives=false"]
    for other in (b"{}", b"not json", json.dumps({"pg_status": {"0": {}}}).encode()):
        with pytest.raises(RecorderFailed):
            completed(serve(other), 5.0)
