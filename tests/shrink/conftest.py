"""What a test asked of the child that knows torch ends with the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distdbg.shrink import asking


@pytest.fixture(autouse=True)
def no_child(own_home: None) -> Iterator[None]:
    yield
    asking.dismiss()
