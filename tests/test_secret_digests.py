"""Digests are kept of values that cannot be tried, and a search in text costs few tries."""

from __future__ import annotations

import random
import string

import pytest

from distdbg import secret_digests
from distdbg.secret_digests import DigestSearch, digests_of

TOKEN = "q7Zr0aPxyz11WvUtB52k"
PASSWORD = "Winter2024Berlin"


def search(*values: str) -> DigestSearch:
    found = DigestSearch()
    for value in values:
        assert found.read(digests_of(value, b"salt")), value
    return found


@pytest.mark.parametrize("value", ["hunter2", "12345678", "20241105-11", "$$%%&&!!@@", "a1!@#$%^&*", "пароль", ""])
def test_no_digest_of_what_could_be_tried(value):
    assert digests_of(value, b"salt") == []


@pytest.mark.parametrize("value", ["hunter22", "123456789012", "correct horse", "пароль-секрет", "clé_à_l'été"])
def test_digest_has_lengths_and_no_letters(value):
    digests = digests_of(value, b"salt")
    assert digests and not any(value[:4] in str(digest) for digest in digests)
    assert search(value).find(f"login <{value}> failed") == [(7, 7 + len(value))]


@pytest.mark.parametrize(
    "text",
    ["{}", "caf\\xe9 {} %20", "x=%22{}%22", "\x1b[31m{}\x1b[0m", "\\n{}\\n", "&quot;{}&quot;", "ä{}".replace("ä", "-")],
)
def test_escapes_around_a_value_are_no_part_of_it(text):
    whole = text.format(PASSWORD)
    begin = whole.index(PASSWORD)
    assert search(PASSWORD).find(whole) == [(begin, begin + len(PASSWORD))]


@pytest.mark.parametrize("before", ["\\x\\n", "\\x%41", "C:\\x\\x41", "\\u%20", "\\U\\u0041"])
def test_escapes_that_are_incomplete_are_text(before):
    whole = f"{before} {PASSWORD}"
    assert search(PASSWORD).find(whole) == [(len(whole) - len(PASSWORD), len(whole))]


@pytest.mark.parametrize(("value", "bits"), [(TOKEN, 24), (PASSWORD, 8), ("a1b2c3d4e5f6", 8), ("MyCompanyProd2024", 8)])
def test_only_a_random_value_has_a_long_checksum(value, bits):
    assert [digest["bits"] for digest in digests_of(value, b"salt")] == [bits]


def test_random_value_is_found_inside_a_word_and_a_password_as_a_whole_word():
    assert search(TOKEN).find(f"user{TOKEN}x") == [(4, 4 + len(TOKEN))]
    assert search(PASSWORD).find(f"user{PASSWORD}x and {PASSWORD}") == [(26, 42)]


def test_search_in_many_words_takes_few_tries(monkeypatch):
    """It took 27 million checksums and 9,000 tries of milliseconds for 4 MB."""
    tried = []
    monkeypatch.setattr(secret_digests, "_digest", lambda words, salt: tried.append(words) or words.encode())
    draw = random.Random(1)
    letters = string.ascii_letters + string.digits
    values = ["".join(draw.choices(letters, k=draw.randrange(16, 60))) for _ in range(20)]
    values += ["".join(draw.choices(string.ascii_lowercase, k=12)) for _ in range(10)]
    found = search(*values)
    tried.clear()
    text = " ".join("".join(draw.choices(letters, k=draw.randrange(1, 60))) for _ in range(5000))
    assert found.find(text) == [] and len(tried) <= 20


def test_ordinary_numbers_stay():
    text = "step 12345678 loss 0.123456789012345 of 1790000000.123456 tokens 409612345678"
    assert search("409612345679", TOKEN).find(text) == []
