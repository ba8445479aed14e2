import os

from distdbg.launch.io.loop import Loop


def test_an_action_that_raises_is_told_of_and_the_loop_goes_on():
    loop, told, seen = Loop(), [], []
    loop.broke = told.append
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
    loop.turn_until(lambda: len(told) == 2, 5)
    assert seen == [b"b"]
    assert [str(error) for error in told] == ["'ours'", "'ours'"]
    os.write(other_writer, b"c")
    loop.turn_until(lambda: len(seen) == 2, 5)  # what raised is still readable, and is asked no more
    assert len(told) == 2
