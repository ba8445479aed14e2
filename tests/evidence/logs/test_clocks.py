"""Clocks of hosts are compared by what both have logged, and errors are ordered by the compared times."""

import pytest

from distdbg.collect.runs.explaining import load
from distdbg.diagnosis.verdict import build_report
from tests.evidence.logs.reading import read_logs


def log(host, rank, shift, *, failed_at, steps=range(5), what="step {} loss 2.0"):
    """Steps each second from 10:00:00, and an error, by a clock that is `shift` seconds ahead."""

    def at(seconds):
        minutes, rest = divmod(seconds + shift, 60)
        return f"2024-05-01 10:{minutes:02d}:{rest:02d},000 {host}: [rank{rank}]: "

    lines = [at(n) + what.format(n) for n in steps]
    raised = [
        at(failed_at) + "Traceback (most recent call last):",
        at(failed_at) + f"{'KeyError' if rank else 'ValueError'}: x",
    ]
    return "\n".join(lines + raised) + "\n"


def test_common_steps_give_the_offset_of_two_clocks():
    read = read_logs({"a.log": log("node1", 0, 0, failed_at=30), "b.log": log("node2", 8, 42, failed_at=20)}).read
    assert [(clock.host, clock.ahead, clock.within, clock.events) for clock in read.clocks] == [
        ("node1", 0.0, 0.0, 5),
        ("node2", 42.0, 0.0, 5),
    ]
    assert [line.rank for line in read.decisive] == [8, 0]


@pytest.mark.parametrize(
    ("other", "first"),
    [
        (log("node2", 8, 42, failed_at=20), 8),  # by its own clock it came later
        (log("node2", 8, 0, failed_at=40), 0),
    ],
)
def test_the_first_error_is_that_of_the_compared_times(tmp_path, other, first):
    report = report_of(tmp_path, log("node1", 0, 0, failed_at=30), other)
    assert report.findings[0].ranks == (first,) and not report.unknown


def test_which_was_first_is_not_known_where_clocks_are_not_compared(tmp_path):
    report = report_of(tmp_path, log("node1", 0, 0, failed_at=30), log("node2", 8, 0, failed_at=32, steps=()))
    assert len(report.unknown) == 1 and len(report.findings) == 2
    apart = report_of(tmp_path, log("node1", 0, 0, failed_at=30), log("node2", 8, 0, failed_at=55, steps=()))
    assert not apart.unknown


def test_a_communicators_completion_is_one_event_of_all_hosts():
    def complete(host, second):
        said = "NCCL INFO ncclCommInitRankConfig comm 0x5 rank 0 nranks 2 cudaDev 0 commId 0xabc - Init COMPLETE"
        return f"2024-05-01 10:00:{second} {host}: {host}:7:9 [0] {said}\nerror: x\n"

    read = read_logs({"a.log": complete("node1", "00"), "b.log": complete("node2", "07")}).read
    assert [clock.ahead for clock in read.clocks] == [0.0, 7.0]


def test_hosts_that_do_not_step_together_have_no_offset():
    slow = log("node2", 8, 0, failed_at=20, steps=range(0, 1000, 200), what="step {}")
    other = "".join(f"2024-05-01 10:00:0{n // 200},000 node1: step {n}\n" for n in range(0, 1000, 200))
    assert [clock.ahead for clock in read_logs({"a.log": other, "b.log": slow}).read.clocks] == [0.0, None]


def report_of(folder, *texts):
    paths = []
    for n, text in enumerate(texts):
        paths.append(folder / f"{n}.log")
        paths[-1].write_text(text)
    return build_report(load(paths))
