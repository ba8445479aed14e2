"""`distdbg bisect`: from a failing command to the smallest that fails so."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

pytestmark = pytest.mark.slow  # the command line again and again


def script(folder, text):
    (folder / "train.py").write_text(textwrap.dedent(text))


def record(result):
    (folder,) = (path for path in (result.cwd / "distdbg-bisect").iterdir() if path.is_dir())
    return json.loads((folder / "bisect.json").read_text()), folder


PLAIN = """
    import sys
    length, steps = int(sys.argv[2]), int(sys.argv[4])
    if length < 4:
        sys.exit(2)
    sys.exit(7 if length >= 37 and steps >= 2 else 0)
"""


def bisect(distdbg, *words, **options):
    return distdbg("bisect", *words[:-1], "--", *words[-1].split(), **options)


def test_any_command_by_its_exit_code(distdbg, tmp_path):
    script(tmp_path, PLAIN)
    command = f"{sys.executable} train.py --len 4096 --steps 100"
    result = bisect(distdbg, "--vary", "--len=1", "--vary", "--steps=1:90", command)
    assert result.code == 0, result
    assert "train.py --len 37 --steps 2\n" in result.out and "shown again by 2 of 2 runs" in result.out
    found, folder = record(result)
    assert found["schema"] == "distdbg.bisect/1"
    assert found["axes"] == [
        {"name": "--len", "from": 4096, "to": 37, "does_not_show": 36, "lowest": 1},
        {"name": "--steps", "from": 90, "to": 2, "does_not_show": 1, "lowest": 1},
    ]
    assert set(found["left_out"]) == {"--nodes", "--nproc-per-node", "--keep-layers"}
    assert found["trials"][0]["outcome"] == "shows exit code 7"
    assert found["trials"][1]["outcome"] == "does not show it (failed otherwise: exit code 2)"
    assert (folder / "reproduce.sh").read_text().splitlines()[-1].endswith("train.py --len 37 --steps 2")
    assert len(list(folder.glob("*.log"))) == len(found["trials"])


def test_what_does_not_fail_is_said(distdbg, tmp_path):
    script(tmp_path, PLAIN)
    result = bisect(distdbg, "--vary", "--len=1", f"{sys.executable} train.py --len 8 --steps 9")
    assert (result.code, "does not show a failure: exit code 0" in result.err) == (3, True), result


def test_what_fails_now_and_then_is_no_result(distdbg, tmp_path):
    script(tmp_path, """
        import pathlib, sys
        count = pathlib.Path("count")
        count.write_text(count.read_text() + "x" if count.exists() else "x")
        sys.exit(len(count.read_text()) < 4)
    """)  # fmt: skip
    result = bisect(distdbg, "--vary", "--len=1", f"{sys.executable} train.py --len 2")
    assert result.code == 6, result
    assert "shown again by 1 of 2 runs" in result.out and "no more than a hint" in result.err


def test_a_run_past_its_time_does_not_show_it(distdbg, tmp_path):
    script(tmp_path, """
        import sys, time
        if int(sys.argv[2]) < 3:
            print("waits", flush=True)
            time.sleep(600)
        sys.exit(1)
    """)  # fmt: skip
    result = bisect(distdbg, "--timeout", "3", "--vary", "--len=1", f"{sys.executable} train.py --len 4")
    assert result.code == 0, result
    assert "--len 1: does not show it: it was ended, past its time" in result.err
    assert record(result)[0]["axes"][0]["to"] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--vary", "--len=1", "make"), "gives --len no whole number"),
        (("--vary", "--len=9", "make --len 3"), "which is less"),
        (("--finding", "nonesuch", "distdbg launch train.py"), "no such finding"),
        (("--finding", "cuda-oom", "make"), "COMMAND is no launch"),
        (("--vary", "--len=1", "no-such-program-at-all --len 3"), "cannot be started"),
        (("make",), "nothing can be made smaller"),
    ],
)
def test_bad_input(distdbg, words, said):
    result = bisect(distdbg, *words)
    assert (result.code, said in result.err) == (2, True), result


def test_a_launch_by_its_verdict(distdbg, tmp_path):
    """One rank does not show it, nor does a run that breaks in another line."""
    script(tmp_path, """
        import os, sys
        size, length = int(os.environ["WORLD_SIZE"]), int(sys.argv[1].partition("=")[2])
        if length < 30:
            raise ValueError("too short")
        if size > 1 and length > 40:
            raise ValueError("too long")
    """)  # fmt: skip
    result = bisect(distdbg, "--vary", "len=30:60:20", "torchrun --nproc-per-node 2 train.py len=60", timeout=280)
    assert result.code == 0, result
    assert "shows: rank-exception (ValueError at train.py:7 in <module>)" in result.out
    assert "  distdbg launch --nproc-per-node=2 train.py len=50" in result.out
    found, folder = record(result)
    assert "no rank reported" in found["left_out"]["--keep-layers"]
    assert (folder / "001" / "report" / "report.json").is_file()


def test_layers_of_a_transformers_model(distdbg, tmp_path):
    pytest.importorskip("transformers")
    script(tmp_path, """
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
        model = LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=16, num_attention_heads=2,
                                             num_hidden_layers=3, vocab_size=32))
        if len(model.model.layers) > 1:
            raise RuntimeError("a layer too many")
    """)  # fmt: skip
    result = bisect(distdbg, "--fix", "ranks", "distdbg launch train.py", timeout=280)
    assert result.code == 0, result
    assert "--keep-layers: 3 -> 2 (1 does not show it)" in result.out


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_interrupted_search_keeps_its_results(tmp_path, sent):
    script(tmp_path, """
        import os, pathlib, sys, time
        if int(sys.argv[2]) < 3:
            pathlib.Path("new").write_text(str(os.getpid()))
            os.rename("new", "waits")
            time.sleep(600 if sys.argv[4] == "forever" else 0)
        sys.exit(1)
    """)  # fmt: skip
    command = [sys.executable, "train.py", "--len", "64", "--how", "forever"]
    process = subprocess.Popen(
        [sys.executable, "-m", "distdbg", "bisect", "-o", "out", "--vary", "--len=1", "--", *command],
        cwd=tmp_path, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not (waits := tmp_path / "waits").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(sent)
    assert process.wait(60) != 0
    found = json.loads((tmp_path / "out" / "bisect.json").read_text())
    assert (found["finished"], found["trials"][0]["outcome"]) == (False, "shows exit code 1")
    assert (tmp_path / "out" / "reproduce.sh").read_text().splitlines()[-1] == found["to"]
    if sent == signal.SIGKILL:
        os.kill(int(waits.read_text()), signal.SIGKILL)
