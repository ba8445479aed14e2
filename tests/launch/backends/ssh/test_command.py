"""Words arrive as they are, whatever shell the user has on the other side."""

import os
import shutil
import subprocess

import pytest

from distdbg.launch.backends.ssh.backend import ssh_command

WORDS = ["a b", "it's", '"', "!x", "back\\slash", "\\0101", "new\nline", "end\n", "é", os.fsdecode(b"\xff"), "$HOME",
         "`id`", "$(id)", "%d", "", "*", "~", "-n", "\t", "a;b", "#", "{a,b}"]  # fmt: skip


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "fish", "csh", "tcsh"])
def test_what_the_login_shell_gets_runs_the_words(shell):
    if shell in ("csh", "tcsh") and shutil.which(shell) is None:
        pytest.skip("not possible here: no csh")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is missing: `make system-packages`")
    value = "x 'y' $z\n\\"
    remote = ssh_command("h", ["sh", "-c", 'printf "[%s]" "$A" "$@"', "sh", *WORDS], {"A": value})[-1]
    done = subprocess.run([shell, "-c", remote], capture_output=True)
    assert done.stdout == b"".join(b"[" + os.fsencode(word) + b"]" for word in [value, *WORDS]), done.stderr


def test_the_line():
    line = ssh_command("me@node1", ["true"], {}, ["-F", "conf"])
    assert line[:3] == ["ssh", "-F", "conf"] and line[-3:-1] == ["--", "me@node1"]
    assert "BatchMode=yes" in line
    assert ssh_command("-oProxyCommand=x", ["true"], {})[-3:-1] == ["--", "-oProxyCommand=x"]  # no option
