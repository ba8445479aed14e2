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
