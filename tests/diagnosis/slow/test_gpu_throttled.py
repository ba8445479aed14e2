"""A GPU that NVML saw throttled while a job ran."""

import pytest

from tests.made_run import MadeRun


def findings(folder, *throttle, ranks=(3,)):
    """Of a run with one look an argument at GPU 1 of node1."""
    run = MadeRun(folder)
    for n, words in enumerate(throttle):
        gpu = {"index": 1, "ranks": list(ranks), "throttle": list(words), "temperature": 80 + n}
        run.metrics(1, t=100 + 10 * n, gpus=[gpu])
    run.rest(0)
    return [finding for finding in run.closes().report().findings if finding.id == "gpu-throttled"]


def test_a_device_that_is_hot_for_a_while_is_named_with_its_rank(tmp_path):
    hot = ("hardware thermal slowdown",)
    (found,) = findings(tmp_path, (), hot, hot, hot, ("power cap",))
    assert (found.severity, found.ranks, found.nodes, found.first_seen) == ("warning", (3,), ("node1",), 110)
    assert found.summary == (
        "GPU 1 of node1, of rank 3, was throttled while the job ran: "
        "hardware thermal slowdown at 3 of 5 looks, at up to 83 °C"
    )


def test_the_hardwares_own_reason_is_named_and_not_the_bit_beside_it(tmp_path):
    (found,) = findings(tmp_path, *[("hardware slowdown", "hardware thermal slowdown")] * 3)
    assert "hardware thermal slowdown" in found.summary and "3 of 3" in found.summary


@pytest.mark.parametrize(
    "looks",
    [[("power cap",)] * 20, [("power brake",)] * 2, [("power brake",)] * 3 + [()] * 10, [()] * 5],
    ids=["where a busy one belongs", "twice", "seldom", "never"],
)
def test_what_is_no_trouble(tmp_path, looks):
    assert findings(tmp_path, *looks) == []
