"""Bad input: one clear sentence, exit code 2, no run directory, nothing started."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.rundir import RUNS_FOLDER, create_run_dir, list_runs
from tests.conftest import run_command
from tests.launch.file_systems import tiny_file_system

pytestmark = pytest.mark.slow  # the command line again and again


def refused(distdbg, *args, cwd=None, env=None, says=(), code=2):
    result = distdbg("launch", *args, **({"cwd": cwd} if cwd else {}), env=env or {}, timeout=60)
    assert result.code == code, result
    assert "Traceback" not in result.err, result
    for words in says:
        assert words in result.err, result
    assert not (result.cwd / RUNS_FOLDER).exists(), "a run directory was made for nothing"
    return result


def script(folder, text="print('hello')\n", name="train.py"):
    path = folder / name
    path.write_text(text)
    return path


def test_a_script_that_is_missing(distdbg, tmp_path):
    script(tmp_path)
    refused(distdbg, "trian.py", says=["'trian.py' does not exist", "train.py"])
    (tmp_path / "run.py").symlink_to("gone.py")
    refused(distdbg, "run.py", says=["'run.py' is a link to 'gone.py', which does not exist"])


def test_a_folder_that_is_no_more(tmp_path):
    folder = tmp_path / "here"
    command = f"mkdir {folder}; cd {folder}; rmdir {folder}; exec {sys.executable} -m distdbg launch {script(tmp_path)}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "has been removed" in done.stderr and "Traceback" not in done.stderr, done


def test_a_directory(distdbg, tmp_path):
    (tmp_path / "code").mkdir()
    refused(distdbg, "code", says=["'code' is a directory without a __main__.py"])


def test_a_program_that_is_not_python(distdbg, tmp_path):
    refused(distdbg, "/bin/true", says=["is not a Python script", "--no-python"])
    script(tmp_path, "#!/bin/sh\necho hello\n", "train.sh")
    refused(distdbg, "train.sh", says=["is not a Python script", "/bin/sh"])


def test_a_file_that_gives_no_bytes_is_no_script(distdbg):
    """The kernel says that it is a regular file, and no read of it succeeds."""
    refused(distdbg, "/proc/self/mem", says=["the script '/proc/self/mem' cannot be read"])


def test_a_script_in_an_encoding_that_it_does_not_name(distdbg, tmp_path):
    (tmp_path / "train.py").write_bytes(b'x = "\xe9"\n')
    result = refused(distdbg, "train.py", says=["train.py:1: it is not text in its encoding"])
    assert "codec" not in result.err


def test_a_syntax_error_is_said_once(distdbg, tmp_path):
    script(tmp_path, "x = 1\nif x\n    pass\n")
    result = refused(distdbg, "--nproc-per-node", "4", "train.py", says=["train.py:2: "])
    assert result.err.count("train.py:2") == 1


@pytest.fixture
def mortal(tmp_path, need):
    """`distdbg` for whom permissions count, root or not."""
    words = [need("setpriv", "util-linux"), "--bounding-set=-dac_override,-dac_read_search"]
    words = words if os.geteuid() == 0 else []
    if words and subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("not possible here: root cannot give up a capability")

    def call(*args, **options):
        return run_command([*words, sys.executable, "-m", "distdbg", *map(str, args)], tmp_path, **options)

    return call


def test_a_script_that_cannot_be_read(mortal, tmp_path):
    script(tmp_path).chmod(0)
    refused(mortal, "train.py", says=["cannot be read"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--nodes", "0"], "0"),
        (["--nodes", "-1"], "-1"),
        (["--nodes", "two"], "two"),
        (["--nproc-per-node", "0"], "0"),
        (["--nproc-per-node", "-3"], "-3"),
        (["--nproc-per-node", "many"], "many"),
        (["--nproc-per-node", "1000000"], "1000000"),
        (["--nodes", "1000000"], "1000000"),
        (["--grace", "-1"], "-1"),
        (["--hang-timeout", "1"], "--hang-timeout"),
        (["--startup-timeout", "never"], "never"),
        (["--on-hang", "restrat"], "restart"),
        (["--show-ranks", "x-y"], "x-y"),
        (["--preset", "debgu"], "debug"),
        (["--nproc-per-nodes", "2"], "nproc-per-node"),
        (["--nodes", "2", "--nnodes", "3"], "--nodes 2 and --nnodes 3"),
        (["--nodes", "2", "--nnodes", "1:2"], "--nodes 2 and --nnodes 1:2"),
    ],
)
def test_options_that_make_no_sense(distdbg, tmp_path, options, says):
    script(tmp_path)
    refused(distdbg, *options, "train.py", says=[says])


@pytest.mark.parametrize(("options", "environment"), [(["--nnodes", "2:2"], {}), ([], {"PET_NNODES": "1:4"})])
def test_a_number_of_nodes_that_is_said_twice(distdbg, tmp_path, options, environment):
    """The same is well, and what is typed goes before a variable, as for torchrun."""
    script(tmp_path)
    result = distdbg("launch", "--dry-run", "--nodes", "2", *options, "train.py", env=environment)
    assert result.code == 0 and result.out.count("--nnodes 2 ") == 2, result


def test_no_script_at_all(distdbg):
    refused(distdbg)


def test_a_program_that_is_not_there(distdbg):
    refused(distdbg, "--no-python", "no-such-program", says=["'no-such-program'"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: [1\n", "job.yaml:"),
        ("- nodes\n", "job.yaml:1"),
        ("script: train.py\nnodse: 2\n", "job.yaml:2"),
        ("script: train.py\nnodes: 1\nnodes: 2\n", "job.yaml:3"),
        ("script: train.py\nnodes: many\n", "job.yaml:2"),
        ("script: train.py\n\tnodes: 2\n", "job.yaml:2"),
        ("", "job.yaml"),
    ],
)
def test_job_files_with_mistakes(distdbg, tmp_path, text, says):
    script(tmp_path)
    (tmp_path / "job.yaml").write_text(text)
    refused(distdbg, "--config", "job.yaml", *([] if "script" in text else ["train.py"]), says=[says])


def test_a_job_file_that_is_missing(distdbg):
    refused(distdbg, "--config", "nowhere.yaml", says=["nowhere.yaml"])


def test_a_run_directory_that_exists_is_left_alone(distdbg, tmp_path):
    script(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("data")
    refused(distdbg, "--run-dir", "mine", "train.py", says=["exists already"])
    assert (tmp_path / "mine" / "precious").read_text() == "data"


def test_a_run_directory_that_cannot_be_made(distdbg, tmp_path):
    script(tmp_path)
    (tmp_path / "file").write_text("")
    refused(distdbg, "--run-dir", "file/run", "train.py", says=["cannot be made"])


def test_a_run_directory_that_cannot_be_written(mortal, tmp_path):
    script(tmp_path)
    (tmp_path / "theirs").mkdir(mode=0o500)
    refused(mortal, "--run-dir", "theirs/run", "train.py", says=["cannot be made: Permission denied", "--run-dir"])
    assert not list((tmp_path / "theirs").iterdir())


def test_a_disk_without_any_room(distdbg, tmp_path):
    """One that fills up later is no reason to stop: test_log_disks.py."""
    script(tmp_path)
    with tiny_file_system(tmp_path / "tiny") as folder:
        (folder / "ballast").write_bytes(bytes(1 << 20))
        refused(distdbg, "--run-dir", folder / "run", "train.py", says=["nothing can be written", "No space left"])
        assert [path.name for path in folder.iterdir()] == ["ballast"], "what was begun is left"


def test_torch_is_missing(tmp_path):
    """An interpreter that cannot import torch: said before anything starts."""
    script(tmp_path)
    hide = "import sys; sys.modules['torch'] = None; import importlib.util as u; f = u.find_spec; "
    hide += "u.find_spec = lambda n, p=None: None if n.partition('.')[0] == 'torch' else f(n, p); "
    code = hide + "from distdbg.cli import main; main()"
    command = [sys.executable, "-c", code, "launch", "train.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2, result
    assert "torch" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / RUNS_FOLDER).exists()


def test_a_batch_job_where_slurm_is_not_or_is_dead(distdbg, tmp_path):
    script(tmp_path)
    words, path = ("--on", "slurm", "--nodes", "2", "train.py"), tmp_path / "bin"
    path.mkdir()
    result = refused(distdbg, *words, env={"PATH": str(path)}, says=["there is no sbatch on PATH", "--on local"])
    assert len(result.err.splitlines()) == 2, result
    for name in ("sbatch", "sinfo"):
        dead = script(path, f"#!/bin/sh\necho '{name}: error: Unable to contact slurm controller' >&2\nexit 1\n", name)
        dead.chmod(0o755)
    says = ["nothing was submitted: Slurm's controller does not answer: Unable to contact", "scontrol ping"]
    result = refused(distdbg, *words, env={"PATH": str(path)}, says=says)
    assert len(result.err.splitlines()) == 2, result
    (path / "sinfo").unlink()  # it dies between the two
    earlier = create_run_dir("earlier", parent=tmp_path / RUNS_FOLDER)
    result = distdbg("launch", *words, env={"PATH": str(path)})
    assert result.code == 2 and says[0] in result.err, result
    assert list_runs(tmp_path / RUNS_FOLDER) == [earlier]
    assert (tmp_path / RUNS_FOLDER / "latest").readlink() == Path(earlier.id)


def test_paths_and_environments_that_are_odd(distdbg, tmp_path):
    """A path with spaces, quotes and a newline, an argument that is no UTF-8, an environment that is neither."""
    folder = tmp_path / 'it\'s "odd"\nindeed'
    folder.mkdir()
    script(
        folder,
        "import os, sys\nprint(os.fsencode(sys.argv[1]), os.environb[b'ODD'], __file__.count('odd'))\n",
        "a b.py",
    )
    odd = os.fsdecode(b"caf\xe9")
    result = distdbg("launch", "a b.py", odd, cwd=folder, env={"ODD": odd}, timeout=60)
    assert result.code == 0, result
    assert "b'caf\\xe9' b'caf\\xe9' 1" in result.out, result


def test_two_launches_into_one_run_directory(distdbg, tmp_path):
    """Exactly one gets it; the other is refused and disturbs nothing."""
    script(tmp_path)
    command = [sys.executable, "-m", "distdbg", "launch", "--run-dir", "same", "train.py"]
    both = [subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    outs = [process.communicate(timeout=60) for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], outs
    assert (tmp_path / "same" / "report" / "report.json").exists()


def test_a_port_that_is_taken_and_a_host_that_nobody_knows(distdbg, tmp_path):
    """torchrun's own last words, at once and after it has tried for `read_timeout` seconds."""
    program = script(tmp_path)
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = distdbg("launch", "--nproc-per-node", "2", "--master-port", str(port), str(program))
    assert result.code == 1, result
    assert f"port: {port}" in result.err and "[address-in-use]" in result.err, result
    options = ["--nnodes", "2", "--node-rank", "1", "--rdzv-backend", "c10d", "--rdzv-conf", "read_timeout=2"]
    result = distdbg("launch", *options, "--rdzv-endpoint", "nonesuch.invalid:29400", str(program))
    assert result.code == 1, result
    assert "launch-failed" in result.err and "[name-not-resolved]" in result.err, result


def test_a_scripts_name_is_shown_and_not_obeyed(distdbg, tmp_path):
    """The linter's notice, the verdict and an error name the script. What a rank prints itself stays as it is."""
    lint = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n"
    for text in (lint, "x = (\n"):
        name = script(tmp_path, text, "a\x1b]0;t\x07\x9b31m\u202eb.py").name
        done = distdbg("launch", "--nproc-per-node", "1", "--show-ranks", "none", name, cwd=tmp_path, timeout=120)
        assert "b.py" in done.err, done
        assert not [c for c in "\x1b\x07\x9b\u202e" if c in done.err + done.out], ascii(done)
