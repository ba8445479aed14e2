"""Man pages, the recipe for conda, the container file and the GitHub Action agree with the project."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from distdbg import __version__

ROOT = Path(__file__).resolve().parents[2]
INSTALL = ROOT / "install"
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
ACTION = yaml.safe_load((INSTALL / "lint-action" / "action.yml").read_text(encoding="utf-8"))
BAD = ROOT / "tests" / "programs" / "hangs" / "barrier_on_rank_0.py"
FINDINGS_OF_SEVERITY_ERROR = 10


def test_there_is_one_version() -> None:
    recipe = (INSTALL / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r'^version = "(.*)"', PROJECT, re.MULTILINE) == [__version__]
    assert yaml.safe_load(recipe)["context"]["version"] == __version__
    assert re.findall(r"^## \[?([\d.]+)", changelog, re.MULTILINE)[0] == __version__


def test_the_recipe_has_the_projects_requirements() -> None:
    recipe = yaml.safe_load((INSTALL / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    listed = re.search(r"^dependencies = \[(.*?)^\]", PROJECT, re.MULTILINE | re.DOTALL)
    assert listed is not None
    wanted = {name.replace(">=", " >=") for name in re.findall(r'"(.*)"', listed[1])}
    assert set(recipe["requirements"]["run"]) - {"__linux", "python >=3.10"} == wanted


@pytest.mark.parametrize(("clean", "code"), [(False, FINDINGS_OF_SEVERITY_ERROR), (True, 0)])
def test_the_action_writes_sarif_and_fails_at_an_error(clean: bool, code: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("" if clean else BAD.read_text(encoding="utf-8"))
    (tmp_path / "distdbg").write_text(f'#!/bin/sh\nexec {sys.executable} -m distdbg "$@"\n')
    (tmp_path / "distdbg").chmod(0o700)
    given = {name.upper(): str(one["default"]) for name, one in ACTION["inputs"].items()}
    env = {**os.environ, **given, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    script = ACTION["runs"]["steps"][-1]["run"]
    done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    (run,) = json.loads((tmp_path / "distdbg-lint.sarif").read_text())["runs"]
    assert [result["ruleId"] for result in run["results"]] == ([] if clean else ["rank-conditional-collective"])
    assert clean or "train.py:18" in done.stdout
