"""Xids that NVML reported to an agent while the job ran: of the hardware, or of the program itself."""

import pytest

from tests.made_run import MadeRun


def faults(run):
    return [finding for finding in run.closes().report().findings if finding.id == "gpu-fault"]


@pytest.mark.parametrize(("code", "severity"), [(0, "warning"), (1, "error")])
def test_a_device_that_failed_is_named_with_its_rank(tmp_path, code, severity):
    run = MadeRun(tmp_path)
    for t in (5, 6):  # reported twice, one fault
        run.event(1, "gpu-xid", t=t, uuid="GPU-bb", xid=79, ranks=[2])
    run.exits(2, code)
    run.rest(0)
    (found,) = faults(run)
    assert (found.severity, found.ranks, found.nodes) == (severity, (2,), ("node1",))
    assert (found.ranks, found.nodes) == ((2,), ("node1",))
    assert "GPU-bb" in found.summary and "Xid 79 (off the bus)" in found.summary
    assert found.evidence[0].line == 6 and found.evidence[0].path.endswith("0001-node1/events.jsonl")


def test_a_programs_own_mistake_is_no_fault_of_the_device(tmp_path):
    run = MadeRun(tmp_path)
    run.event(0, "gpu-xid", t=5, uuid="GPU-aa", xid=13, ranks=[0])
    run.event(0, "gpu-xid", t=5, uuid=None, xid="79", ranks=None)
    run.rest(0)
    assert faults(run) == []


def test_a_device_whose_ranks_are_not_known(tmp_path):
    run = MadeRun(tmp_path)
    run.event(0, "gpu-xid", t=5, uuid="GPU-aa", xid=48, ranks=[])
    run.rest(1)
    (found,) = faults(run)
    assert (found.severity, found.ranks) == ("warning", ()) and "GPU-aa" in found.summary and "Xid 48" in found.summary


def test_a_fault_explains_the_cuda_error_of_its_rank(tmp_path):
    """Xid 48 on rank 1's device, heard after the exception."""
    run = MadeRun(tmp_path)
    run.raises(1, "torch.AcceleratorError", "CUDA error: uncorrectable ECC error encountered", t=4)
    run.event(0, "gpu-xid", t=5, uuid="GPU-aa", xid=48, ranks=[1])
    run.rest(0)
    report = run.closes().report()
    fault, error = report.findings
    assert (fault.id, fault.severity, fault.ranks, fault.explained_by) == ("gpu-fault", "error", (1,), None)
    assert (error.id, error.ranks, error.explained_by) == ("cuda-error", (1,), "gpu-fault")
    assert (report.exit_code, report.exit_code_of) == (1, "rank 1")


def test_a_fault_does_not_explain_an_error_of_the_script(tmp_path):
    run = MadeRun(tmp_path)
    run.raises(1, "ValueError", "bad batch", t=6)
    run.event(0, "gpu-xid", t=5, uuid="GPU-aa", xid=48, ranks=[1])
    run.rest(0)
    findings = run.closes().report().findings
    assert [(f.id, f.explained_by) for f in findings] == [("rank-exception", None), ("gpu-fault", None)]
