"""The worker side against an agent of the test's own, speaking the real protocol over a real socket."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from distdbg.launch.plan.environment import load_preset
from distdbg.protocol.page import read_page
from tests.launch.file_systems import tiny_file_system

BOOT = Path(__file__).parents[2] / "distdbg" / "worker" / "boot.py"

TRAIN = """
    import torch
    from torch.utils.data import DataLoader
    if __name__ == "__main__":
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in DataLoader(torch.ones(10, 4), batch_size=2, num_workers={workers}, **{options}):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
"""


class Rank:
    """A script under boot.py with a fake agent: what it said, its page, how it ended."""

    def __init__(self, folder, source, ask=False, **environment):
        (folder / "script.py").write_text(textwrap.dedent(source))
        self.node_dir = Path(tempfile.mkdtemp(prefix="ddbg"))
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(self.node_dir / "agent.sock"))
        server.listen()
        server.settimeout(60)
        env = {**os.environ, "RANK": "3", "DISTDBG_NODE_DIR": str(self.node_dir), **environment}
        command = [sys.executable, "-u", str(BOOT), "script.py"]
        self.process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.line = self.messages = None
        if environment.get("DISTDBG_WORKER") != "off":
            self.line, _ = server.accept()
        if ask:
            assert self.process.stdout.readline() == b"handling\n"
            self.line.sendall(b'{"op": "exceptions", "id": "x"}\n')
        out, err = self.process.communicate(timeout=100)
        self.out, self.err = out.decode(), err.decode()
        if self.line is not None:
            self.messages = [json.loads(x) for x in self.line.makefile("rb")]
            page = self.node_dir / "00003.page"
            self.page = read_page(page.read_bytes()) if page.exists() else None

    def said(self, op):
        return [m for m in self.messages if m["op"] == op]


def test_an_uncaught_exception_is_reported_with_its_place(tmp_path):
    rank = Rank(tmp_path, "import json\ndef load(x):\n    json.loads(x)\nload('{')\n")
    assert rank.said("hello")[0]["rank"] == 3
    (error,) = rank.said("exception")
    assert error["type"] == "json.decoder.JSONDecodeError"
    assert error["where"] == [str(tmp_path / "script.py"), 3, "load"], "the user's line, not the library's"
    assert error["traceback"] == rank.err
    assert error["uncaught"] is True
    assert rank.process.returncode == 1


@pytest.mark.parametrize(("code", "exit"), [("import sys; sys.exit(7)", 7), ("pass", 0), ("raise SystemExit('x')", 1)])
def test_the_end_of_a_script_is_reported(tmp_path, code, exit):
    rank = Rank(tmp_path, code)
    assert [m["exit"] for m in rank.said("script-end")] == [exit]
    assert rank.said("exception") == []
    assert rank.page.phase == "exiting"


LEAVE = """
    import os, sys, pickle
    def leave():
        assert pickle.loads(pickle.dumps(os._exit)) is os._exit
        if not os.fork():
            os._exit(4)
        {call}
    leave()
"""


@pytest.mark.parametrize(("how", "call"), [("SystemExit", "sys.exit(7)"), ("os._exit", "os._exit(7)")])
def test_the_line_that_ends_the_process_is_reported_once(tmp_path, how, call):
    rank = Rank(tmp_path, LEAVE.format(call=call))
    (end,) = rank.said("script-end")
    assert (end["how"], end["exit"], end["where"]) == (how, 7, [str(tmp_path / "script.py"), 7, "leave"])
    assert (rank.process.returncode, rank.err) == (7, "")


CATCHES = """
    import os, sys
    class Shown(Exception):
        def show(self): print(self)
    def work():
        raise Shown("bad row")
    def main():
        try:
            work()
        except Shown as error:
            {code}
    main()
"""


@pytest.mark.parametrize("code", ["sys.exit(1)", "os._exit(1)", "raise SystemExit(2) from None"])
def test_the_exception_that_was_turned_into_an_exit_is_reported(tmp_path, code):
    rank = Rank(tmp_path, CATCHES.format(code=code))
    (error,) = rank.said("exception")
    assert (error["type"], error["where"]) == ("Shown", [str(tmp_path / "script.py"), 6, "work"])
    assert (rank.err, rank.process.returncode) == ("", 2 if "2" in code else 1)


def test_an_exit_without_an_error_has_none_behind_it(tmp_path):
    assert Rank(tmp_path, CATCHES.format(code="sys.exit(0)")).said("exception") == []


def test_clicks_exception_is_found_though_click_exits_after_its_handler(tmp_path):
    source = """
        import click
        @click.command()
        def main():
            raise click.ClickException("no such rate")
        main()
    """
    rank = Rank(tmp_path, source)
    (error,) = rank.said("exception")
    assert (error["type"], error["where"][1]) == ("click.exceptions.ClickException", 5)


def test_off_is_off(tmp_path):
    rank = Rank(tmp_path, "import sys; print([m for m in sys.modules if 'torch' in m])", DISTDBG_WORKER="off")
    assert rank.process.returncode == 0
    assert not (rank.node_dir / "00003.page").exists()


def test_a_worker_side_that_cannot_start_says_why_and_the_script_runs(tmp_path):
    rank = Rank(tmp_path, "print('trained')", DISTDBG_ATTEMPT="one")
    assert (rank.process.returncode, rank.out) == (0, "trained\n")
    (reported,) = [m for m in rank.messages if m.get("kind") == "worker-failed"]
    assert reported["error"].startswith("ValueError") and "'one'" in reported["error"]


def test_the_preset_deterministic_throws_torchs_own_switch_too(tmp_path):
    (switch,) = [v for v in load_preset("deterministic").variables if v.name.startswith("DISTDBG_")]
    reported = (
        "print(torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled())"
    )
    assert Rank(tmp_path, f"import torch; {reported}", **{switch.name: switch.value}).out == "True True\n"
    assert Rank(tmp_path, f"import torch; {reported}").out == "False False\n"


def test_a_forked_child_says_nothing_and_leaves_the_page_alone(tmp_path):
    source = """
        import os, sys
        import distdbg
        distdbg.tick(5)
        pid = os.fork()
        if not pid:
            distdbg.tick(99)
            raise ValueError("in the child")
        os.waitpid(pid, 0)
    """
    rank = Rank(tmp_path, source)
    assert rank.said("exception") == []
    assert rank.page.user_step == 5
    assert "in the child" in rank.err


def test_an_agent_that_is_not_there_harms_nothing(tmp_path):
    (tmp_path / "script.py").write_text("print('fine')")
    env = {**os.environ, "RANK": "0", "DISTDBG_NODE_DIR": str(tmp_path / "nowhere")}
    done = subprocess.run(
        [sys.executable, str(BOOT), "script.py"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


@pytest.mark.parametrize(
    ("left", "lost"), [(8 << 10, ["calls of torch.distributed"]), (0, ["heartbeat page", "calls of torch.distributed"])]
)
def test_a_full_node_memory_costs_a_rank_what_does_not_fit(tmp_path, monkeypatch, left, lost):
    """A store into a page that a full tmpfs cannot give is a SIGBUS."""
    with tempfile.TemporaryDirectory() as short, tiny_file_system(Path(short) / "shm", "64k") as full:
        monkeypatch.setattr(tempfile, "tempdir", str(full))
        (full / "ballast").write_bytes(bytes((64 << 10) - left))
        rank = Rank(tmp_path, "import distdbg\ndistdbg.tick(5)\nprint('ran')")
    assert (rank.process.returncode, rank.out, rank.err) == (0, "ran\n", "")
    assert [(fact["kind"], fact["what"]) for fact in rank.said("fact")] == [("not-kept", what) for what in lost]
    assert {fact["error"] for fact in rank.said("fact")} == {"No space left on device"}
    assert (rank.page is None) == ("heartbeat page" in lost)
    assert [m["exit"] for m in rank.said("script-end")] == [0], "the rest of the worker side is there"


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "options"), [(0, {}), (2, {}), (1, {"multiprocessing_context": "spawn"})])
def test_steps_and_batches_are_counted(tmp_path, workers, options):
    rank = Rank(tmp_path, TRAIN.format(workers=workers, options=options))
    assert rank.process.returncode == 0, rank.err
    assert (rank.page.step, rank.page.batches) == (5, 5)
    assert rank.said("fact") == [], "a hook failed or a subscriber was dropped"
    assert len(rank.said("hello")) == 1, "a loader worker spoke"


@pytest.mark.slow
def test_an_exception_being_handled_is_reported_when_asked(tmp_path):
    source = """
        import torch.distributed, time
        try:
            raise RuntimeError("still handled")
        finally:
            print("handling", flush=True)
            time.sleep(2)
    """
    rank = Rank(tmp_path, source, ask=True)
    (answer,) = rank.said("exceptions")
    assert answer["id"] == "x"
    assert [t["message"] for t in answer["threads"]] == ["still handled"]
    assert answer["threads"][0]["where"][1] == 4
