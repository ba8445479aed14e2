"""What starts on another host, under a Python that is too old for the agent."""

import ast
import subprocess
import sys
from pathlib import Path

from distdbg.launch.backends import carriers

FILE = Path(carriers.__file__).with_name("remote_agent.py")
OLD = "import runpy, sys; sys.version_info = (3, 8, 10); runpy.run_path(sys.argv[1], run_name='__main__')"


def test_an_old_python_is_reported_and_can_read_so_far():
    ast.parse(FILE.read_text(), feature_version=(3, 6))
    done = subprocess.run([sys.executable, "-c", OLD, FILE], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"distdbg needs Python 3.10 or newer; {sys.executable} is 3.8\n"
