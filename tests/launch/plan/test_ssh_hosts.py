"""Hosts as people write them."""

import pytest

from distdbg.errors import UsageError
from distdbg.launch import backends
from distdbg.launch.plan.place import read_hosts
from distdbg.settings import JobSettings


def place(**given):
    settings = JobSettings(script="t.py", **given)
    return backends.place_of(backends.choose(settings, {}).backend, settings, {}, "here")


def test_names_and_files(tmp_path):
    file = tmp_path / "hostfile"
    file.write_text("# ours\n\na slots=8\nroot@b   # the new one\n")
    assert read_hosts("a, b") == ["a", "b"]
    assert read_hosts(str(file)) == ["a", "root@b"]


@pytest.mark.parametrize("text", ["a,,b", "-oProxyCommand=x", "/no/such/file", ""])
def test_refused(text):
    with pytest.raises(UsageError, match="--hosts"):
        read_hosts(text)


@pytest.mark.timeout(20)
def test_a_file_without_end_is_no_list_of_hosts(tmp_path):
    (tmp_path / "h").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="it is a device"):
        read_hosts(str(tmp_path / "h"))


@pytest.mark.parametrize("name", ["a\0b", "a\x1b[2J", "a\ud800", "-oProxyCommand=x"])
def test_a_file_whose_words_are_no_hosts(tmp_path, name):
    (tmp_path / "h").write_bytes(f"a\n{name}\n".encode("utf-8", "surrogatepass"))
    if name.startswith("a\ud800"):
        assert len(read_hosts(str(tmp_path / "h"))[1]) == 4, "bytes that are no UTF-8 are replaced"
        return
    with pytest.raises(UsageError, match="is no host"):
        read_hosts(str(tmp_path / "h"))


def test_an_empty_file_names_nobody(tmp_path):
    (tmp_path / "h").write_text("# nobody\n")
    with pytest.raises(UsageError, match="names no host"):
        read_hosts(str(tmp_path / "h"))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"hosts": ["a", "a"], "nproc_per_node": 2}, "named twice"),
        ({"hosts": ["a", "b"]}, "--nproc-per-node auto"),
        ({"hosts": ["a", "b"], "nproc_per_node": 2, "nodes": 3}, "3 nodes are asked for, and 2 hosts"),
        ({"on": "ssh"}, "no hosts"),
    ],
)
def test_what_cannot_be(settings, says):
    with pytest.raises(UsageError, match=says):
        place(**settings)


def test_the_first_of_them():
    found = place(hosts=["a", "b", "c"], nproc_per_node=2, nodes=2)
    assert (found.place.on, found.place.hosts, found.settings.nodes) == ("ssh", ("a", "b"), 2)
