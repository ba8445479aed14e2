"""Of a long log the lines that can matter are kept, with their surroundings, and no more than there is room for."""

from distdbg.evidence.logs.candidates import HEAD, TAIL, Candidates


def kept(lines, block=10_000):
    found = Candidates()
    for at in range(0, len(lines), block):
        found.feed(("\n".join(lines[at : at + block]) + "\n").encode())
    return found, {line.number: line.text for line in found.kept()}


def steps(count):
    return [f"step {n} loss 1.0" for n in range(1, count + 1)]


def test_the_surroundings_of_a_hit_and_both_ends_are_kept_wherever_blocks_are_cut():
    lines = steps(5_000)
    lines[2_499] = "ValueError: bad"
    for block in (1, 7, 50, 10_000):
        found, numbers = kept(lines, block)
        assert numbers[2_500] == "ValueError: bad" and {2_440, 2_540} <= numbers.keys(), block
        assert {1, HEAD, 5_000 - TAIL + 1, 5_000} <= numbers.keys() and len(numbers) < 700
        assert all(text == lines[number - 1] for number, text in numbers.items())
        assert (found.lines, found.dropped) == (5_000, 0)


def test_a_warning_of_each_step_does_not_hide_what_comes_later():
    lines = [f"step {n}: 0 samples failed" for n in range(30_000)]
    lines[20_000:20_000] = ["Traceback (most recent call last):", '  File "t.py", line 1, in f', "KeyError: 3"]
    found, numbers = kept(lines)
    assert [numbers.get(n) for n in range(20_001, 20_004)] == lines[20_000:20_003]
    assert found.dropped > 20_000 and len(numbers) < 12_000


def test_a_line_without_an_end_is_cut():
    found = Candidates()
    found.feed(b"ValueError: " + b"x" * 1_000_000)
    (line,) = found.kept()
    assert len(line.text) < 20_000 and found.cut_lines == 1
