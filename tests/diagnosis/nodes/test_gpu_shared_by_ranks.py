"""Who shares a GPU with whom, by NVML's lists of processes."""

import pytest

from tests.made_run import MadeRun


def findings(folder, *gpus, looks=3, mig=False):
    """Of a run whose node1 has so many GPUs, each with these ranks at all looks."""
    run = MadeRun(folder)
    for n in range(looks):
        devices = [{"index": i, "ranks": list(r), **({"mig": True} if mig else {})} for i, r in enumerate(gpus)]
        run.metrics(1, t=100 + 10 * n, gpus=devices)
    run.rest(0)
    return [finding for finding in run.closes().report().findings if finding.id == "gpu-shared-by-ranks"]


def test_ranks_that_have_one_device_between_them(tmp_path):
    (found,) = findings(tmp_path, (2, 3), ())
    assert (found.severity, found.confidence, found.ranks, found.nodes) == ("warning", "likely", (2, 3), ("node1",))
    assert "GPU, 0 of node1" in found.summary


def test_ranks_with_a_context_on_anothers_device(tmp_path):
    (found,) = findings(tmp_path, (0, 1, 2, 3), (1,), (2,), (3,))
    assert found.ranks == (1, 2, 3)
    assert "ranks 1-3" in found.summary and "rank 0's, 0 of node1" in found.summary
    assert "map_location" in found.remedy


@pytest.mark.parametrize(
    ("gpus", "more"),
    [
        (((2,), (3,)), {}),
        (((2,), (2,), (3,), (3,)), {}),
        (((2,), (2, 3), (3,)), {}),
        (((2, 3), ()), {"looks": 2}),
        (((2, 3), ()), {"mig": True}),
        (((), ()), {}),
    ],
    ids=["one each", "two each", "a third for both", "not for long", "instances of their own", "nobody is shown"],
)
def test_what_is_right(tmp_path, gpus, more):
    assert findings(tmp_path, *gpus, **more) == []
