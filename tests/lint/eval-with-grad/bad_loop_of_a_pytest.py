import pytest


@pytest.fixture
def model():
    return __import__("model").build()


def test_it_gives_a_number_for_each_batch(model, batches):
    model.eval()
    for batch in batches:  # expect: eval-with-grad
        assert model(batch) is not None
