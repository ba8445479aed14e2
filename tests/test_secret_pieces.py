"""Pieces of known values are found in base64, hex and random text, and nothing else is."""

from __future__ import annotations

import base64

import pytest

from distdbg.hidden_values import HiddenValues, SecretValue
from distdbg.masking import MASK
from distdbg.secret_pieces import PieceSearch

VALUE = "NqVwYS81VP7Hb1DX8pPd5khxE3pyIgKpaUnArl63XykWZeiNNCiia3anXn9k3ksu9mI4ROnl89Sm995ytbxAk7jqevt0MLaMRT"
BASE64 = base64.b64encode(VALUE.encode()).decode()
HEX = VALUE.encode().hex()


@pytest.fixture
def hidden():
    return HiddenValues(
        known=[SecretValue("MY_TOKEN", VALUE), SecretValue("PASSPHRASE", "correct horse battery staple")]
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"denied {BASE64[:76]} at train.py:8", f"denied {MASK} at train.py:8"),
        (f"{BASE64[:64]}\n[rank0]: {BASE64[64:128]}\n", f"{MASK}\n[rank0]: {MASK}\n"),
        (f"x/{BASE64[10:22]}/y", f"x/{MASK}/y"),
        (f"{HEX[:60]}\n{HEX[60:120]}", f"{MASK}\n{MASK}"),
        (f"00000010  {bytes.fromhex(HEX[:32]).hex(' ')}  |{VALUE[:16]}|", f"00000010  {MASK}  |{MASK}|"),
        (f"key {bytes.fromhex(HEX[20:52]).hex(':').upper()}.", f"key {MASK}."),
        (f"denied {VALUE[:50]} at train.py:8", f"denied {MASK} at train.py:8"),
        (f"{VALUE[:50]}\n{VALUE[50:]} of it", f"{MASK}\n{MASK} of it"),
    ],
)
def test_pieces_are_masked(hidden, text, shown):
    assert hidden.mask(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "a correct horse has a battery at train.py:8",
        "0x7f3a2b1c9d00 00000010: 4e71 5677 da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "/home/me/project/train.py model.layers.0.self_attn.q_proj.weight",
        f"x{VALUE[10:17]}y {BASE64[10:17]} {HEX[10:20]}",
    ],
)
def test_other_text_and_short_pieces_stay(hidden, text):
    assert hidden.mask(text) == text


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", ["A", "0a", "0a ", "YWFh", "a", "61"])
def test_a_long_text_and_a_long_value_do_not_take_long(part):
    search = PieceSearch(["a" * 100_000, "\0" * 100_000])
    list(search.find(part * (200_000 // len(part))))
