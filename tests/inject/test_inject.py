"""A fixed sample of planted faults: each must name its rank, its finding, its line and its exit code.

benchmarks/injected_faults.py runs all of them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.inject.faults import FAULTS
from tests.inject.injection import CLIENTS, all_injections, run, sample

SAMPLE = sample(20)
_AT_ONCE = 2


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """injection -> future of its outcome; all that are selected run side by side."""
    tests = [i for i in request.session.items if getattr(i, "function", None) is test_a_planted_fault_is_found]
    wanted = {i.callspec.params["injection"]: tmp_path_factory.mktemp("planted") for i in tests}
    pool = ThreadPoolExecutor(_AT_ONCE)
    yield {injection: pool.submit(run, injection, folder) for injection, folder in wanted.items()}
    pool.shutdown(cancel_futures=True)


@pytest.mark.slow
@pytest.mark.xdist_group("planted faults")
@pytest.mark.parametrize("injection", SAMPLE, ids=str)
def test_a_planted_fault_is_found(injection, outcomes):
    outcome = outcomes[injection].result()
    assert outcome.seconds is not None, f"the fault was never met: {outcome.said}"
    assert outcome.good, outcome


def test_there_are_many_and_half_of_them_have_two_ranks():
    many = list(all_injections())
    assert len(many) >= 150
    assert sum(injection.world == 2 for injection in many) * 2 >= len(many)
    assert {injection.fault for injection in many} == set(FAULTS)
    assert {injection.client for injection in many} == set(CLIENTS)


def test_a_copy_differs_from_its_client_by_the_fault_alone(tmp_path):
    for injection in sample(50, seed=1):
        copy, line = injection.write(tmp_path)
        compile(copy.read_text(), copy.name, "exec")
        assert copy.read_text().splitlines()[line - 1].strip() == injection.fault.line
        assert f'== "{injection.rank}"' in copy.read_text().splitlines()[line - 3]
