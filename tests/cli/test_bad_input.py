"""Whatever a command is given, it answers in a sentence or two, with a documented exit code, and soon."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from distdbg.cli import cli, run
from distdbg.errors import EXIT_OWN_ERROR

#: command -> how many paths it takes; what they hold is wrong in every way that a file system allows
READERS = {
    "explain": 1,
    "report": 1,
    "logs": 1,
    "top --once": 1,
    "attach": 1,
    "cancel": 1,
    "hang-dump": 1,
    "diff": 2,
    "lint": 1,
    "profile": 1,
    "replay": 1,
    "memory analyze": 1,
    "memory diff": 2,
    "memory snapshot": 1,
    "memory estimate": 1,
    "launch": 1,
    "launch --config": 1,
    "rehearse": 1,
    "slurm-script": 1,
    "overfit": 1,
    "compile-report": 1,
    "shrink-model": 1,
}
#: of these the script or job file is usage
STARTERS = ("launch", "launch --config", "rehearse", "slurm-script", "overfit", "compile-report")
#: a bad value for each command that reads no path of the user's
VALUES = {
    "bisect make": 2,
    "bisect --finding rank-killd distdbg launch train.py": 2,
    "completion tcsh": 2,
    "man train.py": 2,
    "env NO_SUCH_VARIABLE": 3,
    "env --preset nope": 2,
    "findings rank-killd": 2,
    "guards nope": 2,
    "preflight --nodes 0": 2,
    "top --interval nan": 2,
    "cancel --timeout NaN": 2,
    "preflight --hosts ,": 2,
    "launch --hosts= train.py": 2,
    "launch --show-ranks , train.py": 2,
    "launch --profile 1:2 --profile-ranks , train.py": 2,
    "launch --watch , train.py": 2,
    "attach --show-ranks ,": 2,
    "lint --select , train.py": 2,
    "lint --ignore , train.py": 2,
    "logs --rank ,": 2,
    "memory snapshot --ranks ,": 2,
    "memory diff --ranks , .": 2,
    "memory diff --ranks= .": 2,
    "profile --ranks= train.py": 2,
    "rehearse --ranks , train.py": 2,
    "shrink-model . out --stack ,": 2,
    "shrink-model . out --keep ,": 2,
    "preflight --port many": 2,
    "report --bundle /": 2,
    "runs": 3,
    "runs prune": 2,
    "runs prune --older-than never": 2,
    "logs --rank one": 2,
    "hang-dump --pid 4194305": 3,
    "hang-dump --looks 0": 2,
    "memory snapshot --ranks x": 2,
    "lint": 2,
    "nonsense": 2,
    "explain --nonsense": 2,
    "launch --hang-timeout soon train.py": 2,
    "launch --nproc-per-node many train.py": 2,
    "rehearse --gpu-memory lots train.py": 2,
    "rehearse --fit gpus=9:1 train.py": 2,
    "shrink-model ./nope out --layers many": 2,
    f"shrink-model ./nope out --layers {10**4000}{10**4000}": 2,
    f"shrink-model ./nope out --stack text={10**4000}{10**4000}": 2,
}
ODD = (
    "missing",
    "./missing",
    "folder",
    "empty",
    "garbage",
    "loop",
    "fifo",
    "socket",
    "dangling",
    "a\x1b[31mb\u202ec",
    "x" * 300,
)
#: a sentence of ours holds no word of Python's own
_PYTHONS = re.compile(r"Traceback|\[Errno|\b\w+(?:Error|Exception)\b|<class |object at 0x")
_AS_WORDS = "import json, sys; from tests.cli.test_bad_input import answers; print(json.dumps(answers(sys.argv[1:])))"


@pytest.fixture
def odd_things(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "garbage").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "loop").symlink_to(".")
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    (tmp_path / "dangling").symlink_to("nothing")


def words_of(command: str, given: str) -> list[str]:
    words = [*command.split(), *[given] * READERS[command]]
    return [*words, "out"] if command == "shrink-model" else words


def answer(words: list[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command line."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    try:
        code = run(words)
        return int(code or 0), sys.stdout.getvalue(), sys.stderr.getvalue()
    finally:
        sys.stdout, sys.stderr = streams


def answers(names: list[str]) -> dict[str, tuple[int, str, str]]:
    return {f"{command} {given}": answer(words_of(command, given)) for command in READERS for given in names}


def documented(words: list[str]) -> set[int]:
    """The exit codes at the end of a command's help."""
    command: click.Command | None = cli
    for word in words:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), word) or command
    _, _, codes = ((command and command.epilog) or "").partition("Exit codes:")
    return {int(code) for code in re.findall(r"\b(\d+) [a-z]", codes or "2 usage")}


def assert_answer(words: list[str], code: int, out: str, err: str) -> None:
    assert code in documented(words) and code != EXIT_OWN_ERROR, (code, documented(words), err)
    assert 2 <= len(err.splitlines()) <= 3 or code in (0, 10) or (words[0], code) == ("lint", 5), err
    assert not _PYTHONS.search(err + out), (out, err)
    assert "\x1b" not in err + out and "\u202e" not in err + out, ascii((out, err))


def test_every_command_is_tried():
    assert {words.split()[0] for words in (*READERS, *VALUES)} >= set(cli.list_commands(click.Context(cli)))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("given", ODD, ids=lambda given: ascii(given)[:20])
@pytest.mark.parametrize("command", READERS)
def test_an_odd_path(command, given, odd_things):
    if given == "empty" and command in ("launch", "rehearse", "overfit", "compile-report", "slurm-script"):
        pytest.skip("not possible here: an empty script is a good script, and would be run")
    words = words_of(command, given)
    code, out, err = answer(words)
    assert_answer(words, code, out, err)
    assert code != 0 or command == "lint", (out, err)
    assert not os.path.exists("out") and not os.path.exists("distdbg-runs")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("given", VALUES)
def test_a_bad_value(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    code, out, err = answer(given.split())
    assert_answer(given.split(), code, out, err)
    assert code == VALUES[given], err
    assert os.listdir() == ["train.py"], "nothing is left of a command that was refused"


def test_a_long_argument_is_not_repeated_in_full():
    code, _, err = answer(["guards", "x" * 60_000])
    assert code == 2 and len(err) < 1500 and "guards" in err


@pytest.mark.timeout(120)
def test_what_may_not_be_read(odd_things, tmp_path, need):
    """Root without its right to read everything is anybody."""
    dropped = [need("setpriv", "util-linux"), "--bounding-set", "-dac_override,-dac_read_search"]
    (tmp_path / "file").write_text("{}")
    (tmp_path / "closed").mkdir()
    (tmp_path / "run" / "attempts").mkdir(parents=True)
    (tmp_path / "run" / "job.json").write_text("{}")
    for name in ("file", "closed", "run/attempts"):
        (tmp_path / name).chmod(0)
    command = [*(dropped if os.getuid() == 0 else []), sys.executable, "-c", _AS_WORDS, "file", "closed", "run"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    found = json.loads(done.stdout)
    assert len(found) == 3 * len(READERS)
    for words, (code, out, err) in found.items():
        assert_answer(words.split(), code, out, err)
        command = words.rpartition(" ")[0]
        if command in STARTERS or command == "lint":
            assert code in (2, 5), (words, code)
        else:
            assert code == 4 and "chmod u+rX" in err, (words, code, err)


@pytest.mark.slow  # transformers is imported
def test_a_library_that_names_types_is_reported_in_the_words_of_json(distdbg, tmp_path):
    pytest.importorskip("transformers")
    config = {"model_type": "llama", "bos_token_id": [-1, -1], "architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = distdbg("memory", "estimate", "config.json")
    assert done.code == 5 and "bos_token_id" in done.err and "null" in done.err, done
    assert "NoneType" not in done.err and "<class" not in done.err


@pytest.mark.slow  # transformers is imported
def test_a_library_that_repeats_a_config_obeys_no_control(distdbg, tmp_path):
    pytest.importorskip("transformers")
    odd = "no\x1b]0;title\x07\x1b[2Jsuch\x9b31m\u202e"
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps({"model_type": odd}))
    for words in (["shrink-model", "m", "out", "--random"], ["memory", "estimate", "m"]):
        done = distdbg(*words, cwd=tmp_path)
        assert done.code == 5 and "such" in done.err, done
        assert not re.search("[\x07\x1b\x7f-\x9f\u202e]", done.err + done.out), ascii(done.err)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        OSError(errno.EMFILE, "Too many open files"),
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
    ],
    ids=repr,
)
@pytest.mark.parametrize(("command", "code"), [("runs", 1), ("attach", 70)])
def test_an_exhausted_machine_is_one_sentence(command, code, error, monkeypatch):
    def fails(*_arguments, **_options):
        raise error

    monkeypatch.setattr("distdbg.cli.cli.main", fails)
    found, out, err = answer([command])
    assert (found, out) == (code, "") and len(err.splitlines()) == 2 and not _PYTHONS.search(err), err
    assert "ulimit -" in err
