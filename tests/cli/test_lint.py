"""`distdbg lint` from outside: its forms, its exit codes, what it skips, what silences it."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

from distdbg.cli import cli
from distdbg.errors import DistdbgError, NothingToAnalyse, UsageError
from distdbg.lint.linting import lint_text
from distdbg.lint.script.parsing import UnreadableScript

ROOT = Path(__file__).resolve().parent.parent.parent
MISTAKE = """\
import torch


def main(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        model(x).backward()
        optimizer.step()
"""
CELL = {"cell_type": "code", "source": MISTAKE}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def lint(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["lint", *map(str, arguments)])


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_text_names_the_place_and_the_exit_code_says_error(tmp_path: Path) -> None:
    path = written(tmp_path, "train.py", MISTAKE)
    done = lint(path)
    assert done.exit_code == 10
    assert f"{path}:8:9 error missing-zero-grad" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 error in 1 file"


def test_a_clean_file_and_an_empty_folder(tmp_path: Path) -> None:
    assert isinstance(lint(tmp_path).exception, NothingToAnalyse)
    written(tmp_path, "empty.py", "")
    done = lint(tmp_path)
    assert (done.exit_code, done.stdout) == (0, "nothing found in 1 file\n")


def test_json_is_a_report(tmp_path: Path) -> None:
    done = lint(written(tmp_path, "train.py", MISTAKE), "--json")
    report = json.loads(done.stdout)
    schema = json.loads((ROOT / "configs" / "report.schema.json").read_text())
    jsonschema.validate(report, schema)
    assert report["run"] is None and report["outcome"] is None
    assert report["findings"][0]["evidence"][0]["line"] == 8


def test_sarif_has_what_readers_need(tmp_path: Path) -> None:
    written(tmp_path, "a b%.py", MISTAKE)
    written(tmp_path, "broken.py", "def (:\n")
    done = lint(tmp_path, "--sarif")
    log = json.loads(done.stdout)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert log["version"] == "2.1.0" and run["tool"]["driver"]["name"] == "distdbg"
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note") and result["message"]["text"]
        for place in (*result["locations"], *result["relatedLocations"]):
            region = place["physicalLocation"]["region"]
            assert region["startLine"] >= 1 and region["startColumn"] >= 1
            assert place["physicalLocation"]["artifactLocation"]["uri"].endswith("a%20b%25.py")
            assert place["physicalLocation"]["artifactLocation"]["uri"].startswith("file:///"), "the path is absolute"
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == 1


def test_github_form(tmp_path: Path) -> None:
    done = lint(written(tmp_path, "train.py", MISTAKE), "--github")
    assert done.stdout.startswith("::error file=") and ",line=8,col=9,title=missing-zero-grad::" in done.stdout
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "text", "because"),
    [
        ("two.py", "print 'hello'\n", "Python 2"),
        ("broken.py", "def f(:\n", "no Python of this version"),
        ("latin.py", b"x = '\xe9'\n", "encoding"),
        ("claims.py", b"# -*- coding: no-such-thing -*-\n", "unknown encoding"),
        ("zero.py", b"x = 1\n\0\n", "line 2 has a NUL byte"),
        ("deep.py", "x = " + "(" * 5000 + ")" * 5000, "line 1"),
        ("minus.py", "x = " + "-" * 100_000 + "1", "deep"),
        ("huge.py", "x = 1\n" * 700_000, "larger"),
        ("no.ipynb", "{}", "no cells"),
        ("list.ipynb", "[1, 2", "no JSON"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "bytes",
)
def test_what_cannot_be_read_is_named_and_skipped(tmp_path: Path, name: str, text: str | bytes, because: str) -> None:
    written(tmp_path, name, text)
    written(tmp_path, "z_good.py", "import torch\n")
    done = lint(tmp_path)
    assert done.exit_code == 5, done.output
    assert f"{name}: skipped, because " in done.stdout and because in done.stdout
    assert "nothing found in 1 file, 1 skipped" in done.stdout


def test_deep_but_legal_code_is_read() -> None:
    chain = "import torch\nx = " + " + ".join(["torch.ones(1)"] * 400) + "\n"
    nested = "import torch\n" + "".join(f"{' ' * n}if x{n}:\n" for n in range(90)) + " " * 90 + "torch.save(x, 'a')\n"
    elifs = "import torch\nif a:\n    pass\n" + "".join(f"elif a == {n}:\n    rank = {n}\n" for n in range(300))
    dots = "import torch\ntorch" + ".a" * 100_000 + "\n"  # Python 3.14 reads even that
    for text in (chain, nested, elifs, dots):
        try:
            lint_text("deep.py", text)
        except UnreadableScript as error:
            assert "nested too deeply" in str(error)


def test_functions_that_call_themselves_and_each_other_end() -> None:
    text = "import torch\nimport torch.distributed as dist\n" + "".join(
        f"def f{n}(x):\n    f{n}(x)\n    f{(n + 1) % 60}(x)\n    f{(n + 7) % 60}(x)\n"
        f"    if rank == 0:\n        f{(n + 3) % 60}(x)\n"
        f"    for a in x:\n        f{(n + 2) % 60}(a)\n        loss.backward()\n        optimizer.step()\n"
        for n in range(60)
    )
    lint_text("loops.py", text)


def test_a_notebook_s_code_cells_are_read(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# title"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "!pip install torch\n", "x = 1"]},
        {"cell_type": "code", "source": MISTAKE},
    ]
    done = lint(written(tmp_path, "train.ipynb", json.dumps({"cells": cells})))
    assert done.exit_code == 10 and "train.ipynb:cell 3:8:9 error missing-zero-grad" in done.stdout
    report = json.loads(lint(tmp_path / "train.ipynb", "--json").stdout)
    cited = report["findings"][0]["evidence"][0]
    assert (cited["line"], cited["where"]) == (8, "cell 3, column 9")


def test_a_file_of_another_kind_is_named_and_skipped(tmp_path: Path) -> None:
    done = lint(written(tmp_path, "notes.txt", "x = 1\n"))
    assert done.exit_code == 5 and "its name ends in .txt" in done.stdout
    assert done.stdout.splitlines()[-1] == "nothing was linted: 1 file skipped"
    for name, text in (("train", MISTAKE), ("train.slurm", f"#!/usr/bin/env python3\n{MISTAKE}")):
        assert lint(written(tmp_path, name, text)).exit_code == 10


def test_what_many_good_scripts_do_is_shown_on_request(tmp_path: Path) -> None:
    text = "import torch\nimport torch.distributed as dist\n\nprint(dist.get_rank())\ntorch.save(model, args.path)\n"
    path = written(tmp_path, "train.py", text)
    assert lint(path).stdout == "nothing found, 1 info (--all shows) in 1 file\n"
    assert json.loads(lint(path, "--json").stdout)["findings"] == []
    for options in (["--all"], ["--select", "checkpoint-race"]):
        assert "info checkpoint-race" in lint(path, *options).stdout


def test_comments_silence_a_line_or_a_file(tmp_path: Path) -> None:
    line = "        optimizer.step()"
    for comment in (
        "# distdbg: ignore[missing-zero-grad]",
        "# distdbg: ignore",
        "# distdbg:ignore[x, missing-zero-grad]",
    ):
        assert lint(written(tmp_path, "a.py", MISTAKE.replace(line, f"{line}  {comment}"))).exit_code == 0
        assert lint(written(tmp_path, "a.py", MISTAKE.replace(line, f"        {comment}\n{line}"))).exit_code == 0
    assert lint(written(tmp_path, "a.py", MISTAKE.replace(line, f"{line}  # distdbg: ignore[other]"))).exit_code == 10
    assert lint(written(tmp_path, "a.py", f"# distdbg: ignore-file[missing-zero-grad]\n{MISTAKE}")).exit_code == 0


def test_a_comment_that_names_no_finding_is_told(tmp_path: Path) -> None:
    line = "        optimizer.step()"
    misspelt = MISTAKE.replace(line, f"        # distdbg: ignore[missing-zerograd, missing-set-epoch]\n{line}")
    done = lint(written(tmp_path, "a.py", f"{misspelt}# distdbg: ignore-file[peak-too-high]\n"))
    assert done.exit_code == 10
    assert done.stderr.count("a.py:8: ") == 1 and "missing-zero-grad?" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_editor_gives_a_file_by_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "pyproject.toml", '[tool.distdbg.lint]\nignore = ["missing-zero-grad"]\n')
    ours = tmp_path / "new.py"
    given = ["lint", "--stdin", "--stdin-filename"]
    done = CliRunner().invoke(cli, [*given, str(tmp_path / "sub" / "a.py"), "--json"], input=MISTAKE)
    assert (done.exit_code, json.loads(done.stdout)["findings"]) == (0, []), "the settings are those of its folder"
    monkeypatch.chdir("/")
    done = CliRunner().invoke(cli, [*given, "train.py"], input=MISTAKE)
    assert done.exit_code == 10 and done.stdout.startswith("train.py:8:9 error ")
    done = CliRunner().invoke(cli, [*given, "train.ipynb"], input=json.dumps({"cells": [CELL]}))
    assert done.exit_code == 10 and done.stdout.startswith("train.ipynb:cell 1:8:9 error ")
    for wrong in ((str(ours),), ("--fix",), ("--lsp",)):
        failed = CliRunner().invoke(cli, ["lint", "--stdin", *wrong], input=MISTAKE).exception
        assert isinstance(failed, UsageError)


def test_a_comment_above_a_statement_of_several_lines(tmp_path: Path) -> None:
    spread = MISTAKE.replace(
        "        optimizer.step()", "        {}\n        print(\n            optimizer.step(),\n        )"
    )
    assert lint(written(tmp_path, "a.py", spread.format("# distdbg: ignore[missing-zero-grad]"))).exit_code == 0
    assert lint(written(tmp_path, "a.py", spread.format("pass"))).exit_code == 10


def test_a_comment_in_one_file_silences_nothing_in_another(tmp_path: Path) -> None:
    written(tmp_path, "a.py", MISTAKE)
    written(tmp_path, "b.py", f"# distdbg: ignore-file\n{MISTAKE}")
    done = lint(tmp_path)
    assert "a.py:8:9 error" in done.stdout and "b.py" not in done.stdout and "in 2 files" in done.stdout


def test_the_hook_calls_a_command_that_there_is(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, *arguments = hook["entry"].split()
    path = written(tmp_path, "train.py", MISTAKE)
    assert program == "distdbg" and CliRunner().invoke(cli, [*arguments, str(path)]).exit_code == 10
    assert hook["id"] in (ROOT / "docs" / "lint.md").read_text() and hook["require_serial"]


def test_pyproject_and_options(tmp_path: Path) -> None:
    path = written(tmp_path, "train.py", MISTAKE)
    config = tmp_path / "pyproject.toml"
    config.write_text('[tool.distdbg.lint]\nignore = ["missing-zero-grad"]\n')
    assert lint(path).exit_code == 0
    config.write_text('[tool.distdbg.lint]\nselect = ["graph-retained"]\n')
    assert lint(path).exit_code == 0
    assert lint(path, "--select", "missing-zero-grad,graph-retained").exit_code == 10
    config.write_text('[tool.distdbg.lint]\nexclude = ["tr*.py"]\n')
    assert isinstance(lint(tmp_path).exception, NothingToAnalyse)
    config.write_text("")
    assert lint(path, "--ignore", "missing-zero-grad").exit_code == 0


@pytest.mark.parametrize(
    "text",
    [
        '[tool.distdbg.lint]\nselekt = ["x"]',
        '[tool.distdbg.lint]\nignore = "x"',
        "[tool",
        pytest.param("a = " + "[" * 3000, id="nested"),
        "[tool.distdbg]\nlint = 3",
        '[tool.distdbg.lint]\nignore = ["nothing-such"]',
    ],
)
def test_a_wrong_configuration_is_usage(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, "train.py", MISTAKE)
    written(tmp_path, "pyproject.toml", text)
    error = lint(path).exception
    assert isinstance(error, DistdbgError) and error.exit_code == 2


def test_usage() -> None:
    for arguments in ((), ("no-such-file.py",), (".", "--select", "no-such-id")):
        error = lint(*arguments).exception
        assert isinstance(error, DistdbgError) and error.exit_code == 2 and error.remedy


def test_pictures_in_a_notebook_are_not_counted(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "source": MISTAKE, "outputs": [{"data": {"image/png": "x" * 4_100_000}}]}
    assert "missing-zero-grad" in lint(written(tmp_path, "n.ipynb", json.dumps({"cells": [cell]}))).stdout


def test_findings_documents_every_id_of_lint() -> None:
    from distdbg.lint import docs

    for doc in docs():
        assert CliRunner().invoke(cli, ["findings", doc.id]).exit_code == 0


def test_rules_are_listed_with_tier_severity_fix_and_real_mistakes() -> None:
    rows = [line.split() for line in lint("--rules").stdout.splitlines()[1:]]
    assert ["missing-set-epoch", "stable", "warning", "yes", "30"] in rows
    preview = [row[0] for row in rows if row[1] == "preview"]
    assert preview == ["collective-in-handler", "gradients-summed", "work-not-waited"]
    assert all(int(row[4]) > 0 for row in rows if row[1] == "stable")


DROPPED_HANDLE = """\
import torch.distributed as dist

dist.all_reduce(x, async_op=True)
"""


def test_rule_of_the_preview_runs_if_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, "train.py", DROPPED_HANDLE)
    assert "work-not-waited" not in lint("--all", path).stdout
    assert "work-not-waited" in lint("--preview", path).stdout
    assert "work-not-waited" in lint("--select", "work-not-waited", path).stdout


def test_id_of_removed_rule_can_be_ignored_and_not_selected(tmp_path: Path) -> None:
    path = written(tmp_path, "train.py", MISTAKE)
    assert "missing-zero-grad" in lint("--ignore", "mixed-devices", path).stdout
    error = lint("--select", "mixed-devices", path).exception
    assert isinstance(error, DistdbgError) and error.exit_code == 2


@pytest.mark.parametrize(
    "text",
    ["a." * 3000 + "b = 1", "[" + "a." * 3000 + "b]", "[x]\n" + "'a' . " * 3000 + "b = 1", "a = " + "[" * 9000],
    ids=["key", "table", "quoted", "list"],
)  # fmt: skip
def test_settings_that_are_nested_without_end_are_refused(tmp_path: Path, text: str) -> None:
    """Python's parser of TOML takes memory by the square of a key's parts: 3.5 GB for 30,000."""
    written(tmp_path, "pyproject.toml", text)
    written(tmp_path, "a.py", MISTAKE)
    tracemalloc.start()
    try:
        error = lint(tmp_path / "a.py").exception
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    assert isinstance(error, UsageError) and "pyproject.toml cannot be read: it is not TOML" in error.message
    written(tmp_path, "pyproject.toml", f'a = "{"1." * 3000}"\n[tool.distdbg.lint]\nignore = ["missing-zero-grad"]\n')
    assert lint(tmp_path / "a.py").exit_code == 0
