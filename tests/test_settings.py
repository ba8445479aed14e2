"""Job files and what goes over them: every mistake with its line, in words."""

import json
import os
import subprocess
import sys

import jsonschema
import pytest
import yaml

from distdbg.assets import asset_dir
from distdbg.errors import JobFileError, UsageError
from distdbg.launch.plan.torchrun_flags import check_names
from distdbg.settings import JobSettings, SlurmSettings, settle
from distdbg.settings.values import WATCH_LEVELS
from distdbg.worker.watch import LEVELS
from docs.job_schema import job_schema


def checked(settings):
    return [(("torchrun", name), sentence) for name, sentence in check_names(settings.torchrun)]


def read(folder, text, **given):
    path = folder / "job.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return settle(given, path, checked)


def mistakes(folder, text):
    with pytest.raises(JobFileError) as error:
        read(folder, text)
    return error.value.message.replace(f"{folder}/", "").splitlines()


def test_words_are_taken_as_they_are_written(tmp_path):
    """YAML 1.1 would read 8, 750, True, a date, and a key that is true."""
    text = """
on: local
name: 007
worker_side: off
args: [1e-3, 0.10, 010, 12:30, yes, null, 2020-01-01, "a b"]
env: {A: yes, B: , C: 010, D: 0x1F}
nodes: 2
capture: false
torchrun: {standalone: true, run-path: false, max_restarts: 3, monitor-interval: 0.50}
"""
    settings, _ = read(tmp_path, text)
    assert settings.args == ["1e-3", "0.10", "010", "12:30", "yes", "null", "2020-01-01", "a b"]
    assert settings.env == {"A": "yes", "B": "", "C": "010", "D": "0x1F"}
    assert settings.torchrun == {"standalone": "", "max-restarts": "3", "monitor-interval": "0.50"}
    assert (settings.on, settings.name, settings.worker_side) == ("local", "007", "off")
    assert (settings.nodes, settings.capture) == (2, False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: [1\n", ["job.yaml:2: it is not YAML"]),
        ("[a]: b\n", ["job.yaml:1: a key is a list or a mapping"]),
        ("- nodes\n", ["job.yaml:1: a job file is a mapping"]),
        ("hello", ["job.yaml:1: a job file is a mapping"]),
        ("", ["job.yaml: it is empty"]),
        ("# nothing\n", ["job.yaml: it is empty"]),
        ("script: x\n\tnodes: 2\n", ["job.yaml:2: a tab begins the line"]),
        (b"script: x\nname: \xff\n", ["job.yaml:2: it is not UTF-8"]),
        (b"\x00", ["job.yaml: it is not YAML"]),
        ("nodes: 1\nnodes: 2\n", ["job.yaml:2: the key 'nodes' is here again; it is in line 1"]),
        ("env:\n  A: 1\n  A: 2\n", ["job.yaml:3: the key 'env.A' is here again"]),
        ("nodse: 2\n", ["job.yaml:1: there is no key 'nodse'; did you mean 'nodes'?"]),
        ("nproc-per-node: 2\n", ["did you mean 'nproc_per_node'?"]),
        ("a: &a {b: *a}\n", ["job.yaml:1: there is no key 'a'"]),
        ("? [1, 2]\n: 3\n", ["job.yaml:1: "]),
        ("script: a\nmodule: b\n", ["name one program"]),
        (
            "torchrun: {max-restart: 3}\n",
            ["job.yaml:1: torchrun has no flag 'max-restart'; did you mean 'max-restarts'?"],
        ),
        ("torchrun:\n  max-restarts: often\n", ["job.yaml:2: ", "'often' is not a number of restarts"]),
        ("torchrun:\n  nnodes: 2\n", ["job.yaml:2: ", "`nodes: N`"]),
        ("env: {A=: 1}\n", ["job.yaml:1: env: 'A=' cannot be the name of a variable"]),
        ('args: ["a\\0b"]\n', ["job.yaml:1: args: ", "no command line can carry"]),
        ('hosts: ["a\\0b"]\n', ["job.yaml:1: hosts: ", "no command line can carry"]),
        ('run_dir: "a\\0b"\n', ["job.yaml:1: run_dir: ", "no command line can carry"]),
        ('slurm:\n  template: "a\\0b"\n', ["job.yaml:2: slurm.template: ", "no command line can carry"]),
        ("nproc_per_node: ٣\n", ["is neither a number nor one of auto"]),
        ("env: [A]\n", ["env: a mapping of names to values is expected, and a list was found"]),
        ("args: 5\n", ["args: a list is expected, and '5' was found"]),
        ("args: [[1]]\n", ["args.0: text is expected, and a list was found"]),
        ("nodes: yes\n", ["nodes: a whole number is expected, and 'yes' was found"]),
        ("nodes: 0\n", ["nodes: ", "greater than or equal to 1", "'0' was found"]),
        ("nproc_per_node: -1\n", ["-1 ranks on a node cannot be"]),
        ("on: mars\n", ["job.yaml:1: on: ", "'mars' was found"]),
        ("grace: []\n", ["grace: a number is expected, and a list was found"]),
        ("show_ranks: x-y\n", ["'x-y' is neither a rank nor a range"]),
        ("script:\nnodes:\n", ["job.yaml:2: nodes: a whole number is expected, and nothing was found"]),
    ],
)
def test_one_mistake(tmp_path, text, says):
    found = "\n".join(mistakes(tmp_path, text))
    for words in says:
        assert words in found
    assert "pydantic" not in found


@pytest.mark.parametrize("text", ["nproc_per_node: {}", "profile: 1:{}", "skip_attention: {}", "memory_steps: {}"])
def test_numbers_of_thousands_of_digits_are_refused_in_our_words(tmp_path, text):
    with pytest.raises(JobFileError) as error:
        read(tmp_path, text.format("9" * 5000) + "\n")
    assert "job.yaml:1: " in str(error.value) and "int" not in str(error.value), error.value


def test_all_mistakes_are_said_at_once_in_the_order_of_lines(tmp_path):
    text = "script: train.py\nnodse: 2\nenv: 3\n\nnodes: many\n"
    assert [line.split(": ")[0] for line in mistakes(tmp_path, text)] == ["job.yaml:2", "job.yaml:3", "job.yaml:5"]


def test_files_that_cannot_be_read(tmp_path):
    for path, says in ((tmp_path / "none.yaml", "No such file"), (tmp_path, "directory")):
        with pytest.raises(JobFileError, match=says):
            settle({}, path)
    big = tmp_path / "big.yaml"
    big.write_text("#" * (2 << 20))
    with pytest.raises(JobFileError, match="longer than 1 MiB"):
        settle({}, big)


def test_the_command_line_goes_over_the_file_and_origins_are_kept(tmp_path):
    text = "script: a.py\nargs: [x]\nnodes: 2\nenv: {A: 1, B: 2}\ntorchrun: {tee: 3}\n"
    settings, origins = read(tmp_path, text, nodes=3, env={"B": "9"}, torchrun={"max-restarts": "1"})
    assert (settings.nodes, settings.script, settings.args) == (3, "a.py", ["x"])
    assert settings.env == {"A": "1", "B": "9"}
    assert settings.torchrun == {"tee": "3", "max-restarts": "1"}
    file = f"job file {tmp_path / 'job.yaml'}"
    assert (origins["env.A"], origins["env.B"], origins["nodes"]) == (file, "command line", "command line")
    assert origins["script"] == file
    other, _ = read(tmp_path, text, module="m")
    assert (other.script, other.module, other.args) == (None, "m", []), "another program has not this one's arguments"


def test_timeouts_are_numbers_or_words(tmp_path):
    settings, _ = read(tmp_path, "script: a.py\nhang_timeout: off\nstartup_timeout: 90\non_hang: kill\n")
    assert (settings.hang_timeout, settings.startup_timeout, settings.on_hang) == ("off", 90.0, "kill")
    settings, _ = read(tmp_path, "script: a.py\nhang_timeout: off\n", hang_timeout="2.5")
    assert settings.hang_timeout == 2.5
    settings, _ = read(tmp_path, "script: a.py\n")
    assert (settings.hang_timeout, settings.startup_timeout, settings.on_hang) == ("auto", "auto", "report")


def test_mistakes_of_the_command_line():
    for given, says in [
        ({"nodes": "two"}, "--nodes: "),
        ({"grace": "-1"}, "--grace: "),
        ({"hang_timeout": "soon"}, "--hang-timeout: a number of seconds is expected, or auto or off"),
        ({"hang_timeout": "0"}, "--hang-timeout: 0 s cannot be; it is 2 to"),
        ({"hang_timeout": "nan"}, "a number of seconds is expected"),
        ({"hang_timeout": "inf"}, "inf s cannot be"),
        ({"startup_timeout": "off"}, "--startup-timeout: a number of seconds is expected, or auto"),
        ({"on_hang": "explode"}, "--on-hang: "),
        ({"nproc_per_node": "x"}, "'x'"),
    ]:
        with pytest.raises(UsageError) as error:
            settle(given, None)
        assert says in str(error.value)
        assert not isinstance(error.value, JobFileError)


def test_every_field_is_explained():
    schema = job_schema()
    explained = {**schema["properties"], **schema["$defs"]["SlurmSettings"]["properties"]}
    assert explained.keys() >= JobSettings.model_fields.keys() | SlurmSettings.model_fields.keys()
    for name, field in explained.items():
        assert field.get("description"), name


def test_the_schema_that_ships_is_the_models():
    shipped = json.loads((asset_dir("configs") / "job.schema.json").read_text())
    assert shipped == job_schema(), "python docs/job_schema.py > configs/job.schema.json"


def test_the_example_is_right_in_the_eyes_of_both():
    path = asset_dir("configs") / "job.example.yaml"
    text = path.read_text()
    settings, _ = settle({}, path, checked)
    assert (settings.nodes, settings.torchrun["max-restarts"], settings.env) == (
        2,
        "1",
        {"TOKENIZERS_PARALLELISM": "false"},
    )
    assert (asset_dir("configs").parent / str(settings.script)).exists()
    validator = jsonschema.Draft202012Validator(job_schema())
    assert list(validator.iter_errors(yaml.safe_load(text))) == []
    assert text.startswith("# yaml-language-server: $schema=job.schema.json\n")
    for wrong in ({"nodse": 1}, {"nodes": 0}, {"presets": ["debgu"]}, {"torchrun": {"standalone": 3}}, {"args": [[]]}):
        assert list(validator.iter_errors(wrong)), wrong


@pytest.mark.parametrize("text", ["shapes, numerics", "[numerics, shapes]", "numerics,shapes,numerics"])
def test_what_is_watched_is_a_word_or_several(tmp_path, text):
    settings, _ = read(tmp_path, f"script: train.py\nwatch: {text}\non_nonfinite: dump\n")
    assert (settings.watch, settings.on_nonfinite) == (["numerics", "shapes"], "dump")
    jsonschema.validate({"watch": settings.watch}, job_schema())
    jsonschema.validate({"watch": "gradients,shapes"}, job_schema())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("watch: numeric", "job.yaml:1: watch: 'numeric' cannot be watched; it is one or more of numerics, gradients"),
        ("watch: [shapes, 3]", "'3' cannot be watched"),
        ("watch: {a: b}", "one or more of numerics, gradients, shapes, compile are expected"),
        ("watch: shapes\non_nonfinite: dump", "dump needs watch: numerics"),
    ],
)
def test_what_cannot_be_watched_is_said(tmp_path, text, says):
    assert says in "\n".join(mistakes(tmp_path, f"{text}\n"))


def test_plugins_of_pydantic_are_the_users_own(tmp_path):
    """They are not looked for and not imported; the ranks' environment does not forbid them."""
    found = tmp_path / "loud-1.0.dist-info"
    found.mkdir()
    (found / "METADATA").write_text("Name: loud\nVersion: 1.0\n")
    (found / "entry_points.txt").write_text("[pydantic]\nloud = loud:plugin\n")
    (tmp_path / "loud.py").write_text("print('here')\nclass plugin: pass\n")
    ask = "import os, sys; import distdbg.settings; print('loud' in sys.modules, os.environ.get(sys.argv[1]))"
    for before in (None, "other"):
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        env |= {"PYDANTIC_DISABLE_PLUGINS": before} if before else {}
        done = subprocess.run([sys.executable, "-c", ask, "PYDANTIC_DISABLE_PLUGINS"], env=env, capture_output=True,
                              text=True, check=True)  # fmt: skip
        assert done.stdout == f"False {before}\n"


def test_what_can_be_watched_is_what_ranks_know():
    """The worker side imports nothing of the launcher's, and says it for itself."""
    assert LEVELS == WATCH_LEVELS
