from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distdbg.evidence.logs.index import LineSplitter, TimeTable, whole_characters

TEXT = b"1000 0 10\n2000 10 5\n3000 40 1\n"


def times_of(index: bytes) -> dict[int, int]:
    """Where the time of 60 bytes changes."""
    table, offset, found = TimeTable(), 0, {}
    table.add(index)
    for t_ns, part in table.cut(0, bytes(60)):
        found[offset] = t_ns
        offset += len(part)
    return found


def test_index_is_read_and_damaged_lines_are_left_out() -> None:
    assert times_of(TEXT) == {0: 1000, 10: 2000, 40: 3000}
    assert times_of(TEXT[:-1]) == {0: 1000, 10: 2000} and times_of(TEXT[:3]) == times_of(b"") == {0: 0}
    damaged = b"1000 0 10\n\x00\xff\n- 1 2\n9 9\n" + b"9" * 5000 + b" 1 1\n2000 10 5\n"
    assert times_of(damaged) == {0: 1000, 10: 2000}


@given(st.lists(st.integers(1, 40)), st.lists(st.integers(1, 40)))
def test_bytes_are_dated_alike_however_log_and_index_are_cut(index_cuts: list[int], log_cuts: list[int]) -> None:
    data, table, found = bytes(range(60)), TimeTable(), b""
    text = TEXT
    for cut in [*index_cuts, len(TEXT)]:
        table.add(text[:cut])
        text = text[cut:]
    assert table.reaches == 40
    times: dict[int, int] = {}
    offset = 0
    for cut in [*log_cuts, 60]:
        for t_ns, part in table.cut(offset, data[offset : offset + cut]):
            times |= dict.fromkeys(part, t_ns)
            found += part
        offset += cut
    assert found == data
    assert times == {b: 1000 if b < 10 else 2000 if b < 40 else 3000 for b in data}


def test_without_an_index_the_time_is_0_and_damage_does_not_turn_time_back() -> None:
    table = TimeTable()
    assert list(table.cut(0, b"abc")) == [(0, b"abc")]
    table.add(b"5000 3 1\n4000 4 1\n6000 1 1\n")
    assert list(table.cut(3, b"de")) == [(5000, b"d"), (5000, b"e")]


@given(st.lists(st.binary(max_size=50)))
def test_splitting_and_joining_gives_the_same_bytes(parts: list[bytes]) -> None:
    splitter = LineSplitter(longest=16)
    lines = [line for i, part in enumerate(parts) for line in splitter.feed(i, part)]
    assert splitter.partial == b"" or b"".join(parts)[-50:].find(splitter.partial) >= 0
    rest = splitter.rest()
    joined = b"".join(line.data + b"\n" * line.ended for line in lines) + (rest.data if rest else b"")
    assert joined == b"".join(parts)
    assert all(len(line.data) <= 16 and b"\n" not in line.data for line in lines)
    assert [line.t_ns for line in lines] == sorted(line.t_ns for line in lines)


def test_a_line_has_the_time_of_its_first_byte() -> None:
    splitter = LineSplitter()
    assert list(splitter.feed(1, b"be")) == []
    assert splitter.partial == b"be"
    first, second = splitter.feed(2, b"gun\nnext\nhal")
    assert (first.t_ns, first.data, second.t_ns) == (1, b"begun", 2)
    rest = splitter.rest()
    assert rest is not None and (rest.t_ns, rest.data, rest.ended) == (2, b"hal", False)
    assert splitter.rest() is None


def test_no_line_is_cut_within_a_character() -> None:
    text = "aé€😀" * 10
    for longest in range(4, 20):
        splitter = LineSplitter(longest)
        lines = [*splitter.feed(0, text.encode()), splitter.rest()]
        assert "".join(line.data.decode() for line in lines if line) == text
    splitter = LineSplitter()
    seen = ""
    for byte in "é€😀".encode():
        list(splitter.feed(0, bytes([byte])))
        seen = splitter.partial.decode()
    assert seen == "é€😀"


def test_bytes_that_are_no_utf8_are_not_held_back() -> None:
    for data in (b"\xff", b"\x80\x80\x80\x80\x80", b"ab\xf8", b"", b"a"):
        assert whole_characters(data, len(data)) == len(data)
    assert whole_characters(b"a\xf0\x9f\x98", 4) == 1 and whole_characters(b"\xe2", 1) == 0
