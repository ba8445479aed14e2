"""Render a batch script's template in jinja2's sandbox; one of the user's own in a process with limits.

    python <absolute>/distdbg/launch/backends/slurm/template.py     {"source": …, "values": …} in, {"text": …} out

A template can read the values that it is given, and nothing else of this process: no attribute that leads to Python's
own objects, no file, no import. The kernel limits the memory and the CPU time of the process that renders it.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # started by its path: our folder must not shadow the standard library
    sys.path[0] = sys.path[0].rsplit("/distdbg/", 1)[0]

import json
import resource
import subprocess
from collections.abc import Mapping
from typing import Any

from distdbg.collect.files.child_limits import limit_cpu, limit_memory, own_bytes
from distdbg.evidence.exit_status import how_it_ended
from distdbg.launch.plan.shell_words import quote
from distdbg.plain_text import first_words

#: Of the process that renders: bytes of memory, seconds of CPU time, seconds on the clock.
_MAX_MEMORY, _MAX_CPU_S, _MAX_WALL_S = 512 << 20, 5, 60.0
#: Characters of a batch script.
_MAX_SCRIPT_LENGTH = 4 << 20


class TemplateMistake(Exception):
    """Says what is wrong with a template; `line` is 1-based, 0 if it is not known."""

    def __init__(self, line: int, because: str, *, is_syntax: bool = False) -> None:
        super().__init__(because)
        self.line, self.because, self.is_syntax = line, because, is_syntax


def render_in_process(source: str, values: Mapping[str, Any]) -> str:
    """The text that a template gives. Raises TemplateMistake."""
    from jinja2 import StrictUndefined, TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    environment.filters["sh"] = quote
    try:
        return environment.from_string(source).render(values)
    except TemplateSyntaxError as error:
        raise TemplateMistake(error.lineno, str(error.message), is_syntax=True) from None
    except Exception as error:  # whatever its expressions raise
        raise TemplateMistake(_line_in_template(error), str(error) or type(error).__name__) from None


def render_apart(source: str, values: Mapping[str, Any]) -> str:
    """As render_in_process, in a process with limits. Raises TemplateMistake."""
    request = json.dumps({"source": source, "values": dict(values)})
    try:
        done = subprocess.run([sys.executable, __file__], input=request.encode(), capture_output=True,
                              timeout=_MAX_WALL_S, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TemplateMistake(0, f"it takes longer than {_MAX_WALL_S:.0f} s") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        ended = how_it_ended(done.returncode)
        raise TemplateMistake(0, f"it takes more than {_MAX_CPU_S} s or {_MAX_MEMORY >> 20} MiB ({ended})") from None
    if "text" not in answer:
        raise TemplateMistake(answer["line"], answer["because"], is_syntax=answer["is_syntax"])
    return str(answer["text"])


def _line_in_template(error: BaseException) -> int:
    """Jinja writes the template's lines into the traceback."""
    lines, at = [0], error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == "<template>":
            lines.append(at.tb_lineno)
        at = at.tb_next
    return lines[-1]


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        text = render_in_process(request["source"], request["values"])
    except TemplateMistake as mistake:
        return {"line": mistake.line, "because": first_words(mistake.because, 1000), "is_syntax": mistake.is_syntax}
    if len(text) > _MAX_SCRIPT_LENGTH:
        return {"line": 0, "because": f"the script has more than {_MAX_SCRIPT_LENGTH >> 20} MiB", "is_syntax": False}
    return {"text": text}


def main() -> None:
    request = json.load(sys.stdin)
    import jinja2.sandbox  # noqa: F401 -- before the limit: it writes its compiled files

    limit_memory()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (min(hard, own_bytes() + _MAX_MEMORY), hard))
    limit_cpu(_MAX_CPU_S)
    json.dump(_answer(request), sys.stdout)


if __name__ == "__main__":
    main()
