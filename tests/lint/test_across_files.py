"""Files that are linted together: names are followed from one into the others, and each file is reported once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distdbg.lint.linting import Linted, lint_files
from distdbg.lint.script.parsing import UnreadableScript

CASES = sorted(p for p in (Path(__file__).parent / "across").iterdir() if p.is_dir())
_EXPECT = re.compile(r"#\s*expect:\s*([\w-]+)")
SAVES = "import torch\n\n\ndef save(model):\n    torch.save(model.state_dict(), 'model.pt')\n"
CALLS = """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from {module} import {name}

dist.init_process_group("nccl")
model = DistributedDataParallel(net)
{guard}{name}(model)
"""


def texts_below(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8") for p in sorted(folder.rglob("*.py"))}


def found(texts: dict[str, str]) -> set[tuple[str, int | None, str]]:
    results = [r for r in lint_files(texts).values() if isinstance(r, Linted)]
    return {(f.evidence[0].path, f.evidence[0].line, f.id) for r in results for f in r.findings if f.severity != "info"}


@pytest.mark.parametrize("folder", CASES, ids=lambda p: p.name)
def test_what_the_files_mark_is_found_and_nothing_else(folder: Path) -> None:
    texts = texts_below(folder)
    expected = {
        (path, number, match[1])
        for path, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        for match in _EXPECT.finditer(line)
    }
    assert bool(expected) == folder.name.startswith("bad_")
    assert found(texts) == expected
    assert found(dict(reversed(texts.items()))) == expected, "the order of the files has no say"


def test_a_helper_is_judged_as_its_callers_use_it() -> None:
    all_ranks = CALLS.format(module="helper", name="save", guard="")
    one_rank = CALLS.format(module="helper", name="save", guard="if dist.get_rank() == 0:\n    ")
    race = {("helper.py", 5, "checkpoint-race")}
    assert found({"helper.py": SAVES, "one.py": one_rank}) == set()
    assert found({"helper.py": SAVES, "one.py": one_rank, "all.py": all_ranks}) == race
    assert found({"helper.py": SAVES, "test_all.py": all_ranks}) == set(), "a test shows nothing about training"


@pytest.mark.parametrize(
    "imports", ["from .deep import save", "import pkg\nfrom pkg.deep import save as save", "from .deep import *"]
)
def test_names_that_a_package_passes_on(imports: str) -> None:
    texts = {
        "pkg/__init__.py": f"import torch\n{imports}\n",
        "pkg/deep.py": SAVES,
        "train.py": CALLS.format(module="pkg", name="save", guard=""),
    }
    assert found(texts) == {("pkg/deep.py", 5, "checkpoint-race")}


def test_a_comment_silences_what_another_file_brings_up() -> None:
    quiet = SAVES.replace("'model.pt')", "'model.pt')  # distdbg: ignore[checkpoint-race]")
    results = lint_files({"helper.py": quiet, "all.py": CALLS.format(module="helper", name="save", guard="")})
    helper = results["helper.py"]
    assert isinstance(helper, Linted) and not helper.findings and helper.silenced == 1


def test_a_file_that_cannot_be_read_hides_no_other() -> None:
    results = lint_files(
        {"helper.py": "def save(:\n", "train.py": CALLS.format(module="helper", name="save", guard="")}
    )
    assert isinstance(results["helper.py"], UnreadableScript) and isinstance(results["train.py"], Linted)


def test_files_that_import_each_other_end_and_are_reported_once() -> None:
    texts = {
        f"m{n}.py": f"import torch\nfrom m{after} import f{after}\n\n\ndef f{n}(x):\n    f{after}(x)\n"
        for n, after in enumerate([1, 2, 3, 4, 0])
    }
    assert found(texts) == set()


def test_nothing_is_said_of_what_only_some_ranks_have() -> None:
    """Not even a remark, which the cases above leave out."""
    texts = texts_below(CASES[0].parent / "good_saver_made_on_one_rank")
    results = lint_files(texts)
    assert not [f for r in results.values() if isinstance(r, Linted) for f in r.findings if f.id == "checkpoint-race"]
    everywhere = texts | {
        "train.py": texts["train.py"].replace("    if dist.get_rank() == 0:\n        saver", "    saver")
    }
    results = lint_files(everywhere)
    assert [f for r in results.values() if isinstance(r, Linted) for f in r.findings if f.id == "checkpoint-race"]
