"""The list of known messages: every entry fits its own example and no other's, and real errors are recognised."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.diagnosis.catalogue import documented
from distdbg.evidence.logs.candidates import NEEDLES
from distdbg.evidence.logs.messages import hits_in, known_messages, literals, parse, recognise

KNOWN = known_messages()


def test_list_is_long_and_its_ids_are_unique():
    ids = [known.id for known in KNOWN]
    assert len(ids) == len(set(ids)) >= 250


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.id)
def test_entry(known):
    found = recognise(known.example)
    assert found is known, found  # of two that fit the one that is listed first, which is the more special one
    assert known.finding in documented()
    assert known.source.startswith("https://")
    assert not known.versions or re.match(r"(?:torch|NCCL)[ .]", known.versions)
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


def test_the_default_group_is_no_network_adapter():
    """`default_pg` has the letters of EFA in it."""
    begin = "[PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: "
    assert recognise(begin + "CUDA error: an illegal memory access was encountered").id == "cuda-illegal-access"


@pytest.mark.parametrize("known", [known for known in KNOWN if known.line], ids=lambda known: known.id)
def test_an_entry_for_lines_is_found_in_a_long_log(known):
    """A log is searched for pieces of words, and an entry only where one of its own words is there."""
    text = f"step 1 loss 2.0\n{known.example}\nstep 2 loss 1.9\n"
    assert any(needle in known.example.encode() for needle in NEEDLES)
    assert {hit.known.id for hit in hits_in(text)} == {known.id}


def test_words_of_a_pattern():
    assert literals(r"CUDA error: (?:an )?illegal") == ("CUDA error: ",)
    assert literals(r"Killed process \d+ \(|oom-kill:") == ("Killed process ", "oom-kill:")
    assert literals(r"(?i)spot") == () and literals(r"\d+|abc") == ()


def test_a_wrong_entry_is_named():
    with pytest.raises(ValueError, match="'broken'"):
        parse("messages: [{id: broken, match: '(', finding: x}]")


def test_hostile_text_is_matched_in_bounded_time():
    for seed in ("gloo/transport/", "Error(s) in loading state_dict for ", "Call to recv ", "can't open file '"):
        recognise("RuntimeError: " + seed * 20_000)


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        ("DistBackendError: NCCL error in: x.cpp:1691, unhandled cuda error, NCCL version 2.19.3\n"
         "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
         "nccl-cuda-failure"),
        ("w-1:25:25 [0] init.cc:981 NCCL WARN Invalid rank requested : 2/2", "nccl-invalid-argument"),
        ("[W516 socket.cpp:489] [c10d] waitForInput: socket SocketImpl(fd=79, addr=[n1]:41170, remote=[n2]:29500) "
         "timed out after 1800000ms", "store-timeout"),
    ],
)  # fmt: skip
def test_other_wordings(text, id_):
    assert recognise(text).id == id_


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
