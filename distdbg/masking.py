"""Mask secrets in records: by their names, by their form, or as the credentials of an address. Pure.

Better one value too many than one too few: what is masked here was only for people to read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

MASK = "********"
#: Words of a name that make its value a secret, at any place in it.
_SECRET_WORDS = frozenset(
    {"tokens", "secrets", "passwords", "pwd", "pass", "credential", "credentials", "cred", "creds", "bearer",
     "authorization", "authentication", "cookie", "cookies", "signature", "sig", "sas", "pat", "jwt", "dsn", "otp",
     "webhook", "license"}
)  # fmt: skip
#: Written together with other words, too: PGPASSWORD, HFTOKEN.
_SECRET_ENDS = ("token", "secret", "password", "passwd", "passphrase", "pw", "auth", "apikey", "accesskey",
                "privatekey")  # fmt: skip
#: Written as one word or as two: connectionString, CONNECTION_STRING.
_SECRET_PHRASES = ("connectionstring", "connstring", "connstr")
#: The last words of names whose values are secret unless the word before says otherwise.
_SECRET_LAST_WORDS = ("key", "keys", "salt")
#: Of these no value is shown, a number neither; a token, a key or an auth that is a number may be how many they are.
_SURE_WORDS = frozenset({"passwords", "secrets", "pwd", "pass", "cred", "creds", "credential", "credentials", "otp"})
_SURE_ENDS = ("secret", "password", "passwd", "passphrase", "pw", "apikey", "accesskey", "privatekey")
_SURE_KEYS = ("api", "access", "private", "secret")
#: A key that is none, by the word before it: --sort-key, PRIMARY_KEY.
_PLAIN_KEYS = ("sort", "primary", "foreign", "group", "partition", "value", "dict", "cache")
#: These sound secret and are not: paths, sizes, switches.
_PLAIN_NAMES = {"SSH_AUTH_SOCK", "XAUTHORITY", "PWD", "OLDPWD"}
_PLAIN_ENDS = ("path", "file", "dir", "parallelism", "size", "len", "length", "name", "type", "url", "limit")
#: Tokens that show what they are by their beginning: hf_trainer.py is none. MII is that of a key or certificate in PEM.
_LOOKS = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_|ghp_|gho_|ghu_|ghs_|ghr_|github_pat_|glpat-|sk-|rk_live_|sk_live_|xox[abeprs]-|AKIA|ASIA|AIza"
    r"|nvapi-|npm_|pypi-|dop_v1_|dckr_pat_|wandb_v1_|MII[B-K][\w+/]{24}|eyJ[\w-]{5,2000}\.)(?![\w\-]*\.py\b)[\w.\-/+=]{8,}"
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S)
_URL_CREDENTIALS = re.compile(r"(?P<head>[a-z][a-z0-9+.\-]{0,30}://)[^\s/?#\"'@]*(?:@[^\s/?#\"'@]*)*@", re.I)
_SCHEME = re.compile(r"\b(?P<head>Bearer|Basic|Digest)\s+[\w.\-/+=~]{6,}", re.I)
_NAME = re.compile(r"[\w.\-]+")
#: Not the colon of https://, whose query would be taken for its value.
_SIGN = re.compile(r"[\"']?\s*(?:=|:(?!//))\s*")
_VALUE = re.compile(r"\"(?P<double>[^\"]+)\"|'(?P<single>[^']+)'|[\"']?(?P<bare>[^\s\"'&;,{}]+)")
#: Short options that often are a password's. A port, a name and a path stay: only what no word is, is masked.
_SHORT = ("-p", "-P", "-pw")
_SHORT_VALUE = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[^\s/]{6,}")
#: The path of an address. A random part of it is what only its owner knows: a webhook, a shared link.
_URL_PATH = re.compile(r"(?P<head>://[^\s/?#\"'<>]*)(?P<path>/[^\s?#\"'<>]*)")
_LONG_WORD = re.compile(r"[A-Za-z0-9]{20,}")
#: Letters and digits of a random value, and changes between digits, capital and small letters in it: half of 40 random
#: hexadecimal digits are followed by one of the other kind, and passwords of words and years have fewer changes.
_MIN_RANDOM, _MIN_CHANGES = 16, 10
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def sounds_secret(name: str) -> bool:
    """Whether a name is that of a secret, by its words: HF_TOKEN, --api-key, dbPassword; not TOKENIZERS_PARALLELISM,
    not AUTHOR."""
    words = _words(name)
    if not words or name in _PLAIN_NAMES:
        return False
    if words[-1] in _PLAIN_ENDS:
        return words[-2:] == ["webhook", "url"]  # who knows the address may use it
    if _SECRET_WORDS.intersection(words) or any(word.endswith(_SECRET_ENDS) for word in words):
        return True
    if "".join(words).endswith(_SECRET_PHRASES):
        return True
    return words[-1] in _SECRET_LAST_WORDS and (len(words) == 1 or words[-2] not in _PLAIN_KEYS)


def is_random(text: str) -> bool:
    """Whether the letters and digits of the text are those of a token and not of words and years."""
    return sum(map(str.isalnum, text)) >= _MIN_RANDOM and kind_changes(text) >= _MIN_CHANGES


def kind_changes(text: str) -> int:
    """How often the next letter or digit is of another kind than the one before it."""
    return sum(a != b for a, b in pairwise(character_kinds(text)))


def character_kinds(text: str) -> list[str]:
    """Whether each letter or digit of the text is a digit, a capital or a small letter."""
    return ["digit" if c.isdigit() else "capital" if c.isupper() else "small" for c in text if c.isalnum()]


def mask(name: str, value: str) -> str:
    """The value, or asterisks where it is a secret by its name; within it, what is one by its look."""
    if name and _hides(name, value):
        return MASK
    return _mask_assigned(_mask_by_look(value))


def _mask_by_look(text: str) -> str:
    text = _PRIVATE_KEY.sub(MASK, text)
    text = _URL_CREDENTIALS.sub(rf"\g<head>{MASK}@", text)
    text = _URL_PATH.sub(_mask_path, text)
    text = _SCHEME.sub(rf"\g<head> {MASK}", text)
    return _LOOKS.sub(MASK, text)


def _mask_path(url: re.Match[str]) -> str:
    parts = url["path"].split("/")
    return url["head"] + "/".join(MASK if _has_random_word(part) else part for part in parts)


def _has_random_word(text: str) -> bool:
    """A hash has one kind of letters, and it is part of many public addresses."""
    return any(is_random(word) and len(set(character_kinds(word))) == 3 for word in _LONG_WORD.findall(text))


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
    r"|(?P<head2>(?P<name>[\w.\-]*(?:token|key|sig|signature))\"?\s*[=:]\s*[\"']?)(?P<value2>[\w.\-/+=%]{16,}))",
    re.I,
)
#: An option and its value: in a shell line, and in a list that Python or JSON shows.
_OPTION = re.compile(
    r"(?<![\w\-])(?P<head>(?P<name>--[A-Za-z][\w\-]*)[\"']?,?[ \t]+[\"']?)(?P<value>[^\s\"'<>\-][^\s\"'<>]*)"
)


def mask_text(text: str) -> str:
    """Text that a program printed, without what shows by its look or by its name that it is a secret."""
    text = _PROSE.sub(_mask_named, _mask_by_look(text))
    return _OPTION.sub(lambda m: f"{m['head']}{MASK}" if _is_secret_option(m["name"], m["value"]) else m[0], text)


def _mask_named(assigned: re.Match[str]) -> str:
    name = (assigned["name"] or "").lower()
    if assigned["head"] or name.endswith("token"):
        return f"{assigned['head'] or assigned['head2']}{MASK}"
    # a key without a word before it is that of a dict or of a store
    secret = name != "key" and sounds_secret(assigned["name"]) and is_random(assigned["value2"])
    return f"{assigned['head2']}{MASK}" if secret else assigned[0]


def _is_secret_option(name: str, value: str) -> bool:
    if not _SHORT_VALUE.fullmatch(value) or not sounds_secret(name):
        return False
    return _surely_secret(name) or is_random(value)
