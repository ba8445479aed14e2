"""What must not stand in a record: masked by its name, by its own look, or as the credentials of an address. Pure.

Better one value too many than one too few: what is masked here was only for people to read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "********"
#: Words of a name that make its value a secret, wherever they stand in it.
_SECRET_WORDS = frozenset(
    {"tokens", "secrets", "passwords", "pwd", "pass", "credential", "credentials", "cred", "creds", "auth", "bearer",
     "authorization", "authentication", "cookie", "cookies", "signature", "sig", "sas", "pat", "jwt", "dsn", "otp",
     "webhook", "license"}
)  # fmt: skip
#: Written together with other words, too: PGPASSWORD, HFTOKEN.
_SECRET_ENDS = ("token", "secret", "password", "passwd", "passphrase", "apikey", "accesskey", "privatekey")
#: A key that is none, by the word before it: --sort-key, PRIMARY_KEY.
_PLAIN_KEYS = ("sort", "primary", "foreign", "group", "partition", "value", "dict")
#: These sound secret and are not: paths, sizes, switches.
_PLAIN_NAMES = {"SSH_AUTH_SOCK", "XAUTHORITY", "PWD", "OLDPWD"}
_PLAIN_ENDS = ("path", "file", "dir", "parallelism", "size", "len", "length", "name", "type", "url", "limit")
#: Tokens that show what they are by their beginning.
_LOOKS = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_|ghp_|gho_|ghu_|ghs_|ghr_|github_pat_|glpat-|sk-|rk_live_|sk_live_|xox[abeprs]-|AKIA|ASIA|AIza"
    r"|nvapi-|npm_|pypi-|dop_v1_|eyJ[\w-]{5,}\.)[\w.\-/+=]{8,}"
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S)
_URL_CREDENTIALS = re.compile(r"(?P<head>[a-z][a-z0-9+.\-]*://)[^\s/?#\"'@]*(?:@[^\s/?#\"'@]*)*@", re.I)
_SCHEME = re.compile(r"\b(?P<head>Bearer|Basic|Digest)\s+[\w.\-/+=~]{6,}", re.I)
#: NAME=value and "name": "value" within longer text: shell lines, queries, JSON.
_ASSIGNED = re.compile(
    r"(?P<name>[A-Za-z_][\w.\-]*)(?P<sign>\"?\s*(?:=|:)\s*)(?P<quote>[\"']?)(?P<value>[^\s\"'&;,{}]+)(?P=quote)"
)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def sounds_secret(name: str) -> bool:
    """By the words of a name: HF_TOKEN, --api-key, dbPassword; not TOKENIZERS_PARALLELISM, not AUTHOR."""
    words = [word.lower() for word in _PARTS.findall(name)]
    if not words or name in _PLAIN_NAMES or words[-1] in _PLAIN_ENDS:
        return False
    if _SECRET_WORDS.intersection(words) or any(word.endswith(_SECRET_ENDS) for word in words):
        return True
    return words[-1] in ("key", "keys") and (len(words) == 1 or words[-2] not in _PLAIN_KEYS)


def mask(name: str, value: str) -> str:
    """The value, or asterisks where it is a secret by its name; within it, what is one by its look."""
    if name and sounds_secret(name) and not _is_plain(value):
        return MASK
    text = _PRIVATE_KEY.sub(MASK, value)
    text = _URL_CREDENTIALS.sub(rf"\g<head>{MASK}@", text)
    text = _SCHEME.sub(rf"\g<head> {MASK}", text)
    text = _LOOKS.sub(MASK, text)
    return _ASSIGNED.sub(_mask_assigned, text)


def _mask_assigned(found: re.Match[str]) -> str:
    name, sign, quote, value = found.group("name", "sign", "quote", "value")
    hidden = sounds_secret(name) and not _is_plain(value) and MASK not in value and not value.startswith("//")
    return f"{name}{sign}{quote}{MASK if hidden else value}{quote}"


def _is_plain(value: str) -> bool:
    """Nobody's token is a number, a truth value or nothing: MAX_TOKENS=4096, USE_AUTH=true."""
    return (
        not value
        or value.lower() in ("true", "false", "yes", "no", "none", "auto")
        or bool(re.fullmatch(r"-?\d{1,9}(\.\d+)?[kKmMgG]?", value))
    )


def mask_argv(argv: Sequence[str]) -> list[str]:
    """A command line: `--token=…`, `--token …`, NAME=VALUE, and whatever stands inside one word."""
    masked: list[str] = []
    hide_next = False
    for word in argv:
        name, equals, value = word.partition("=")
        if hide_next and not word.startswith("--"):
            masked.append(word if _is_plain(word) else MASK)
        elif equals and re.fullmatch(r"-*[\w.\-]+", name):
            masked.append(f"{name}={mask(name, value)}")
        else:
            masked.append(mask("", word))
        hide_next = not equals and word.startswith("-") and sounds_secret(word)
    return masked
