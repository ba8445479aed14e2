import os

from distdbg.launch.io.loop import Loop


def test_an_action_that_raises_is_reported_and_the_loop_goes_on():
    loop, errors, seen = Loop(), [], []
    loop.broke = errors.append
    reader, writer = os.pipe()
    other, other_writer = os.pipe()

    def breaks():
        raise KeyError("ours")

    loop.watch(reader, breaks)
    loop.watch(other, lambda: seen.append(os.read(other, 10)))
    loop.after(0, breaks)
    os.write(writer, b"a")
    os.write(other_writer, b"b")
    loop.turn_until(lambda: seen, 5)
    loop.turn_until(lambda: len(errors) == 2, 5)
    assert seen == [b"b"]
    assert [str(error) for error in errors] == ["'ours'", "'ours'"]
    os.write(other_writer, b"c")
    loop.turn_until(lambda: len(seen) == 2, 5)  # what raised is still readable, and is asked no more
    assert len(errors) == 2


def test_a_repeated_action_goes_on_after_it_raised_and_ends_where_it_returns_true():
    loop, errors, calls = Loop(), [], []
    loop.broke = errors.append

    def action():
        calls.append(len(calls))
        if len(calls) == 2:
            raise KeyError("once")
        return len(calls) == 4

    loop.every(0.001, action)
    loop.turn_until(lambda: len(calls) == 4, 5)
    loop.turn_until(lambda: False, 0.05)
    assert calls == [0, 1, 2, 3] and [str(error) for error in errors] == ["'once'"]
