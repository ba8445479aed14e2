"""A job's own secrets are found in text by their digests, and nothing else is hidden."""

from __future__ import annotations

import json

import pytest

from distdbg.hidden_values import HiddenValues, entry
from distdbg.launch.plan.job_record import hidden_values
from distdbg.masking import MASK, mask_argv, mask_text

SECRET = "q7Zr-0aP_xyz.11"


@pytest.fixture
def job(tmp_path):
    key_file = tmp_path / "key-file"
    key_file.touch()
    environment = {
        "MY_TOKEN": SECRET,
        "DB_PASSWORD": "correct-horse",
        "SHORT_TOKEN": "abc123",
        "MAX_TOKENS": "40961234",
        "API_KEY_LOCATION": str(key_file),
        "SSH_KEY": str(key_file),
        "PATH": "/usr/local/bin",
    }
    return {"hidden_values": hidden_values(environment, ["train.py", "--auth-token=from-argv-1", "--lr", "0.00001234"])}


def test_no_value_stands_in_the_record(job):
    text = json.dumps(job)
    assert len(job["hidden_values"]) == 3
    for value in (SECRET, "correct-horse", "from-argv-1"):
        assert value not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"KeyError: '{SECRET}'", f"KeyError: '{MASK}'"),
        (f"GET https://h/x?k={SECRET}&n=1 failed", f"GET https://h/x?k={MASK}&n=1 failed"),
        (f"user:{SECRET}@host", f"user:{MASK}@host"),
        ("login correct-horse failed", f"login {MASK} failed"),
        ("got from-argv-1.", f"got {MASK}."),
        (f"x{SECRET}y", f"x{SECRET}y"),  # another word
        ("abc123 40961234 /usr/local/bin 0.00001234", "abc123 40961234 /usr/local/bin 0.00001234"),
    ],
)
def test_values_are_taken_out_of_text(job, text, shown):
    assert HiddenValues(job).mask(text) == shown


@pytest.mark.parametrize(
    "job",
    [
        {},
        {"hidden_values": 3},
        {"hidden_values": [{}, {"length": "x"}, {"length": 8, "hint": 1, "salt": "zz", "digest": ""}]},
    ],
)
def test_a_record_without_them_or_a_damaged_one_hides_nothing(job):
    assert HiddenValues(job).mask("correct-horse") == "correct-horse"


def test_what_cannot_be_found_again_is_not_kept():
    assert entry("short", b"") is None and entry("with spaces in it", b"") is None


@pytest.mark.parametrize(
    "text",
    [
        "forward pass: 3.2 ms, backward pass: 5.1 ms",
        "pad_token: <pad>, eos_token = </s>, max_tokens=4096",
        "KeyError: 'model.layers.0.self_attn.q_proj.weight'",
        "RuntimeError: shape '[4, 8]' is invalid for input of size 16",
        "num_key_value_heads=8 key=lambda x: x[0]",
        "secret of rank 3: it has none",
        "commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "author: Ada",
    ],
)
def test_what_logs_say_every_day_stays(text):
    assert mask_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2",
        'login(api_key="0123456789abcdef")',
        "HF_TOKEN=abcdefghij0123456789",
        "hf_abcdefghijklmnop",
        "https://me:hunter2@host/x",
        "Authorization: Bearer abcdef123456",
    ],
)
def test_what_shows_that_it_is_a_secret_goes(text):
    shown = mask_text(text)
    assert MASK in shown and "hunter2" not in shown and "0123456789" not in shown and "abcdef" not in shown


def test_a_short_option_that_may_be_a_passwords():
    assert mask_argv(["-p", "s3cret-word"]) == ["-p", MASK]
    for value in ("8080", "gpu", "./data1", "partition"):
        assert mask_argv(["-p", value]) == ["-p", value]
