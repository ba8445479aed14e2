"""What is asked of a rank's recorder, and what a capture keeps of its answer: long lists of ranks are folded."""

import json
import socket
import threading

import pytest

from distdbg.collect.machine.recorder import Recorded, RequestFailed, ask, completed, files_of, folded
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
    """`served(answers)`: the path of a socket that answers by the handler and its parameters; and what it was asked.

    An answer that is a callable is called. Asked for its handlers the server lists the names of all that it answers.
    """
    listeners, asked = [], []

    def start(answers):
        path = tmp_path / f"{len(listeners):05d}.recorder"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        listeners.append(listener)

        def serve():
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                name = connection.recv(1 << 16).split()[1].decode().removeprefix("/handler/").rstrip("?")
                asked.append(name)
                known = name in answers or not name
                answer = answers.get(name, b"") if name else json.dumps([n.partition("?")[0] for n in answers]).encode()
                answer = answer() if callable(answer) else answer
                connection.sendall(b"HTTP/1.1 %d -\r\n\r\n" % (200 if known else 404) + answer)
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        return path

    yield start, asked
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


LEGACY, SHARED, NCCL2 = "dump_nccl_trace_json", "fr_trace_json", "fr_trace_json?backend=nccl2"
NONE = {"version": "2.10", "pg_config": {}, "pg_status": {}}


def dumped(*entries, groups=1, completed=3):
    status = {str(number): {"last_completed_collective": str(completed)} for number in range(groups)}
    return json.dumps({**NONE, "pg_status": status} | ({"entries": entries} if entries else {})).encode()


def test_completed_collectives_of_all_groups_without_the_entries(served):
    serve, asked = served
    without = f"{LEGACY}?includecollectives=false"
    status = {"0": {"last_completed_collective": "7"}, "1": {"last_completed_collective": 3}}
    assert completed(serve({without: json.dumps({"pg_status": status}).encode()}), 5.0) == 10
    assert asked == [without, ""]
    for other in (b"{}", b"not json", json.dumps({"pg_status": {"0": {}}}).encode()):
        with pytest.raises(RequestFailed):
            completed(serve({without: other}), 5.0)
    newer = {without: json.dumps(NONE).encode(), SHARED: b"", "fr_dump_file": b"", NCCL2: dumped(groups=2),
             "fr_trace_json?backend=nccl-lazy": json.dumps(NONE).encode()}  # fmt: skip
    assert completed(serve(newer), 5.0) == 6


def test_the_recorders_of_both_kinds_of_backends(served):
    """torch to 2.14: NCCL's own and the one that gloo shares; those without an entry are left out."""
    serve, _ = served
    used, other, empty = dumped({"record_id": 0}), dumped({"record_id": 7}), json.dumps(NONE).encode()
    assert ask(serve({LEGACY: used, SHARED: other}), 0, 5.0) == [Recorded("json", used), Recorded("json", other)]
    assert ask(serve({LEGACY: empty, SHARED: other}), 0, 5.0) == [Recorded("json", other)]
    assert ask(serve({LEGACY: empty, SHARED: empty}), 0, 5.0) == [Recorded("json", empty)]
    assert ask(serve({SHARED: other}), 0, 5.0) == [Recorded("json", other)]
    with pytest.raises(RequestFailed):
        ask(serve({"ping": b""}), 0, 5.0)


@pytest.fixture
def newer(served):
    """`newer(told, written)`: a server of torch 2.15 whose nccl2 tells `told` and writes `written` into its file."""
    serve, asked = served
    empty = json.dumps(NONE).encode()

    def start(told, written):
        def write():
            if written is not None:
                path.with_name("recorder_3").write_bytes(written)
            return b"Flight Recorder dump initiated"

        path = serve({LEGACY: empty, SHARED: empty, NCCL2: told, "fr_trace_json?backend=nccl-lazy": empty,
                      "fr_dump_file": b"", "fr_dump_file?backend=nccl2": write})  # fmt: skip
        return path

    return start, asked


def test_a_backend_with_a_recorder_of_its_own_writes_all_entries(newer):
    start, _ = newer
    path = start(dumped(), b"a pickle.")
    assert ask(path, 3, 5.0) == [Recorded("pickle", b"a pickle.")]
    assert not path.with_name("recorder_3").exists(), "a later one is torch's own, of a timeout"


def test_a_file_that_was_there_before_stays(newer):
    start, _ = newer
    path = start(dumped(), b"another pickle.")
    path.with_name("recorder_3").write_bytes(b"of the watchdog.")
    assert ask(path, 3, 5.0) == [Recorded("pickle", b"another pickle.")]
    assert path.with_name("recorder_3").exists()


def test_without_the_file_the_open_operations_are_told(newer):
    start, _ = newer
    told = dumped({"record_id": 9})
    assert ask(start(told, None), 3, 5.0) == [Recorded("json", told)]
    with pytest.raises(RequestFailed, match="nccl2"):
        ask(start(dumped(), None), 3, 5.0)


def test_files_of_a_dump():
    found = [Recorded("json", b"{}"), Recorded("pickle", b".")]
    assert files_of(found, 12, 2) == {"recorder/00012.2.json": b"{}", "recorder/00012.2.1.pickle": b"."}
