"""No value of a secret variable stands in a report, a page, a bundle or on the terminal, whatever characters it has."""

from __future__ import annotations

import base64
import functools
import html
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st

from distdbg.collect.runs.bundle import write_bundle
from distdbg.collect.runs.known_secrets import is_distinctive, known_secrets
from distdbg.collect.runs.report_files import report_forms
from distdbg.collect.runs.whole_run import load_whole_run
from distdbg.diagnosis.verdict import build_report
from distdbg.hidden_values import HiddenValues, SecretValue, record_value
from distdbg.launch.plan.job_record import hidden_values
from distdbg.masking import MASK, is_random
from distdbg.rundir import RunDir
from tests.made_run import MadeRun

NAME = "TRACKER_PASSWORD"
PRINTABLE = st.characters(min_codepoint=0x20, max_codepoint=0x7E)
LINES = st.characters(min_codepoint=0x20, max_codepoint=0x7E, include_characters="\n\t")
SCRIPTS = st.text("абвгдежзийклмнопрстуфхцчшщъыьэюяΑΒΓΔΕαβγδε字母密码秘密éüßñ", min_size=1, max_size=9)
WORDS = st.text(st.characters(categories=("L", "N"), max_codepoint=0x24F), min_size=1, max_size=9)
VALUES = st.one_of(
    st.text(PRINTABLE, min_size=4, max_size=40),
    st.text(PRINTABLE, min_size=4, max_size=7),
    st.text(LINES, min_size=8, max_size=60),
    st.lists(WORDS, min_size=2, max_size=6).map(" ".join),
    st.lists(SCRIPTS, min_size=2, max_size=6).map("-".join),
    st.dictionaries(WORDS, st.text(PRINTABLE, min_size=8, max_size=20), min_size=1, max_size=3).map(json.dumps),
    st.binary(min_size=6, max_size=40).map(lambda raw: base64.b64encode(raw).decode()),
    st.text(PRINTABLE, min_size=8, max_size=20).map(lambda text: f"https://me:{quote(text, safe='')}@host/path?q=1"),
).filter(lambda value: is_distinctive(value) and not os.path.exists(value))


def forms(value: str) -> dict[str, str]:
    """The value as programs print it, by the name of the form."""
    raw = value.encode()
    return {
        "plain": value, "repr": repr(value), "bytes": repr(raw), "json": json.dumps(value), "url": quote(value),
        "query": quote_plus(value), "html": html.escape(value), "base64": base64.b64encode(raw).decode(),
        "basic": base64.b64encode(b"user:" + raw).decode(), "nested": repr(repr(value)), "hex": raw.hex(),
        "record": json.dumps({"message": f"refused {value}"}), "ascii": ascii(value),
    }  # fmt: skip


def can_be_digested(value: str) -> bool:
    return bool(record_value(SecretValue(NAME, value), b"salt")["digests"])


def make_run(folder: Path, value: str, *, recorded: bool) -> RunDir:
    """A run whose rank 1 has printed the value in every form, and then raised an error with it."""
    run = MadeRun(folder, ranks=2, nodes=1)
    secrets = hidden_values(known_secrets()) if recorded else []
    run.dir.job.write_text(json.dumps(run.job() | {"hidden_values": secrets}))
    for name, form in forms(value).items():
        run.prints(1, f"{name} <<{form}>>\n")
        run.prints(1, f"{form}\n", "stdout")
    run.raises(1, "RuntimeError", f"refused {value} and {value!r}", before=f"of {json.dumps(value)}\n")
    run.rest(-15, t=11.0, asked=9.5)
    return run.closes().dir


def shown_texts(run: RunDir) -> Iterator[tuple[str, str]]:
    """(name, text) of every form of the report and every file of the bundle; of JSON, also each text in it."""
    evidence = load_whole_run(run)
    assume(not evidence.hidden.incomplete)  # of a part of the value no digest can be kept
    report = build_report(evidence)
    assert [(f.id, f.ranks) for f in report.verdict] == [("rank-exception", (1,))]
    packed = io.BytesIO()
    write_bundle(packed, run, report, evidence)
    with zipfile.ZipFile(packed) as archive:
        files = [(name, archive.read(name).decode()) for name in archive.namelist()]
    for name, text in [*report_forms(report, evidence), *files]:
        yield name, text
        if name.endswith(".json"):
            yield from ((name, inner) for inner in texts_of(json.loads(text)))


def texts_of(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from texts_of(item)
        case dict():
            for key, item in value.items():
                yield key
                yield from texts_of(item)


@functools.cache
def own_words() -> str:
    """What is shown of a run without the value: a part of an id, as `xception`, is nobody's secret."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {NAME: "#1"}):
        return "\n".join(text for _, text in shown_texts(make_run(Path(folder), "#1", recorded=False)))


def leaks(value: str, *, known: bool) -> list[tuple[str, str]]:
    """(file, form) of each form of the value that stands in what is shown."""
    assume(value not in own_words())
    with tempfile.TemporaryDirectory() as folder:
        with mock.patch.dict(os.environ, {NAME: value}):
            run = make_run(Path(folder), value, recorded=not known)
            shown = list(shown_texts(run)) if known else []
        if not known:
            shown = list(shown_texts(run))
    wanted = {name: form for name, form in forms(value).items() if name not in ("nested", "record")}
    wanted["repr"], wanted["json"], wanted["bytes"] = repr(value)[1:-1], json.dumps(value)[1:-1], wanted["bytes"][2:-1]
    wanted["ascii"] = ascii(value)[1:-1]
    return [(file, name) for file, text in shown for name, form in wanted.items()
            if f"<<{form}>>" in text or f"refused {form}" in text or (len(form) > 7 and form in text)]  # fmt: skip


def with_examples(count: int) -> settings:
    """The value that fails first is shown: making it smaller would take minutes."""
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True,
                    phases=(Phase.explicit, Phase.generate))  # fmt: skip


@with_examples(40)
@example("correct horse battery staple")
@example("Pa(ren)thesis9")
@example('{"k":"JsonSecret9999"}')
@example("a;b<c>'d\"e,f[g]{h}")
@example("line one of it\nline two of it")
@example("x7#q")
@given(VALUES)
def test_values_that_are_known_are_shown_nowhere(value):
    assert leaks(value, known=True) == []


@with_examples(12)
@example("correct horse battery staple")
@example("Pa(ren)thesis9")
@example('{"k":"JsonSecret9999"}')
@example("line one of it\nline two of it")
@example("совершенно-секретно")
@example("un été très chaud à l'ombre")
@example("#42 ÄÖÜ äöü ßßß éèê")
@given(VALUES.filter(can_be_digested))
def test_values_that_only_digests_are_kept_of_are_shown_nowhere(value):
    assert leaks(value, known=False) == []


def wrap(text: str, width: int, prefix: str) -> str:
    return "\n".join(prefix + text[n : n + width] for n in range(0, len(text), width))


@with_examples(300)
@example(
    b"NqVwYS81VP7Hb1DX8pPd5khxE3pyIgKpaUnArl63XykWZeiNNCiia3anXn9k3ksu9mI4ROnl89Sm995ytbxAk7jqevt0",
    b"",
    76,
    "",
    "plain",
)
@given(
    st.text(PRINTABLE, min_size=30, max_size=200).map(str.encode),
    st.binary(max_size=5),
    st.integers(16, 100),
    st.sampled_from(["", "[rank0]: ", "2026-11-28 10:00:00,123 INFO ", "| ", "[default3]:[rank3]: "]),
    st.sampled_from(["plain", "repr"]),
)
def test_wrapped_base64_and_hex_are_masked(raw, before, width, prefix, written):
    """All but the end of the last line: up to 7 characters of base64 and 11 of hex."""
    hidden = HiddenValues(known=[SecretValue(NAME, raw.decode())])
    for encoded, shortest in ((base64.b64encode(before + raw).decode(), 8), ((before + raw).hex(), 12)):
        first = -(-len(before) * 8 // 6) if shortest == 8 else 2 * len(before)
        lines = wrap(encoded, width, prefix)
        masked = hidden.mask(repr(lines) if written == "repr" else lines)
        secret = encoded[first : -4 if shortest == 8 else None]
        # the first line also without the others, as a summary has it, and with what follows there
        masked += hidden.mask(f"denied {lines.splitlines()[0]} at train.py:8")
        assert [secret[n : n + shortest] for n in range(len(secret) - shortest + 1)
                if secret[n : n + shortest] in masked] == []  # fmt: skip


@with_examples(100)
@given(
    st.text("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789", min_size=24, max_size=40), st.integers(12, 28)
)
def test_a_random_value_is_masked_in_two_lines(value, cut):
    assume(is_random(value))
    hidden = HiddenValues(known=[SecretValue(NAME, value)])
    first, second = value[:cut], value[cut:]
    for part in (first, second):
        if len(part) >= 8 and any(map(str.isdigit, part)):
            assert hidden.mask(f"denied {part} at train.py:8") == f"denied {MASK} at train.py:8"


TOKENS = st.text("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789", min_size=16, max_size=40)


@with_examples(12)
@example("q7Zr0aPxyz11WvUt", 212, 23_990, False)
@example("q7Zr0aPxyz11WvUt", 480, 23_990, True)
@given(TOKENS, st.integers(150, 1100), st.integers(23_950, 24_000), st.booleans())
def test_no_part_of_a_value_is_shown_wherever_a_text_is_cut(value, before, after, known):
    """In the message of an exception, in what torchrun's error file says, and in the last lines of a log."""
    with tempfile.TemporaryDirectory() as folder:
        run = MadeRun(Path(folder), ranks=2, nodes=1)
        run.dir.job.write_text(json.dumps(run.job() | {"hidden_values": hidden_values([SecretValue(NAME, value)])}))
        run.prints(1, f"{'.' * 90}\n" * 40 + f"{value} {'.' * after}\n", "stdout")
        run.raises(1, "RuntimeError", f"{'.' * before} {value} {'.' * before}", before=f"{value}\n")
        run.fact(0, op="fact", kind="not-hooked", module="m", error=f"{'.' * before} {value} {'.' * 9000}")
        run.rest(-15, t=11.0, asked=9.5)
        with mock.patch.dict(os.environ, {NAME: value} if known else {}):
            shown = list(shown_texts(run.closes().dir))
    parts = value[:5], value[-5:]
    assert [(name, part) for name, text in shown for part in parts if part in text] == []


@with_examples(300)
@given(
    VALUES, st.sampled_from(sorted(forms("x"))), st.sampled_from(["{}", "a {} b", "x{}y", '"{}"', "\n{}\n", "k={}&l"])
)
def test_every_form_is_masked_in_any_text(value, name, around):
    with mock.patch.dict(os.environ, {NAME: value}):
        hidden = HiddenValues(known=known_secrets())
    form = forms(value)[name]
    masked = hidden.mask(around.format(form))
    if len(value) >= 8 or not value.isalpha():
        assert value not in masked and form not in masked


@pytest.mark.parametrize("value", ["1", "true", "rank", "0", "none", "abc", "12345", "error", "1e-3"])
def test_a_short_or_common_value_leaves_the_report_as_it_is(value, tmp_path):
    run = make_run(tmp_path / "a", "another-value-77", recorded=False)
    before = dict(report_forms(build_report(load_whole_run(run)), load_whole_run(run)))
    with mock.patch.dict(os.environ, {NAME: value}):
        evidence = load_whole_run(run)
        after = dict(report_forms(build_report(evidence), evidence))
    assert after == before
