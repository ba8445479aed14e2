"""A job's own secrets are found in text, by their values or by digests, and nothing else is hidden."""

from __future__ import annotations

import json

import pytest

from distdbg.collect.runs.known_secrets import secret_values
from distdbg.hidden_values import HiddenValues, SecretValue
from distdbg.launch.plan.job_record import hidden_values
from distdbg.masking import MASK, mask_argv, mask_text

SECRET = "q7Zr-0aP_xyz.11"
PASSPHRASE = "correct horse battery staple"
KEY = '{"type": "rank", "private": "Pa(ren)thesis9"}'


@pytest.fixture
def secrets(tmp_path):
    key_file = tmp_path / "key-file"
    key_file.touch()
    environment = {
        "MY_TOKEN": SECRET,
        "DB_PASSWORD": PASSPHRASE,
        "ACCOUNT_CREDENTIALS": KEY,
        "DATABASE": "postgres://me:p@ss,w0rd@host/db",
        "SHORT_TOKEN": "abc123",
        "OTHER_TOKEN": "true",
        "LEFT_PASSWORD": "rank",
        "ONE_PASSWORD": "1",
        "MAX_TOKENS": "40961234",
        "API_KEY_LOCATION": str(key_file),
        "SSH_KEY": str(key_file),
        "PATH": "/usr/local/bin",
    }
    return list(secret_values(environment, ["train.py", "--auth-token=from-argv-1", "--lr", "0.00001234"]))


@pytest.fixture(params=["known", "digests"])
def hidden(secrets, request):
    if request.param == "known":
        return HiddenValues(known=secrets)
    return HiddenValues({"hidden_values": json.loads(json.dumps(hidden_values(secrets)))})


def test_no_value_stands_in_the_record(secrets):
    text = json.dumps(hidden_values(secrets))
    assert {name: bool(entry["digests"]) for entry in json.loads(text) if (name := entry["name"]) != "DATABASE"} == {
        "MY_TOKEN": True, "DB_PASSWORD": True, "ACCOUNT_CREDENTIALS": True, "--auth-token": True, "SHORT_TOKEN": False,
    }  # fmt: skip
    for value in (SECRET, "horse", "thesis9", "from-argv-1", "abc123"):
        assert value not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"KeyError: '{SECRET}'", f"KeyError: '{MASK}'"),
        (f"GET https://h/x?k={SECRET}&n=1 failed", f"GET https://h/x?k={MASK}&n=1 failed"),
        (f"user:{SECRET}@host", f"user:{MASK}@host"),
        (f"login {PASSPHRASE} failed", f"login {MASK} failed"),
        ("login correct%20horse%20battery%20staple failed", f"login {MASK} failed"),
        ("| login correct horse |\n| battery staple |", f"| login {MASK} |"),
        ("login \x1b[31mcorrect\x1b[0m horse\n\U0001f600 battery\\U0001f600staple", f"login \x1b[31m{MASK}"),
        (f"{PASSPHRASE}s and {PASSPHRASE}", f"{MASK}s and {MASK}"),
        ("the part Pa\\u0028ren\\u0029thesis9 of it", f"the part {MASK} of it"),
        ("got from-argv-1.", f"got {MASK}."),
        (f"x{SECRET}y", f"x{MASK}y"),
        ("40961234 /usr/local/bin 0.00001234", "40961234 /usr/local/bin 0.00001234"),
        ("rank 1: true, a correct horse has a battery", "rank 1: true, a correct horse has a battery"),
    ],
)
def test_values_are_taken_out_of_text(hidden, text, shown):
    assert hidden.mask(text) == shown


@pytest.mark.parametrize("upper", [False, True])
def test_hex_of_a_value_is_masked_in_either_case(hidden, upper):
    text = SECRET.encode().hex()
    assert hidden.mask(f"key {text.upper() if upper else text}") == f"key {MASK}"


def test_values_without_digest_are_masked_where_they_are_known(secrets):
    known = HiddenValues({"hidden_values": hidden_values(secrets)}, secrets)
    assert known.mask("abc123 and p@ss,w0rd") == f"{MASK} and {MASK}" and known.incomplete == ""
    unknown = HiddenValues({"hidden_values": hidden_values(secrets)})
    assert "SHORT_TOKEN" in unknown.incomplete and "MY_TOKEN" not in unknown.incomplete


@pytest.mark.parametrize("value", ["abcd", "hunter2", "Pa(ren)thesis9", "$$%%&&!!@@"])
def test_the_rest_of_a_value_in_a_text_that_was_cut(value):
    hidden = HiddenValues(known=[SecretValue("DB_PASSWORD", "prefix-of-" + value)])
    assert hidden.mask("login prefix-of-" + value[:-1]) == f"login {MASK}"
    assert hidden.mask("login prefix-of-" + value[:-1] + " …") == f"login {MASK} …"
    assert hidden.mask("…refix-of-" + value) == f"…{MASK}"


@pytest.mark.parametrize(
    "job",
    [
        {},
        {"hidden_values": 3},
        {"hidden_values": [{}]},
        {"hidden_values": [{"length": 8, "hint": 1, "salt": "zz", "digest": ""}]},
        {"hidden_values": [{"length": -1, "hint": 85, "salt": "a0e2", "digest": "71eb"}]},
        {"hidden_values": [{"name": "A_TOKEN", "digests": [{"lengths": [-1], "hint": 1, "salt": "", "digest": ""}]}]},
        {"hidden_values": [{"name": "A_TOKEN", "digests": [{"lengths": [9], "hint": 1, "salt": "z", "digest": ""}]}]},
    ],
)
def test_a_record_without_them_or_a_damaged_one_is_incomplete(job):
    hidden = HiddenValues(job)
    assert hidden.incomplete and hidden.mask("correct-horse") == "correct-horse"


def test_a_value_in_nested_records_is_masked_and_the_rest_is_kept():
    hidden = HiddenValues(known=[SecretValue("MY_TOKEN", SECRET)])
    kept = {"a": [("b", 1), {"c": None}]}
    value = {"kept": kept, SECRET: [SecretValue("x", f"<{SECRET}>")]}
    masked = hidden.mask_all(value)
    assert masked == {"kept": kept, MASK: [SecretValue("x", f"<{MASK}>")]} and masked["kept"] is kept


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
