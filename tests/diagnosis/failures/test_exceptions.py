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
