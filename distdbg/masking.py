"""Mask secrets in records: by their names, by their form, or as the credentials of an address. Pure.

Better one value too many than one too few: what is masked here was only for people to read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "********"
#: Words of a name that make its value a secret, at any place in it.
_SECRET_WORDS = frozenset(
    {"tokens", "secrets", "passwords", "pwd", "pass", "credential", "credentials", "cred", "creds", "auth", "bearer",
     "authorization", "authentication", "cookie", "cookies", "signature", "sig", "sas", "pat", "jwt", "dsn", "otp",
     "webhook", "license"}
)  # fmt: skip
#: Written together with other words, too: PGPASSWORD, HFTOKEN.
_SECRET_ENDS = ("token", "secret", "password", "passwd", "passphrase", "apikey", "accesskey", "privatekey")
#: Of these no value is shown, a number neither; a token, a key or an auth that is a number may be how many they are.
_SURE_WORDS = frozenset({"passwords", "secrets", "pwd", "pass", "cred", "creds", "credential", "credentials", "otp"})
_SURE_ENDS = ("secret", "password", "passwd", "passphrase", "apikey", "accesskey", "privatekey")
_SURE_KEYS = ("api", "access", "private", "secret")
#: A key that is none, by the word before it: --sort-key, PRIMARY_KEY.
_PLAIN_KEYS = ("sort", "primary", "foreign", "group", "partition", "value", "dict")
#: These sound secret and are not: paths, sizes, switches.
_PLAIN_NAMES = {"SSH_AUTH_SOCK", "XAUTHORITY", "PWD", "OLDPWD"}
_PLAIN_ENDS = ("path", "file", "dir", "parallelism", "size", "len", "length", "name", "type", "url", "limit")
#: Tokens that show what they are by their beginning: hf_trainer.py is none.
_LOOKS = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_|ghp_|gho_|ghu_|ghs_|ghr_|github_pat_|glpat-|sk-|rk_live_|sk_live_|xox[abeprs]-|AKIA|ASIA|AIza"
    r"|nvapi-|npm_|pypi-|dop_v1_|eyJ[\w-]{5,2000}\.)(?![\w\-]*\.py\b)[\w.\-/+=]{8,}"
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S)
_URL_CREDENTIALS = re.compile(r"(?P<head>[a-z][a-z0-9+.\-]{0,30}://)[^\s/?#\"'@]*(?:@[^\s/?#\"'@]*)*@", re.I)
_SCHEME = re.compile(r"\b(?P<head>Bearer|Basic|Digest)\s+[\w.\-/+=~]{6,}", re.I)
_NAME = re.compile(r"[\w.\-]+")
#: Not the colon of https://, whose query would be taken for its value.
_SIGN = re.compile(r"\"?\s*(?:=|:(?!//))\s*")
_VALUE = re.compile(r"\"(?P<double>[^\"]+)\"|'(?P<single>[^']+)'|[\"']?(?P<bare>[^\s\"'&;,{}]+)")
#: Short options that often are a password's. A port, a name and a path stay: only what no word is, is masked.
_SHORT = ("-p", "-P", "-pw")
_SHORT_VALUE = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[^\s/]{6,}")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def sounds_secret(name: str) -> bool:
    """Whether a name is that of a secret, by its words: HF_TOKEN, --api-key, dbPassword; not TOKENIZERS_PARALLELISM,
    not AUTHOR."""
    words = _words(name)
    if not words or name in _PLAIN_NAMES or words[-1] in _PLAIN_ENDS:
        return False
    if _SECRET_WORDS.intersection(words) or any(word.endswith(_SECRET_ENDS) for word in words):
        return True
    return words[-1] in ("key", "keys") and (len(words) == 1 or words[-2] not in _PLAIN_KEYS)


def mask(name: str, value: str) -> str:
    """The value, or asterisks where it is a secret by its name; within it, what is one by its look."""
    if name and _hides(name, value):
        return MASK
    text = _PRIVATE_KEY.sub(MASK, value)
    text = _URL_CREDENTIALS.sub(rf"\g<head>{MASK}@", text)
    text = _SCHEME.sub(rf"\g<head> {MASK}", text)
    text = _LOOKS.sub(MASK, text)
    return _mask_assigned(text)


def _mask_assigned(text: str) -> str:
    """NAME=value and "name": "value" within longer text: shell lines, queries, JSON."""
    shown: list[str] = []
    done = 0
    for name in _NAME.finditer(text):
        separator = _SIGN.match(text, name.end()) if name.start() >= done else None
        value = _VALUE.match(text, separator.end()) if separator and sounds_secret(name.group()) else None
        if value is None or value.lastgroup is None:
            continue
        start, end = value.span(value.lastgroup)
        if _hides(name.group(), text[start:end]):
            shown += [text[done:start], MASK]
            done = end
    return "".join([*shown, text[done:]])


def _hides(name: str, value: str) -> bool:
    """Nobody's token is a number, a truth value or nothing: MAX_TOKENS=4096, USE_AUTH=true. A password may be one."""
    if not value or not sounds_secret(name):
        return False
    return _surely_secret(name) or not (
        value.lower() in ("true", "false", "yes", "no", "none", "auto")
        or re.fullmatch(r"-?\d{1,9}(\.\d+)?[kKmMgG]?", value)
    )


def _surely_secret(name: str) -> bool:
    words = _words(name)
    sure = bool(_SURE_WORDS.intersection(words)) or any(word.endswith(_SURE_ENDS) for word in words)
    return sure or (words[-1] in ("key", "keys") and words[-2:-1] != [] and words[-2] in _SURE_KEYS)


def _words(name: str) -> list[str]:
    return [word.lower() for word in _PARTS.findall(name)]


def mask_argv(argv: Sequence[str]) -> list[str]:
    """Mask a command line: `--token=…`, `--token …`, NAME=VALUE, and secrets inside one word."""
    masked: list[str] = []
    before = ""
    for word in argv:
        name, equals, value = word.partition("=")
        if before and not word.startswith("--"):
            hides = _SHORT_VALUE.fullmatch(word) if before in _SHORT else _hides(before, word)
            masked.append(MASK if hides else mask("", word))
        elif equals and re.fullmatch(r"-*[\w.\-]+", name):
            masked.append(f"{name}={mask(name, value)}")
        else:
            masked.append(mask("", word))
        before = word if not equals and word.startswith("-") and (sounds_secret(word) or word in _SHORT) else ""
    return masked


# -- text of others ----------------------------------------------------------------------------------------------------

#: In prose only names that can mean nothing else: "forward pass: 3 ms" and "pad_token: <pad>" hide nothing.
#: A name is tried from its first character only: a name of 100,000 characters would take minutes otherwise.
_PROSE = re.compile(
    r"(?<![\w.\-])(?:(?P<head>(?:[\w.\-]*(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key))\"?\s*[=:]\s*"
    r"[\"']?)(?P<value>[^\s\"'&;,{}()<>]{4,})"
    r"|(?P<head2>[\w.\-]*token\"?\s*[=:]\s*[\"']?)(?P<value2>[\w.\-/+=]{16,}))",
    re.I,
)


def mask_text(text: str) -> str:
    """Text that a program printed, without what shows by its look or by its name that it is a secret."""
    text = _PRIVATE_KEY.sub(MASK, text)
    text = _URL_CREDENTIALS.sub(rf"\g<head>{MASK}@", text)
    text = _SCHEME.sub(rf"\g<head> {MASK}", text)
    text = _LOOKS.sub(MASK, text)
    return _PROSE.sub(lambda m: f"{m['head'] or m['head2']}{MASK}", text)
