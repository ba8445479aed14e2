"""Rules are chosen by the words of a text: a word of every group must be there, and a call is no definition."""

from __future__ import annotations

import re

import pytest

from distdbg.lint import all_rules
from distdbg.lint.script.words import met, words_of

_OPTIMIZER = re.compile(r"^(?:SGD|Adam\w*)$")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("loss.backward()\noptimizer = SGD(x)\n", True),
        ("loss.backward()\noptimizer = AdamW(x)\n", True),
        ("loss.backward()\noptimizer = SGDR(x)\n", False),
        ("def backward(self):\n    return Adam\n", False),
        ("backward = Adam\n", False),
        ("", False),
    ],
)
def test_every_group_needs_a_word(text: str, holds: bool) -> None:
    for _ in range(2):  # a word that was tried before has the same answer
        assert met(({"backward("}, _OPTIMIZER), words_of(text)) is holds


def test_a_file_without_a_word_of_any_rule_is_passed_over() -> None:
    words = words_of("import torch\n\n\ndef scaled(x):\n    return torch.softmax(x / 2, dim=-1)\n")
    assert not [rule.doc.id for rule in all_rules() if met(rule.needs, words)]
