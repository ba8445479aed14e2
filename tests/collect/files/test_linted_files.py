"""Lint of many files: what is kept between two calls, what makes it invalid, and that processes change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdbg.collect.files import linted_files
from distdbg.collect.files.linted_files import lint_together
from distdbg.lint.linting import FileRun, FilesLinter, Linted, lint_files

SAVES = "import torch\n\n\ndef save(model):\n    torch.save(model.module.state_dict(), 'model.pt')\n"
CALLS = """\
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from helper import save

dist.init_process_group("nccl")
model = DistributedDataParallel(net)
save(model)
"""
TEXTS = {"helper.py": SAVES, "train.py": CALLS, "broken.py": "import torch\ndef f(:\n", "other.py": "x = 1\n"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "distdbg" / "lint"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were really linted."""
    found: list[str] = []
    run = FilesLinter.run

    def noted(self: FilesLinter, path: str) -> FileRun:
        found.append(path)
        return run(self, path)

    monkeypatch.setattr(FilesLinter, "run", noted)
    return found


def summary(texts: dict[str, str], *, cached: bool = True) -> dict[str, object]:
    results = lint_together(texts, cached=cached)
    return {
        p: [(f.id, f.evidence) for f in r.findings] if isinstance(r, Linted) else str(r) for p, r in results.items()
    }


def test_what_was_found_is_found_again_without_a_look(ran: list[str]) -> None:
    first = summary(TEXTS)
    assert ran == list(TEXTS)
    assert summary(TEXTS) == first and ran == list(TEXTS)
    expected = {p: str(r) if not isinstance(r, Linted) else r.findings for p, r in lint_files(TEXTS).items()}
    assert {p: len(f) for p, f in first.items()} == {p: len(f) for p, f in expected.items()}
    assert first["helper.py"] and "line 2" in str(first["broken.py"])


def test_a_file_is_linted_again_when_it_or_what_it_imports_has_changed(ran: list[str]) -> None:
    summary(TEXTS)
    ran.clear()
    guarded = TEXTS | {"train.py": CALLS.replace("save(model)", "if dist.get_rank() == 0:\n    save(model)")}
    assert summary(guarded)["helper.py"] == [] and ran == ["train.py"]
    ran.clear()
    summary(TEXTS | {"helper.py": SAVES + "\n"})
    assert set(ran) == {"helper.py", "train.py"}, "what train.py shows depends on helper.py"


def test_another_list_of_files_has_a_cache_of_its_own(ran: list[str]) -> None:
    without = {"train.py": CALLS}
    summary(without)
    assert summary(TEXTS)["helper.py"] and ran.count("train.py") == 2


def test_a_cache_that_is_broken_or_holds_something_else_is_made_again(cache: Path, ran: list[str]) -> None:
    first = summary(TEXTS)
    (file,) = cache.glob("*.pickle")
    for content in (b"", b"cos\nsystem\n(S'false'\ntR.", file.read_bytes()[:-20]):
        file.write_bytes(content)
        ran.clear()
        assert summary(TEXTS) == first and ran == list(TEXTS)


def test_a_folder_that_others_may_write_to_is_not_trusted(cache: Path, ran: list[str]) -> None:
    summary(TEXTS)
    cache.chmod(0o777)
    ran.clear()
    summary(TEXTS)
    assert ran == list(TEXTS)


def test_without_a_cache_nothing_is_kept(cache: Path) -> None:
    summary(TEXTS, cached=False)
    assert not cache.exists()


def test_processes_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = summary(TEXTS, cached=False)
    monkeypatch.setattr(linted_files, "_WORTH_PROCESSES", 0)
    monkeypatch.setattr(linted_files, "_CHUNK", 1)
    monkeypatch.setattr(linted_files, "_cpus", lambda: 2)
    assert summary(TEXTS, cached=False) == alone
