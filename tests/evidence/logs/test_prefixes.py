"""The grammar of prefixes: each row reads its own sample, and several rows one line, in any order."""

import pytest

from distdbg.evidence.logs.prefixes import ROWS, epoch, strip
from tests.evidence.logs.reading import read_logs


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_reads_its_sample(row):
    assert row.sample[0] in row.begins or row.sample[0] == " "
    assert row.pattern.match(row.sample)
    assert row.source


@pytest.mark.parametrize(
    ("line", "rank", "text"),
    [
        ("[default3]:[rank11]: ValueError: x", 11, "ValueError: x"),
        ("2024-05-01T10:00:00.123Z [rank3]: ValueError: x", 3, "ValueError: x"),
        ("[rank3]: 2024-05-01 10:00:00,123 - ERROR - ValueError: x", 3, "ValueError: x"),
        ("\x1b[31m[rank3]: \x1b[0mValueError: x", 3, "ValueError: x"),
        ("node7: [rank3]:   File", 3, "  File"),
        ('{"log":"[rank3]: ValueError: x\\n","stream":"stderr","time":"2024-05-01T10:00:00Z"}', 3, "ValueError: x"),
        ('{"kubernetes":{"pod_name":"w-1"},"rank":6,"message":"ValueError: x"}', 6, "ValueError: x"),
        ("May 01 10:00:00 n7 python[42]: [rank5]: ValueError: x", 5, "ValueError: x"),
        ("2024-05-01 10:00:00,123 - train - ERROR - [rank 3] ValueError: x", 3, "ValueError: x"),
    ],
)
def test_the_rank_of_a_wrapped_line(line, rank, text):
    found, facts = strip(line)
    assert (facts.rank, found) == (rank, text)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: x",
        "srun: error: node7: task 3: Killed",
        "slurmstepd: error: *** STEP 4.0 ON n7 CANCELLED ***",
        '  File "train.py", line 3, in f',
        "step 3: loss 2.0",
        "cuda:0",
        pytest.param('"py_callstack": ' + "[" * 20_000, id="nested"),
        "n1:7:9 [3] NCCL INFO Using network IB",
        "[E ProcessGroupNCCL.cpp:828] [Rank 3] Watchdog caught collective operation timeout",
    ],
)
def test_what_is_no_prefix_stays(line):
    found, facts = strip(line)
    assert found == line and facts.rank is None and facts.task is None


def test_a_local_rank_a_task_and_a_rank_are_three_facts():
    facts = strip("1: [default3]:[rank11]: x")[1]
    assert (facts.task, facts.local_rank, facts.rank) == (1, 3, 11)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2024-05-01 10:00:00,500", 1714557600.5),
        ("2024-05-01T12:00:00+02:00", 1714557600.0),
        ("1714557600123", 1714557600.123),
        ("05/01/2024 10:00:00", 1714557600.0),
        ("no time", None),
    ],
)
def test_times(text, seconds):
    assert epoch(text) == seconds


@pytest.mark.parametrize(
    "prefix",
    [
        "{t} train[7] - rank={rank} - ", "<{t}> node=a rank {rank} :: ", "[W{rank}|{t}|rank#{rank}] >> ",
        "{t} job has failed (Rank: {rank}): ", "{t} (tp rank 1, local_rank 2, global rank {rank}) ",
    ],
)  # fmt: skip
def test_a_prefix_that_no_row_knows_is_learned_from_a_tracebacks_head(prefix):
    lines = ["Traceback (most recent call last):", '  File "t.py", line 3, in f', "    x()", "ValueError: x"]
    told = "\n".join(prefix.format(t=f"10.0{n}", rank=6) + line for n, line in enumerate(lines))
    (error,) = read_logs({"job.log": "a line before\n" + told + "\n"}).ranks[6].exceptions
    assert (error.type, error.message, error.where, error.citation.line) == ("ValueError", "x", ("t.py", 3, "f"), 2)


def test_what_stands_before_a_head_alone_is_no_prefix_of_other_lines():
    told = 'it failed: Traceback (most recent call last):\n  File "t.py", line 3, in f\nValueError: it failed: y\n'
    (error,) = read_logs({"job.log": told}).unattributed[0].exceptions
    assert error.message == "it failed: y"
