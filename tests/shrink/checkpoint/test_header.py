"""Headers are read without trust: every lie is one sentence, and none is anything else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdbg.errors import EvidenceUnreadable
from distdbg.shrink.checkpoint.tensors import header_length, parse_header, render_header


def parse(entries: object, data: int = 64):
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return parse_header("x.safetensors", text, 8 + len(text) + data)


def entry(begin: int, end: int, shape=(4,), dtype: str = "F32") -> dict:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def test_what_we_write_is_what_we_read() -> None:
    first = render_header([("a", "BF16", (2, 3), 12), ("ü", "F32", (), 4)])
    size = len(first) + 16
    length = header_length("f", first, size)
    tensors = parse_header("f", first[8 : 8 + length], size)
    assert {n: (t.dtype, t.shape, t.start - len(first), t.length) for n, t in tensors.items()} == {
        "a": ("BF16", (2, 3), 0, 12),
        "ü": ("F32", (), 12, 4),
    }
    assert len(first) % 8 == 0


def test_packed_types_and_empty_tensors() -> None:
    found = parse({"four": entry(0, 2, (4,), "F4"), "none": entry(2, 2, (0, 7)), "__metadata__": {"format": "pt"}})
    assert found["four"].length == 2 and found["none"].shape == (0, 7)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        (b"\xff\xfe", "is not JSON"),
        ([], "no JSON object"),
        ({"a": 1}, "'a' in its header is no JSON object"),
        ({"a": entry(0, 16, dtype="Q9")}, "unknown element type 'Q9'"),
        ({"a": entry(0, 16, [-4])}, "no list of sizes"),
        ({"a": entry(0, 16, [True])}, "no list of sizes"),
        ({"a": entry(16, 0)}, "are no range"),
        ({"a": entry(0, 400, [100])}, "ends at byte"),
        ({"a": entry(0, 12)}, "has 12 bytes, but F32 [4] needs 16"),
        ({"a": entry(0, 16), "b": entry(8, 24)}, "of 'a' and 'b' overlap"),
        (b'{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":1}', "names 'a' twice"),
        ({"a": entry(0, 2**70)}, "are no range"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_a_header_that_lies(entries: object, says: str) -> None:
    with pytest.raises(EvidenceUnreadable) as error:
        parse(entries)
    assert says in error.value.message and error.value.message.startswith("x.safetensors: ") and error.value.remedy


@pytest.mark.parametrize(
    ("first", "size", "says"),
    [
        (b"", 0, "has only 0 bytes"),
        ((2**40).to_bytes(8, "little"), 2**50, "more than safetensors allows"),
        ((500).to_bytes(8, "little"), 100, "cut short"),
    ],
)
def test_a_file_that_is_none(first: bytes, size: int, says: str) -> None:
    with pytest.raises(EvidenceUnreadable, match=says):
        header_length("f", first, size)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "x"]), inner)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4) | st.binary(max_size=60))
def test_no_header_does_anything_but_parse_or_be_refused(entries: object) -> None:
    try:
        found = parse(entries)
    except EvidenceUnreadable:
        return
    assert all(t.start + t.length <= 8 + 64 + 10**6 for t in found.values())
