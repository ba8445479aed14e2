"""The boxes of step times: to one scale, by rank; of many ranks the slowest and the fastest."""

from distdbg.diagnosis.verdict import build_report
from distdbg.evidence.run import RankRecord, RunEvidence, StepTimes
from distdbg.report.page.renderer import PageRenderer
from distdbg.report.page.timeline import step_boxes
from distdbg.report.run_document import run_document


def run_of(medians):
    ranks = tuple(
        RankRecord(n, n, 0, "node0", step_times=None if m is None else StepTimes(40, m, m * 0.9, m * 1.25))
        for n, m in enumerate(medians)
    )
    return RunEvidence(job={"topology": {"world_size": len(ranks)}}, attempt=1, ranks=ranks, nodes=())


def page(evidence):
    return PageRenderer().render(run_document(build_report(evidence), evidence, whole=True))


def test_one_scale_for_all_ranks():
    first, second = step_boxes(run_of([40.0, 80.0, None])).boxes
    assert (first.who, first.left, first.width, first.middle) == ("rank 0", 36.0, 14.0, 40.0)
    assert (second.left, second.width, second.middle) == (72.0, 28.0, 80.0)
    assert second.words == "80 ms (72 ms to 100 ms)"


def test_of_many_the_slowest_and_the_fastest():
    drawn = step_boxes(run_of([10.0 + n for n in range(1024)]))
    assert [box.who for box in drawn.boxes][:2] == ["rank 1023", "rank 1022"]
    assert drawn.boxes[-1].who == "rank 0" and len(drawn.boxes) + drawn.left_out == 1024


def test_too_few_steps_are_no_picture():
    evidence = run_of([None, None])
    assert step_boxes(evidence) is None and "Step times" not in PageRenderer().render(
        run_document(build_report(evidence), evidence, whole=True)
    )
    evidence = run_of([1500.0])
    assert "1.5 s (1.35 s to 1.88 s)" in PageRenderer().render(
        run_document(build_report(evidence), evidence, whole=True)
    )
