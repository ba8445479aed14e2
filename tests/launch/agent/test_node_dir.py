import os
import socket
import tempfile
from pathlib import Path

from distdbg.launch.agent import node
from distdbg.launch.agent.node import RANK_BYTES, make_node_dir, remove_node_dir, sweep
from tests.launch.file_systems import tiny_file_system


def left_by_an_agent(folder, name, *, listening):
    path = folder / name
    path.mkdir(mode=0o700)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path / "agent.sock"))
    if listening:
        server.listen()
    else:
        server.close()
    os.utime(path, (0, 0))
    return path, server


def test_a_node_dir_is_private_short_and_new(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    one, two = (make_node_dir("20261121T000000Z-x-1a2b", 0, RANK_BYTES)[0] for _ in range(2))
    try:
        assert not list(one.iterdir())
        assert one != two
        assert one.stat().st_mode & 0o777 == 0o700
        assert len(str(one / "agent.sock")) < 100
    finally:
        remove_node_dir(one)
        remove_node_dir(two)
    assert not one.exists()


def test_a_place_without_room_for_the_ranks_is_passed_over(monkeypatch):
    run, why = "20261121T000000Z-x-1a2b", "No space left on device"
    with tempfile.TemporaryDirectory() as short, tiny_file_system(Path(short) / "shm") as small:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(small))
        fits, refused = make_node_dir(run, 0, 8 * RANK_BYTES)
        assert (fits.parent, refused) == (small, {})
        elsewhere, refused = make_node_dir(run, 0, 16 * RANK_BYTES)
        assert refused == {str(small): why} and elsewhere.parent != small
        assert list(small.iterdir()) == [fits], "what was begun is left"
        remove_node_dir(elsewhere)
        monkeypatch.setattr(node, "_parents", lambda: iter([str(small), f"{short}/nowhere"]))
        full, refused = make_node_dir(run, 0, 16 * RANK_BYTES)
        assert full.parent == small and list(refused) == [str(small), f"{short}/nowhere"], "better than none"


def test_folders_of_killed_agents_are_swept_and_living_ones_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    dead, _ = left_by_an_agent(tmp_path, "distdbg-aaaa-0-x", listening=False)
    living, server = left_by_an_agent(tmp_path, "distdbg-bbbb-0-x", listening=True)
    young, _ = left_by_an_agent(tmp_path, "distdbg-cccc-0-x", listening=False)
    os.utime(young)
    foreign = tmp_path / "distdbg-dddd-0-x"
    foreign.mkdir()
    os.utime(foreign, (0, 0))
    sweep(tmp_path)
    assert not dead.exists()
    assert living.exists()
    assert young.exists()
    assert foreign.exists(), "a folder without a socket is not known to be ours"
    server.close()


def test_a_folder_whose_name_is_too_long_for_a_socket_does_not_end_the_sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    another = tmp_path / f"distdbg-{'a' * 120}-0"
    another.mkdir()
    os.utime(another, (0, 0))
    dead, _ = left_by_an_agent(tmp_path, "distdbg-bbbb-0-x", listening=False)
    monkeypatch.setattr(node.Path, "glob", lambda folder, _pattern: sorted(folder.iterdir()))
    sweep(tmp_path)
    assert not dead.exists()
    assert another.exists()
