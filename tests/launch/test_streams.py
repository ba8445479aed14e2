"""What a rank sees and writes is what it would under plain torchrun, byte by byte."""

import json
from pathlib import Path

import pytest

from distdbg.launch.agent import torchrun_process
from tests.programs.notices import ENDS

pytestmark = pytest.mark.slow
NOTICES = Path(__file__).parents[1] / "programs" / "notices.py"
RANKS = range(len(ENDS) + 1)


def printed(output):
    """What notices.py says of its surroundings, by name."""
    facts = [json.loads(line) for line in output.splitlines() if line.startswith(b'{"')]
    return {name: what for fact in facts for name, what in fact.items()}


@pytest.mark.started
def test_a_script_notices_nothing(distdbg, torchrun, tmp_path):
    """Rank 0 tells all that it sees and fails; torchrun ends the others, each of which takes that in its own way."""
    words = ["--nproc-per-node", len(RANKS), "--standalone"]
    program = [NOTICES, "--lr", "1e-3", "a b", ""]
    # What our agents set is documented, and a script could notice it: with plain torchrun it is set by hand.
    env = {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
    logs = tmp_path / "plain"
    plain = torchrun(*words, "-r", "3", "--log-dir", logs, *program, env=env, stdin=b"typed")
    ours = distdbg("launch", *words, *program, env=env, stdin=b"typed")
    assert (plain.code, ours.code) == (1, 1), f"{plain}\n{ours}"
    files = ours.run.attempt(1).ranks()
    codes = {int(rank): int(code) for rank, code in torchrun_process._FAILURE.findall(plain.err)}
    assert codes == {0: 1} | {rank: code for rank, (code, _) in ENDS.items()}, plain
    assert {rank: json.loads(files[rank].exit.read_text())["exit_code"] for rank in RANKS} == codes
    for rank in RANKS:
        for stream in ("stdout", "stderr"):
            (path,) = logs.glob(f"*/attempt_0/{rank}/{stream}.log")
            theirs, mine = path.read_bytes(), files[rank].stream(stream).read_bytes()
            assert printed(mine) == printed(theirs)
            assert mine == theirs, f"{stream} of rank {rank}"
    seen = printed(files[0].stdout.read_bytes())
    assert {"stdin": "typed", "at exit": seen["a late thread"]}.items() <= seen.items(), "it ran to its end"
    assert b"IndexError: no item 5" in files[0].stderr.read_bytes()


def test_torchruns_own_log_folder_links_to_our_logs(distdbg, tmp_path):
    (tmp_path / "who.py").write_text("import os; print(os.environ['RANK'])")
    result = distdbg("launch", "--nproc-per-node", "2", "-t", "3", "--log-dir", "logs", "who.py")
    assert result.code == 0, result
    found = sorted((tmp_path / "logs").glob("*/attempt_0/*/stdout.log"))
    assert [path.read_text() for path in found] == ["0\n", "1\n"]
    assert sorted(result.out.splitlines()) == ["[rank 0] 0", "[rank 1] 1"], "what is teed is shown"


def test_no_capture_gives_the_ranks_the_terminal(distdbg, tmp_path):
    (tmp_path / "ask.py").write_text("import sys; print(input('who? '), sys.stdout.fileno())")
    result = distdbg("launch", "--no-capture", "ask.py", stdin=b"me\n")
    assert result.code == 0, result
    assert result.out == "who? me 1\n"
    assert not list(result.run.path.glob("attempts/1/ranks/*/stdout.log"))
    assert "succeeded" in result.err and "exit code 0: rank 0" in result.err
    assert not list(result.run.path.glob("attempts/1/dumps")), "who is asked is no hang"


def test_without_capture_there_is_a_verdict_all_the_same(distdbg, tmp_path):
    (tmp_path / "raise.py").write_text("import os\nif os.environ['RANK'] == '1': raise SystemExit('no')\nprint('hm')")
    result = distdbg("launch", "--no-capture", "--nodes", "2", "raise.py")
    assert result.code == 1 and "exit code 1: rank 1" in result.err, result


def test_the_start_says_what_was_decided_without_being_asked(distdbg, tmp_path):
    (tmp_path / "threads.py").write_text("import os; print(os.environ['OMP_NUM_THREADS'])")
    result = distdbg("launch", "--nproc-per-node", "2", "threads.py", env={"NCCL_DEUBG": "INFO"})
    assert f"OMP_NUM_THREADS={result.out.strip()}" in result.err
    assert "did you mean NCCL_DEBUG?" in result.err
    assert str(result.run.path.name) in result.err.splitlines()[0]
