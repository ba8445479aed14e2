"""What an exception is called: the same message means another thing where other code raised it."""

import pytest

from tests.made_run import MadeRun

TORCH = "/venv/lib/python3.11/site-packages/torch"
FROM_A_RANK = (f"{TORCH}/distributed/distributed_c10d.py", 3435, "_tensor_to_object")
FROM_THE_PARENT = ("/usr/lib/python3.11/multiprocessing/spawn.py", 132, "_main")
FROM_A_FILE = (f"{TORCH}/distributed/checkpoint/filesystem.py", 886, "read_metadata")


@pytest.mark.parametrize(
    ("innermost", "finding"),
    [(FROM_A_RANK, "rank-exception"), (FROM_THE_PARENT, "rank-exception"), (FROM_A_FILE, "checkpoint-not-atomic")],
)
def test_pickle_from_another_process_is_no_damaged_file(tmp_path, innermost, finding):
    run = MadeRun(tmp_path, ranks=2, nodes=1)
    file, line, function = innermost
    text = (
        'Traceback (most recent call last):\n  File "/home/me/train.py", line 88, in step\n    run()\n'
        f'  File "{file}", line {line}, in {function}\n    return load()\nEOFError: Ran out of input\n'
    )
    run.fact(1, op="exception", uncaught=True, type="EOFError", message="Ran out of input", traceback=text, t=9.0,
             thread="MainThread", where=["/home/me/train.py", 88, "step"])  # fmt: skip
    run.exits(1, 1, t=9.2)
    (root,) = [f for f in run.closes().report().findings if f.explained_by is None]
    assert (root.id, root.ranks) == (finding, (1,))


@pytest.mark.parametrize(("line_read", "confidence"), [(88, "possible"), (87, "certain")])
def test_line_that_reads_a_value_of_a_simulated_device_is_a_possible_cause(tmp_path, line_read, confidence):
    run = MadeRun(tmp_path, ranks=2, nodes=1)
    run.fact(1, kind="value-read", file="/home/me/train.py", line=line_read, how="item", inside="")
    run.raises(1, "AssertionError", "loss 0.0", line=88)
    (root,) = [f for f in run.closes().report().findings if f.explained_by is None]
    assert (root.id, root.ranks, root.confidence) == ("rank-exception", (1,), confidence)
    assert ("--values" in root.remedy, "train.py:88" in root.remedy) == (line_read == 88, line_read != 88)
