"""What `non-finite` says of the files of `--on-nonfinite dump`: what can be run again, and why something cannot."""

import pytest

from distdbg.diagnosis.training.non_finite import non_finite
from distdbg.evidence.run import GuardFact, RankRecord, RunEvidence
from distdbg.model import Citation

WHOLE = ["batch.pt", "model.pkl", "state.pt", "script.py", "about.json"]
BATCH = ["batch.pt", "script.py", "about.json"]
AGAIN = "`distdbg replay` runs it again"


def fact(rank, step=7, made="data", **dump):
    fields = {"made": made, "stepped": True, "dump": {"because": {}, **dump}}
    return GuardFact(rank, "non-finite", fields, None, step, None, Citation(f"ranks/0000{rank}/facts.jsonl"))


def cause(*facts):
    ranks = sorted({f.rank for f in facts})
    records = tuple(RankRecord(r, r, 0, "host", guards=tuple(f for f in facts if f.rank == r)) for r in ranks)
    (finding,) = non_finite.run(RunEvidence({}, 1, records, ()))
    return finding.cause


def test_a_rank_that_saved_all_of_it_can_be_replayed():
    assert f"saved in ranks/00001/nonfinite of the run: {AGAIN}." in cause(fact(1, files=WHOLE))


def test_the_model_of_another_rank_does_where_it_is_of_the_same_step():
    text = cause(fact(0, made="gradient", files=WHOLE), fact(1, files=BATCH, model_of_rank=0))
    assert f"in ranks/00001/nonfinite of the run, and the model in ranks/00000/nonfinite: {AGAIN}." in text


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (None, "that was left to rank 0, which reported none. It cannot be run again."),
        (fact(0, 8, files=WHOLE), "which saved it at step 8, with other weights. `distdbg replay` refuses that."),
        (fact(0, made="gradient", files=BATCH, because={"state.pt": "no room"}), "could not save it. It cannot be run"),
    ],
)
def test_else_it_says_why_it_cannot_be_run_again(first, words):
    text = cause(*filter(None, [first]), fact(1, files=BATCH, model_of_rank=0))
    assert "saved in ranks/00001/nonfinite of the run, without the model" in text and words in text
    assert AGAIN not in text


def test_a_batch_that_is_not_whole_is_not_promised():
    text = cause(fact(1, files=WHOLE, left_out=["kwargs.meta: Meta"]))
    assert "without what cannot be saved plainly (kwargs.meta: Meta): it cannot be run again" in text
    text = cause(fact(1, files=BATCH, because={"state.pt": "no room", "model.pkl": "no room"}))
    assert "without state.pt and model.pkl, because no room" in text and AGAIN not in text
