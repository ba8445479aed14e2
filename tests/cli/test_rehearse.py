"""`distdbg rehearse`: what it refuses before anything is set up."""

import sys

import pytest

from tests.conftest import run_command


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--gpu-memory", "3", "train.py"), "no size of a device"),
        (("--gpu-memory", "lots", "train.py"), "no size of a device"),
        (("--gpus", "0", "train.py"), "--gpus"),
        (("--on", "slurm", "train.py"), "--on"),
        (("--fit", "batch-size", "train.py"), "NAME=LOW:HIGH"),
        (("--fit", "batch-size=9:3", "train.py"), "upwards"),
        (("--fit", "gpus=1:64", "train.py"), "at most 16"),
        (("--ranks", "some", "train.py"), "neither a rank nor a range"),
        (("--ranks", "0,7", "--resume", "4", "train.py"), "--resume needs all ranks"),
        (("--ranks", "0,8", "--gpus", "8", "train.py"), "ranks 0 to 7"),
    ],
)
def test_what_cannot_be_is_refused(distdbg, tmp_path, words, told):
    (tmp_path / "train.py").write_text("")
    done = distdbg("rehearse", *words)
    assert done.code == 2 and told in done.err and "Traceback" not in done.err, done


def test_the_options_are_those_of_a_launch_here(distdbg):
    words = distdbg("rehearse", "--help").out.split()
    assert {"--gpus", "--gpu-memory", "--values", "--setup", "--nodes", "--keep-layers", "--guard"} <= set(words)
    assert not {"--partition", "--hosts", "--detach"} & set(words)


def test_without_a_compiler_it_says_so(distdbg, tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "bin").mkdir()
    done = distdbg("rehearse", "train.py", env={"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path)})
    assert done.code == 4 and "g++ is missing" in done.err, done


def test_without_the_simulated_gpus_it_says_what_to_install(tmp_path):
    """An environment in which gpu_box cannot be found: --help works, a rehearsal is refused."""
    (tmp_path / "train.py").write_text("")
    without = "import sys; sys.modules['gpu_box'] = None; from distdbg.cli import main; main()"
    for words in (["--gpu", "a100", "train.py"], ["--setup"]):
        done = run_command([sys.executable, "-c", without, "rehearse", *words], tmp_path)
        assert done.code == 4 and "pip install ./gpu_box" in done.err and "Traceback" not in done.err, done
    done = run_command([sys.executable, "-c", without, "rehearse", "--help"], tmp_path)
    assert done.code == 0 and "--gpu" in done.out, done
