"""The list of known messages: every entry fits its own example and no other's, and real errors are recognised."""

import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.diagnosis.catalogue import documented
from distdbg.evidence.logs.messages import known_messages, parse, recognise

KNOWN = known_messages()


def test_list_is_long_and_its_ids_are_unique():
    ids = [known.id for known in KNOWN]
    assert len(ids) == len(set(ids)) >= 40


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.id)
def test_entry(known):
    assert [other.id for other in KNOWN if other.match.search(known.example)] == [known.id]
    assert known.finding in documented()
    assert known.source.startswith("https://")
    for text in (known.symptom, known.cause, known.fix):
        assert text.endswith((".", ")", "NAME`).", "`")) and len(text) > 15


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: boom",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x', port=443): Max retries exceeded",
        "KeyError: 'module.weight'",
        "AssertionError: ",
        "TimeoutError: the read timed out",
        "OSError: [Errno 98] Address already in use",
    ],
)
def test_ordinary_errors_are_not_recognised(text):
    assert recognise(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        "torch.distributed.DistNetworkError: address already in use",
    ],
)
def test_a_rendezvous_whose_port_is_taken(text):
    assert recognise(text).id == "address-in-use"


def test_a_wrong_entry_is_named():
    with pytest.raises(ValueError, match="'broken'"):
        parse("messages: [{id: broken, match: '(', finding: x}]")


def test_hostile_text_is_matched_in_bounded_time():
    for seed in ("gloo/transport/", "Error(s) in loading state_dict for ", "Call to recv ", "can't open file '"):
        recognise("RuntimeError: " + seed * 20_000)


PROVOKE = Path(__file__).parents[2] / "programs" / "provoke_messages.py"


@pytest.mark.slow
def test_real_messages_of_this_torch(tmp_path):
    """One process provokes them all; each prints `id<TAB>Type: message` with newlines as \\n."""
    done = subprocess.run(
        [sys.executable, PROVOKE], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    provoked = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    assert len(provoked) >= 30, done.stdout
    recognised = {}
    for name, text in provoked.items():
        found = recognise(text.replace("\\n", "\n"))
        recognised[name] = found.id if found else text
    assert recognised == {name: name.partition("/")[0] for name in provoked}
