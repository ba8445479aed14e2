"""Each rule against its folder: a line with `# expect: id` is found, and nothing else; good_*.py are silent."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from distdbg.lint import all_rules, docs
from distdbg.lint.linting import lint_text
from distdbg.model import Severity

HERE = Path(__file__).parent
SEVERITIES = get_args(Severity)
CASES = sorted(HERE.glob("*/*.py"))
_EXPECT = re.compile(r"#\s*expect:\s*([\w-]+(?:\s*,\s*[\w-]+)*)")


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_a_rule_finds_what_its_files_mark_and_nothing_else(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    expected = {
        (number, one.strip())
        for number, line in enumerate(text.splitlines(), 1)
        for match in _EXPECT.finditer(line)
        for one in match[1].split(",")
    }
    assert bool(expected) == path.name.startswith("bad_"), "bad_*.py mark a line, good_*.py none"
    findings = lint_text(str(path), text).findings
    found = {(f.evidence[0].line, f.id) for f in findings}
    mine = {one for one in found if one[1] == path.parent.name}
    assert mine == expected & {one for one in expected if one[1] == path.parent.name}
    if path.name.startswith("good_"):
        assert not {(f.evidence[0].line, f.id) for f in findings if f.severity != "info"}


@pytest.mark.parametrize(("name", "severity"), [("bad_modulo", "warning"), ("bad_fsdp", "info")], ids=["ddp", "fsdp"])
def test_who_reduces_each_micro_batch_under_fsdp_may_mean_it(name: str, severity: str) -> None:
    path = HERE / "redundant-allreduce" / f"{name}.py"
    (finding,) = lint_text(path.name, path.read_text(encoding="utf-8")).findings
    assert finding.severity == severity
    assert ("may mean it" in finding.summary) == (severity == "info")


@pytest.mark.parametrize(("name", "severity"), [("bad_resume", "warning"), ("bad_one_rank_by_constant", "info")])
def test_a_group_that_has_one_rank_by_a_constant_is_no_job_of_several_ranks(name: str, severity: str) -> None:
    path = HERE / "checkpoint-on-one-gpu" / f"{name}.py"
    findings = lint_text(path.name, path.read_text(encoding="utf-8")).findings
    assert {f.severity for f in findings if f.id == "checkpoint-on-one-gpu"} == {severity}


def test_what_a_test_of_pytest_or_unittest_does_wrong_is_of_severity_info() -> None:
    text = (HERE / "eval-with-grad" / "bad_loop_of_a_pytest.py").read_text(encoding="utf-8")
    (finding,) = lint_text("test_model.py", text).findings
    (elsewhere,) = lint_text("model.py", text.replace("def test_it", "def evaluate")).findings
    assert (finding.severity, elsewhere.severity) == ("info", "warning")


def test_error_of_training_is_a_remark_in_a_test_and_a_hang_is_not() -> None:
    train = (HERE / "missing-zero-grad" / "bad_plain.py").read_text(encoding="utf-8")
    hang = (HERE / "rank-conditional-collective" / "bad_value_of_one_rank.py").read_text(encoding="utf-8")
    for text, name, severity in (
        (train, "missing-zero-grad", "info"),
        (hang, "rank-conditional-collective", "error"),
    ):
        findings = lint_text("test_it.py", f"import pytest\n\n\ndef test_it():\n    pass\n\n\n{text}").findings
        assert {f.severity for f in findings if f.id == name} == {severity}


def test_every_rule_has_a_folder_with_a_mistake_and_two_that_look_like_it() -> None:
    for doc in docs():
        names = [p.name[:4] for p in (HERE / doc.id).glob("*.py")]
        assert names.count("bad_") >= 1 and names.count("good") >= 2, doc.id


def test_real_mistakes_of_a_rule_are_those_of_the_lists() -> None:
    lists = ("", "_second", "_unseen", "_third", "_fourth", "_fifth", "_sixth")
    paths = [HERE.parent.parent / "benchmarks" / f"lint_mistakes{name}.yaml" for name in lists]
    known = Counter(re.findall(r"^  rule: (\S+)$", "\n".join(path.read_text() for path in paths), re.MULTILINE))
    for rule in all_rules():
        assert rule.real_mistakes >= known[rule.doc.id], rule.doc.id
        assert (rule.tier == "stable") == (rule.real_mistakes > 0), rule.doc.id


def test_every_rule_is_documented_in_full() -> None:
    for doc in docs():
        assert doc.title and doc.meaning and doc.how_seen and doc.remedy and doc.source, doc.id


def test_what_ships_to_start_from_is_clean() -> None:
    for path in (HERE.parent.parent / "launch").glob("*.py"):
        findings = lint_text(path.name, path.read_text(encoding="utf-8")).findings
        assert not [f for f in findings if f.severity != "info"]


def test_error_behind_a_forward_is_not_hidden_by_its_remark() -> None:
    path = HERE / "rank-conditional-collective" / "bad_gathers_behind_a_forward.py"
    findings = lint_text(path.name, path.read_text(encoding="utf-8")).findings
    assert [f.severity for f in findings if f.id == path.parent.name] == ["error"]


SAVES_UNDER_LOCAL_RANK = """\
import os
import torch
import torch.distributed as dist

local_rank = int(os.environ["LOCAL_RANK"])


def main(model, tokenizer):
    print(dist.get_rank())
    if local_rank == 0:
        {first}
        {second}
"""


@pytest.mark.parametrize("order", [1, -1])
def test_warning_of_a_guard_is_kept_whatever_is_saved_first(order: int) -> None:
    saves = ["tokenizer.save_pretrained('out')", "torch.save(model.state_dict(), 'out/model.pt')"][::order]
    text = SAVES_UNDER_LOCAL_RANK.format(first=saves[0], second=saves[1])
    findings = [f for f in lint_text("train.py", text).findings if f.evidence[0].line == 10]
    assert [(f.id, f.severity) for f in findings] == [("checkpoint-race", "warning")]


def test_severity_of_a_rule_is_the_worst_of_its_examples() -> None:
    """SARIF and `--rules` show it."""
    for doc in docs():
        texts = (path.read_text(encoding="utf-8") for path in (HERE / doc.id).glob("bad_*.py"))
        severities = {f.severity for text in texts for f in lint_text("train.py", text).findings if f.id == doc.id}
        assert min(severities, key=SEVERITIES.index) == doc.severity, doc.id
