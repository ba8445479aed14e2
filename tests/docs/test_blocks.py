"""Every code block of the docs is run, or read by what would run it, or its reason why not stands here."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

import distdbg
from distdbg.cli import cli
from distdbg.collect.files.sources import settings_for
from distdbg.diagnosis.catalogue import documented
from distdbg.settings import settle
from tests.docs.blocks import IDS, PAGES, ROOT, Block, blocks, program_of, refused, typed, words_of

BLOCKS = [block for page in PAGES for block in blocks(page)]
IN_SHELL = [block for block in BLOCKS if block.is_of_a_shell]
LOADS_TORCH = re.compile(r"torch\.cuda|model_type")
CODE = [block for block in BLOCKS if block.language]
OTHER = [block for block in BLOCKS if not block.is_of_a_shell and not block.language]
#: Blocks that nothing can run, by page and first words: the output of what, or a drawing. Their findings, files and
#: lines are checked.
NOT_RUN = {
    ("docs/architecture.md", "rank (worker/)"): "a drawing of the packages; tests/test_architecture.py holds them",
    ("docs/architecture.md", '{"thread_name"'): "py-spy's output of tests/programs/hangs/sleeps_in_step.py",
    ("docs/architecture.md", "stuck-in-python"): "the verdict of tests/programs/hangs/sleeps_in_step.py",
    ("docs/bisect.md", "shows: rank-exception"): "what bisect prints of a job of eight ranks; tests/cli/test_bisect.py",
    ("docs/compile-report.md", "4 graphs"): "what compile-report prints; tests/cli/test_compile_report.py",
    ("docs/compile-report.md", "losses of the first"): "two lines of the same",
    ("docs/guards.md", "missing-set-epoch"): "the finding of a guard; tests/test_guards.py",
    ("docs/hang-dump.md", "hung"): "what hang-dump prints; tests/test_hangs.py",
    ("docs/hang-picture.md", "Where the ranks are"): "the call tree of a hang; tests/diagnosis/waits",
    ("docs/launch.md", "distdbg-runs/<time>"): "the path of a log",
    ("docs/my-framework.md", "stuck-in-python"): "what hang-dump prints; tests/cli/test_other_launchers.py",
    ("docs/profile.md", "step ms"): "what profile prints; tests/test_perf_programs.py",
    ("docs/report.md", "distdbg-runs/2026"): "the tree of a run",
    ("docs/shrink.md", "verified: each kept"): "what shrink-model prints; tests/shrink/test_proved.py",
    ("docs/top.md", "20261123T025522Z"): "what top prints of a job on GPUs; tests/launch/live",
    ("docs/watch.md", "non-finite"): "the findings of numerics; tests/test_numerics_programs.py",
    ("docs/watch.md", "exploding-gradient"): "the findings of gradients; tests/test_numerics_programs.py",
    ("docs/watch.md", "At step 1"): "the table of shapes; tests/worker/test_watch_shapes.py",
}
#: Other programs of a shell's line than ours and make.
NOT_OURS = {
    "chroot": "another root",
    "debootstrap": "installs a system",
    "kubectl": "needs a cluster",
    "man": "shows what `make man` wrote",
    "pip": "installs",
    "pipx": "installs",
    "podman": "builds an image",
    "rattler-build": "builds a package of conda",
    "uv": "installs",
    ".venv-other/bin/python": "of an environment with another torch",
    "python3": "makes that environment",
    "source": "changes the shell",
    "tests/gpu/on_hardware.sh": "tests/gpu/test_on_hardware.py runs it",
    "torchrun": "for comparison",
}
TYPED = [(where, text) for page in PAGES for where, text in typed(page)]
#: Whole ones: with a program, without a placeholder.
LAUNCHES = sorted({text for _, text in TYPED if re.match(r"distdbg launch [^…\[]*\b\w+\.py\b(?!.*…)", text)})
#: The script of the reader, in commands and outputs.
OF_THE_READER = "train.py"
#: Rows of a table of preflight, which look like findings.
CHECKS = {"all-reduce"}


def test_blocks_are_found() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(IN_SHELL) > 50 and len(CODE) >= 5
    assert [b.first_line for b in BLOCKS if b.page == "docs/architecture.md"][-1] in text
    assert Block("p", 1, "", "$ distdbg env\nout\n").shell_lines == ["distdbg env"]
    assert Block("p", 1, "", "distdbg env \\\n  --json").shell_lines == ["distdbg env   --json"]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_command_can_be_typed(page: Path) -> None:
    in_blocks = {str(block) for block in BLOCKS}
    wrong = [(where, text, refused(text, whole=where in in_blocks)) for where, text in typed(page)]
    assert not [each for each in wrong if each[2]]


def test_mistakes_in_commands_are_found() -> None:
    assert len([text for where, text in TYPED if where.startswith("README.md")]) > 10
    assert "--older" in refused("distdbg runs prune --keep 3 --older 3d")
    assert "nonesuch" in refused("distdbg nonesuch x")
    assert "'x'" in refused("distdbg runs prune --keep x")
    assert refused("distdbg explain") and not refused("distdbg explain", whole=False)
    assert not refused("distdbg cancel RUN --timeout 5 | head --nonesuch")
    assert words_of("distdbg launch --container-image a#b t.py  # c") == ["launch", "--container-image", "a#b", "t.py"]


@pytest.mark.parametrize("command", LAUNCHES)
def test_a_launch_that_is_shown_would_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in re.findall(r"[\w/.-]+\.(?:py|yaml)", command):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("script: train.py\n" if name.endswith(".yaml") else "")
    for name in ("accelerate", "deepspeed", "python", "train.py"):
        (tmp_path / name).touch(0o700)
    words = [word.replace("/var/lib/node_exporter/textfile", str(tmp_path)) for word in words_of(command)]
    done = CliRunner().invoke(cli, ["launch", "--dry-run", *words[1:]])
    assert done.exit_code == 0, f"{done.exception}\n{done.output}"


@pytest.mark.parametrize("block", IN_SHELL, ids=str)
def test_every_line_of_a_shell_is_known(block: Block) -> None:
    """Ours are parsed by the tests above; a new program needs a reason."""
    assert subprocess.run(["bash", "-n"], input="\n".join(_quoted(block.shell_lines)), text=True).returncode == 0
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for line in block.shell_lines:
        program = program_of(line)
        assert program in {"distdbg", "make", *NOT_OURS}, f"{block}: {program}"
        assert program != "make" or line.split()[1] in targets, f"{block}: {line}"


def _quoted(lines: list[str]) -> list[str]:
    return [re.sub(r"\[([A-Z…]+)\]", r"\1", line) for line in lines]


def test_every_other_block_is_known() -> None:
    known = {key: sum(b.page == key[0] and b.first_line.startswith(key[1]) for b in OTHER) for key in NOT_RUN}
    assert [key for key, count in known.items() if not count] == []
    unknown = [b for b in OTHER if not any(b.page == p and b.first_line.startswith(words) for p, words in NOT_RUN)]
    assert [f"{block}: {block.first_line}" for block in unknown] == []
    named = [ROOT / name for reason in NOT_RUN.values() for name in re.findall(r"tests/[\w/.]+", reason)]
    assert [path for path in named if not path.exists()] == []


@pytest.mark.parametrize("block", [b for b in BLOCKS if not b.language], ids=str)
def test_findings_and_lines_of_an_output_exist(block: Block) -> None:
    shown = block.text if block in OTHER else block.output
    ids = re.findall(r"^ *([a-z]+(?:-[a-z]+)+)(?: \((?:likely|possible)\))?  \S", shown, re.MULTILINE)
    assert not {*ids} - {*documented()} - CHECKS
    for name, line, function in re.findall(r"(\w+\.py):(\d+)\s(?:\(in |in )(\w+)", shown):
        programs = [*(ROOT / "tests" / "programs").rglob(name)]
        if len(programs) == 1 and name != OF_THE_READER:
            assert function in functions_at(programs[0], int(line)), f"{block}: {name}:{line} in {function}"


def functions_at(program: Path, line: int) -> set[str]:
    tree = ast.parse(program.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    }


def run_python(block: Block, folder: Path) -> None:
    """Of what needs a GPU, only that torch's functions take these arguments."""
    code = block.text if "import " in block.text else f"import distdbg\nmodel = None\n{block.text}"
    if "torch.cuda.memory" in block.text:
        calls = [node for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.Call)]
        code = "import inspect, torch\n" + "\n".join(
            f"inspect.signature({ast.unparse(call.func)}).bind({ast.unparse(call).partition('(')[2]}" for call in calls
        )
    if block.page == "CONTRIBUTING.md":  # a rule of a family, with an id that the catalogue has
        code = f"__name__ = 'distdbg.diagnosis.hang.asleep'\n{code.replace('rank-asleep', 'stuck-in-python')}"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def read_yaml(block: Block, folder: Path) -> None:
    if "runs-on:" in block.text:  # a workflow of GitHub
        (job,) = yaml.safe_load(block.text)["jobs"].values()
        (ours,) = (step for step in job["steps"] if "distdbg/" in step["uses"])
        action = ROOT / ours["uses"].partition("@")[0].partition("distdbg/")[2] / "action.yml"
        assert ours["with"].keys() <= yaml.safe_load(action.read_text(encoding="utf-8"))["inputs"].keys()
        return
    (folder / "job.yaml").write_text(block.text)
    assert settle({}, folder / "job.yaml")[0].program


def read_toml(block: Block, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(block.text)
    assert settings_for([str(folder)], (), (), ()).exclude == ("third_party",)


def read_json(block: Block, folder: Path) -> None:
    if "model_type" in block.text:  # a model's configuration
        (folder / "config.json").write_text(block.text)
        command = [sys.executable, "-m", "distdbg", "shrink-model", "--anatomy", "config.json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0 and "28 layers" in done.stdout, done.stderr
        return
    schema = json.loads((ROOT / "configs" / "report.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(block.text), schema)


RUN: dict[str, Callable[[Block, Path], None]] = {
    "json": read_json,
    "python": run_python,
    "toml": read_toml,
    "yaml": read_yaml,
}


@pytest.mark.parametrize(
    "block", [pytest.param(b, marks=[pytest.mark.slow] if LOADS_TORCH.search(b.text) else []) for b in CODE], ids=str
)
def test_code_runs(block: Block, tmp_path: Path) -> None:
    RUN[block.language](block, tmp_path)


def test_the_functions_for_scripts_are_all_described(tmp_path: Path) -> None:
    page = ROOT / "docs" / "library.md"
    for block in (b for b in BLOCKS if b.page == "docs/library.md" and b.language == "python"):
        done = subprocess.run([sys.executable, "-c", block.text], cwd=tmp_path, capture_output=True, text=True)
        assert "step 2: loss 0.3333 on 1 ranks" in done.stdout
    assert set(distdbg.__all__) == set(re.findall(r"^\| `(\w+)\(", page.read_text(encoding="utf-8"), re.MULTILINE))
