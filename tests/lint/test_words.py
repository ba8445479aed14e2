"""Rules are chosen by the words of a text: a word of every group must be there, and a call is no definition."""

from __future__ import annotations

import re
from pathlib import Path

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


def test_a_function_that_is_only_defined_is_not_called() -> None:
    assert words_of("def save(x): load(x)\n") >= {"save", "load", "load("}
    assert "save(" not in words_of("def  save(x): load(x)\n")
    assert "save(" in words_of("def save(x): ...\nsave(1)\n")
    assert {"größe", "größe("} <= words_of("größe(1)\n")


def test_a_pattern_finds_the_same_words_in_a_list_as_one_by_one() -> None:
    """No pattern of a rule matches across the end of a word."""
    root = Path(__file__).parent
    words = frozenset().union(*(words_of(path.read_text(encoding="utf-8")) for path in root.glob("*/*.py")))
    groups = [
        group for rule in all_rules() for need in rule.needs for group in (need if isinstance(need, tuple) else (need,))
    ]
    for pattern in {group for group in groups if isinstance(group, re.Pattern)}:
        assert met((pattern,), words) is any(map(pattern.search, words))
        for word in words:
            assert met((pattern,), frozenset({word})) is (pattern.search(word) is not None), (pattern, word)


def test_a_file_without_a_word_of_any_rule_is_passed_over() -> None:
    words = words_of("import torch\n\n\ndef scaled(x):\n    return torch.softmax(x / 2, dim=-1)\n")
    assert not [rule.doc.id for rule in all_rules() if met(rule.needs, words)]
