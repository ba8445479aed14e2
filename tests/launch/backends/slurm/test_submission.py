"""The batch script: what is rendered, what is refused, and how the script behaves when Slurm signals it."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distdbg.assets import MAIN
from distdbg.cli.commands.launch import command, read_settings
from distdbg.errors import UsageError
from distdbg.launch.backends.slurm.submission import BatchSubmission
from distdbg.rundir import RunDir
from distdbg.settings import JobSettings


def settings(*words):
    context = command.make_context("launch", [str(word) for word in words])
    options = {name: value for name, value in context.params.items() if name not in ("dry_run", "detach")}
    return read_settings(options.pop("program"), options.pop("config"), options)[0]


def render(made, folder=Path("/shared/run")):
    return BatchSubmission(made).render(RunDir(folder))


def lines(made):
    return [line for line in render(made).splitlines() if line.startswith("#SBATCH")]


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("pass\n")
    return "train.py"


def test_options_become_directives(script):
    words = ["--partition=gpu", "--time=1:00:00", "--gpus-per-node=h100:8", "--slurm=exclusive", "--max-requeues=3"]
    made = settings("--nodes", 2, *words, "--slurm", "comment=a # 'b'", "--name", "big run", script)
    assert lines(made) == [
        "#SBATCH --job-name='big run'",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --partition=gpu",
        "#SBATCH --time=1:00:00",
        "#SBATCH --gpus-per-node=h100:8",
        "#SBATCH --signal=B:USR1@120",
        "#SBATCH --requeue",
        f"#SBATCH --chdir={Path.cwd()}",
        "#SBATCH --output=/shared/run/batch.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --exclusive",
        """#SBATCH --comment='a # '"'"'b'"'"''""",
    ]


def test_the_launch_on_the_node_gets_all_settings(script, monkeypatch):
    """Whatever option there is: what the script's words say is what was said here."""
    words = ["--nodes=3", "--nproc-per-node=4", "--name=x y", "--preset=hang", "--preset=debug", "--env=A=1 'q' $B",
             "--worker-side=on", "--guard=missing-set-epoch=error", "--grace=7", "--hang-timeout=99", "--on-hang=kill",
             "--startup-timeout=88", "--keep-layers=2", "--skip-attention=all", "--on-finding=cat > f",
             "--full-load", "--memory", "--memory-steps=3:4", "--watch=numerics,shapes", "--on-nonfinite=dump",
             "--profile=20:25", "--profile-ranks=0-1",
             "--overfit-batch=50", "--prom-dir=/var/lib/node_exporter", "--metrics-port=9777",
             "--max-restarts=2", "--standalone=no"][:-1]  # fmt: skip
    made = settings(*words, script, "--lr", "1e-3", "--", "-x")
    shell = " ".join(BatchSubmission(made).launch_words)
    argv = shlex.split(shell)
    assert argv[:3] == [sys.executable, str(MAIN), "launch"]
    again = settings(*argv[3:])
    left_out = {"on": "auto", "show_ranks": "0"}
    assert again.model_copy(update=left_out) == made.model_copy(update=left_out)
    assert (again.on, again.show_ranks) == ("slurm", "none")
    unset = {name for name in JobSettings.model_fields if getattr(made, name) == JobSettings.model_fields[name].default}
    assert unset == {"module", "command", "on", "show_ranks", "capture", "run_dir", "slurm", "worker_side"}, (
        "a setting that this test does not pass on"
    )


@pytest.mark.parametrize(
    "words", [("-m", "json.tool"), ("--no-python", "sh", "-c", "exit 3"), ("--no-capture", "train.py")]
)
def test_programs_of_every_kind_are_passed_on(script, words):
    made = settings(*words)
    again = settings(*shlex.split(" ".join(BatchSubmission(made).launch_words))[3:])
    for name in ("script", "module", "command", "args", "capture"):
        assert getattr(again, name) == getattr(made, name)


def test_secrets_stand_in_no_script(script):
    made = settings("--env", "HF_TOKEN=hf_abcdefghijklmnopqrstuvwx", "--env", "LR=3", script)
    text = render(made)
    assert "abcdefghij" not in text and '--env=HF_TOKEN="${HF_TOKEN?}"' in text and "--env=LR=3" in text
    assert BatchSubmission(made).secrets == {"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwx"}


def test_a_container_is_the_steps_business(script):
    made = settings("--container-image", "a+b#c", "--slurm", "container-mounts=/data", "--slurm", "mem=1G", script)
    assert not [line for line in lines(made) if "--container" in line or "no-container" in line]
    again = settings(*shlex.split(" ".join(BatchSubmission(made).launch_words))[3:])
    assert again.slurm.container == {"container-image": "a+b#c", "container-mounts": "/data"}
    assert again.slurm.container_python == "python3"
    made = settings("--container-image=i", "--container-python=/opt/x", "--slurm=no-container-mount-home", script)
    assert not [line for line in lines(made) if "--container" in line or "no-container" in line]
    again = settings(*shlex.split(" ".join(BatchSubmission(made).launch_words))[3:])
    assert again.slurm.container == {"container-image": "i", "no-container-mount-home": ""}
    assert again.slurm.container_python == "/opt/x"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--slurm", "array=1-4"), "several runs in one directory"),
        (("--slurm", "ntasks=4"), "one agent a node"),
        (("--slurm", "output=x"), "goes into the run directory"),
        (("--slurm", "gpus-per-task=1"), "write --gpus-per-node"),
        (("--slurm", "partition=x"), "an option of distdbg launch"),
        (("--node-rank", "1"), "one node of several"),
        (("--hosts", "a,b"), "Slurm chooses the nodes"),
        (("--exclude-culprit",), "--max-requeues 1"),
        (("--nnodes", "1:2"), "one node of several"),
        (("--max-restarts", "x"), "not a number of restarts"),
    ],
)
def test_what_no_batch_script_can_carry_out_is_refused(script, words, says):
    with pytest.raises(UsageError, match=says):
        BatchSubmission(settings(*words, script))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("#!/bin/sh\n{% for x in options %}\n", ":2: the template does not render: Unexpected end"),
        ("#!/bin/sh\n\n{{ nodess }}\n", ":3: the template does not render: 'nodess' is undefined"),
        ("#!/bin/sh\n{{ 1 / 0 }}\n", ":2: the template does not render: division by zero"),
        ("echo\n", "not `#!/bin/bash`"),
        ("#!/bin/sh\n#SBATCH --array=1-3\n", "several jobs of one script"),
        ("#!/bin/sh\n#SBATCH hetjob\n", "several jobs of one script"),
        (b"\xff\xfe", "not UTF-8 text"),
    ],
)
def test_a_template_that_does_not_render(script, tmp_path, text, says):
    path = tmp_path / "mine.sbatch"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match="mine") as error:
        render(settings("--template", path, script))
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ lipsum.__globals__['os'].popen('touch MARK').read() }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.system('touch MARK') }}", "unsafe"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ (run_dir|attr('__class__')).mro() }}", "unsafe"),
        ("{{ '{0.__class__.__init__.__globals__}'.format(self) }}", "unsafe"),
        ("{% set _ = launch.append('x') %}", "unsafe"),
        ("{% include '/etc/passwd' %}", "loader"),
        ("{{ 'a' * 10 ** 12 }}", ""),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "more than 5 s"),
        ("{% for a in range(99999) %}{{ 'a' * 100 }}{% endfor %}", "more than 4 MiB"),
        ("{{ range(999999999) }}", "too big"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", ""),
    ],
)
def test_a_template_executes_nothing_and_is_bounded(script, tmp_path, monkeypatch, text, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.sbatch").write_text("#!/bin/sh\n" + text)
    with pytest.raises(UsageError, match="does not render") as error:
        render(settings("--template", "mine.sbatch", script))
    assert says in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.sbatch", "train.py"]


def test_secret_arguments_stand_in_no_script(script):
    chosen = settings(
        "--env", "A_TOKEN=x y", "--", script, "--api-key", "k3y word", "--db=postgres://me:pw@h/d", "-n", "3"
    )
    text = render(chosen)
    assert "k3y" not in text and "pw@" not in text and "x y" not in text and " -n 3" in text
    assert BatchSubmission(chosen).secrets == {
        "A_TOKEN": "x y", "DISTDBG_SECRET_API_KEY": "k3y word", "DISTDBG_SECRET_DB": "postgres://me:pw@h/d",
    }  # fmt: skip
    assert '--api-key "${DISTDBG_SECRET_API_KEY?}"' in text


def test_a_template_of_ones_own(script, tmp_path):
    path = tmp_path / "mine.sbatch"
    path.write_text("#!/bin/sh\n{% for o in options %}#SBATCH {{ o }}\n{% endfor %}module load x\n"
                    "DISTDBG_JOIN_RUN={{ run_dir|sh }} exec {{ launch|join(' ') }}\n")  # fmt: skip
    text = render(settings("--template", path, script), Path("/a b/run"))
    assert text.endswith(f"module load x\nDISTDBG_JOIN_RUN='/a b/run' exec {sys.executable} {MAIN} launch "
                         "--on=slurm --nodes=1 --show-ranks=none -- train.py\n")  # fmt: skip


def test_a_missing_template(script):
    with pytest.raises(UsageError, match="'/nowhere/x' cannot be read: No such file"):
        render(settings("--template", "/nowhere/x", script))


def test_slurm_script_prints_what_is_submitted(distdbg, script, tmp_path):
    """And needs no Slurm for it."""
    words = ("--nodes", 2, "--nproc-per-node", 8, "--time", "4:00:00", "--env", "A=it's", script, "--lr", "1e-3")
    path = tmp_path / "bin"
    path.mkdir()
    shown = distdbg("slurm-script", *words, env={"PATH": str(path)})
    assert shown.code == 0 and not shown.err, shown
    assert not (tmp_path / "distdbg-runs").exists()
    (path / "sbatch").write_text("#!/bin/sh\necho 123\n")
    (path / "sbatch").chmod(0o755)
    submitted = distdbg("launch", "--on", "slurm", "--detach", *words, env={"PATH": str(path)})
    assert submitted.out == f"{submitted.run.id}\t123\n", submitted
    own = submitted.run.batch_script.read_text()
    assert shown.out == own.replace(str(submitted.run.path), f"{tmp_path}/distdbg-runs/RUN")
    assert "#SBATCH --nodes=2\n" in own and subprocess.run(["bash", "-n"], input=own, text=True).returncode == 0


def test_there_is_time_for_the_verdict_before_slurm_kills(script):
    assert BatchSubmission(settings(script)).stop_after_s == 120 - 30 - 15
    assert BatchSubmission(settings("--signal-before", 30, script)).stop_after_s == 0


# -- the script itself, with another program in the place of the launch ---------------------------------------------


class Script:
    """A rendered script that runs, as slurmstepd would run it."""

    def __init__(self, folder, monkeypatch, launch, *words):
        self.run = RunDir(folder / "run")
        self.run.path.mkdir()
        self.run.events.touch()
        path = folder / "job.sh"
        monkeypatch.chdir(folder)
        submission = BatchSubmission(settings(*words, "train.py"))
        submission.launch_words = [f"sh -c {shlex.quote(launch)}"]
        path.write_text(submission.render(self.run))
        self.process = subprocess.Popen(
            ["bash", str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1",
                 "PATH": f"{folder}:{os.environ['PATH']}"},
        )  # fmt: skip
        assert self.process.stdout.readline() == "up\n"

    def end(self):
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out


def waits(then="pass"):
    """A launch that says what it hears; like ours it takes a signal that was ignored before."""
    code = (
        "import os, signal, sys, time\n"
        f"def warned(*_): os.write(1, b'warned\\n'); {then}\n"
        "def ended(*_): os.write(1, b'ended\\n'); sys.exit(9)\n"
        "signal.signal(signal.SIGUSR1, warned); signal.signal(signal.SIGTERM, ended)\n"
        "os.write(1, b'up\\n')\n"
        "while True: time.sleep(1)"
    )
    return f"exec {sys.executable} -c {shlex.quote(code)}"


def test_the_exit_code_is_the_launches(script, tmp_path, monkeypatch):
    assert Script(tmp_path, monkeypatch, "echo up; exit 41").end() == (41, "")


def test_slurms_warning_reaches_the_launch_which_goes_on(script, tmp_path, monkeypatch):
    job = Script(tmp_path, monkeypatch, waits("time.sleep(0.2); sys.exit(5)"))
    job.process.send_signal(signal.SIGUSR1)
    assert job.end() == (5, "warned\n")


def test_a_launch_that_does_not_end_by_itself_is_ended_in_time(script, tmp_path, monkeypatch):
    job = Script(tmp_path, monkeypatch, waits(), "--signal-before", "30", "--grace", "15")
    job.process.send_signal(signal.SIGUSR1)
    assert job.end() == (9, "warned\nended\n")
    assert json.loads(job.run.events.read_text())["event"] == "time-up"


def test_a_warning_by_a_file(script, tmp_path, monkeypatch):
    launch = 'echo up; until [ -e "$DISTDBG_CHECKPOINT_FILE" ]; do sleep 0.05; done; echo seen'
    job = Script(tmp_path, monkeypatch, launch, "--on-preempt", "checkpoint-file")
    time.sleep(0.2)
    assert not job.run.checkpoint_wanted.exists()
    job.process.send_signal(signal.SIGUSR1)
    assert job.end() == (0, "seen\n")


def test_sigterm_ends_the_launch_and_nothing_is_requeued(script, tmp_path, monkeypatch):
    job = Script(tmp_path, monkeypatch, waits(), "--max-requeues", 5)
    job.process.send_signal(signal.SIGTERM)
    assert job.end() == (9, "ended\n")


def test_a_warned_job_goes_back_into_the_queue_as_often_as_was_asked(script, tmp_path, monkeypatch):
    """With an scontrol that writes down what it is asked for."""
    tool = tmp_path / "scontrol"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    tool.chmod(0o755)
    job = Script(tmp_path, monkeypatch, waits("sys.exit(0)"), "--max-requeues", 2)
    job.process.send_signal(signal.SIGUSR1)
    code, out = job.end()
    assert (code, (tmp_path / "asked").read_text()) == (0, "requeue 7\n"), out
    assert '"event": "requeued"' in job.run.events.read_text()


def test_and_not_more_often(script, tmp_path, monkeypatch):
    job = Script(tmp_path, monkeypatch, waits("sys.exit(0)"), "--max-requeues", 1)
    job.process.send_signal(signal.SIGUSR1)
    code, out = job.end()
    assert code == 0 and "not requeued: it was requeued 1 times, and --max-requeues is 1" in out
