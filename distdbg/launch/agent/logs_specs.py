"""torchrun's extension point `--logs-specs distdbg`: runs inside torchrun, asks our agent where each rank's streams go.

torchrun calls `reify` at every start of its ranks, restarts included, with each one's global rank. The agent
answers with FIFOs that it reads, and with variables that need a rank in their value. Without an agent, or when it
does not answer, the ranks keep torchrun's own streams: a launch never fails because of its logs.

torchrun sees the death of a rank as soon as the agent does, and ends the others at once, which know why. So before it
ends any it tells the agent, and waits for its answer.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsDest, LogsSpecs, PContext, Std

from distdbg.protocol.chosen_ranks import VARIABLE, chosen_ranks
from distdbg.whole_file import write_link

logger = logging.getLogger(__name__)
_ANSWER_WITHIN_S = 20.0
#: The agent asks the others for less than that.
_LETS_END_WITHIN_S = 1.0
_BOTH = Std.ALL


class AgentLogsSpecs(LogsSpecs):  # type: ignore[misc] # torch is not followed by the type checker
    """See the module. torchrun's own --log-dir, --redirects and --tee keep their files: links to ours."""

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Any = Std.NONE,  # noqa: ANN401 -- torch types: Std or one a rank
        tee: Any = Std.NONE,  # noqa: ANN401
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self._torchrun_layout = DefaultLogsSpecs(log_dir, redirects=_BOTH) if log_dir else None

    @property
    def root_log_dir(self) -> str:
        return str(self._root_log_dir or os.environ.get("DISTDBG_RUN_DIR", ""))

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        if (chosen := chosen_ranks(os.environ.get(VARIABLE))) is not None:
            for local_rank, variables in envs.items():
                variables.update(chosen.variables(local_rank))
        theirs = self._torchrun_layout.reify(envs) if self._torchrun_layout else None
        try:
            answer = _ask_agent({"op": "start", "envs": envs}, _ANSWER_WITHIN_S, {"stdouts"})
            _tell_before_ends()
        except (OSError, ValueError) as error:
            logger.warning("distdbg: no agent answers (%s); the ranks keep torchrun's streams", error)
            return theirs or _plain(envs)
        for local_rank, variables in answer.get("env", {}).items():
            own = envs[int(local_rank)]
            own.update({name: value for name, value in variables.items() if value is not None})
            for name in [name for name, value in variables.items() if value is None]:
                own.pop(name, None)
        destination = LogsDest(
            stdouts=_by_local_rank(answer, "stdouts", envs),
            stderrs=_by_local_rank(answer, "stderrs", envs),
            error_files=_by_local_rank(answer, "error_files", envs),
        )
        for local_rank, path in destination.error_files.items():
            envs[local_rank]["TORCHELASTIC_ERROR_FILE"] = path
        if theirs:
            _link(theirs.stdouts, answer.get("stdout_logs", {}))
            _link(theirs.stderrs, answer.get("stderr_logs", {}))
        return destination


def _tell_before_ends() -> None:
    """Once for each torchrun: what ends its ranks, for whatever reason, asks the agent first."""
    close = PContext.close
    if hasattr(close, "__wrapped__"):
        return

    @functools.wraps(close)
    def told(context: PContext, *args: object, **kwargs: object) -> None:
        with contextlib.suppress(OSError, ValueError):
            _ask_agent({"op": "ends"}, _LETS_END_WITHIN_S, set())
        close(context, *args, **kwargs)

    PContext.close = told


def _ask_agent(message: dict[str, Any], within_s: float, has: set[str]) -> dict[str, Any]:
    """Its answer, which `has` these keys. Raises OSError, ValueError."""
    node_dir = os.environ.get("DISTDBG_NODE_DIR")
    if not node_dir:
        raise OSError("DISTDBG_NODE_DIR is not set")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(within_s)
        sock.connect(str(Path(node_dir) / "agent.sock"))
        sock.sendall(json.dumps(message).encode() + b"\n")
        with sock.makefile("rb") as stream:
            answer = json.loads(stream.readline())
    if not isinstance(answer, dict) or not has <= answer.keys():
        raise ValueError("not the agent's answer")
    return answer


def _by_local_rank(answer: dict[str, Any], key: str, envs: dict[int, dict[str, str]]) -> dict[int, str]:
    """An empty path means torchrun's own stream."""
    return {local_rank: str(answer.get(key, {}).get(str(local_rank), "")) for local_rank in envs}


def _plain(envs: dict[int, dict[str, str]]) -> LogsDest:
    folder = Path(tempfile.mkdtemp(prefix="torchelastic_"))
    nothing = dict.fromkeys(envs, "")
    files = {local_rank: str(folder / f"{local_rank}.error.json") for local_rank in envs}
    for local_rank, path in files.items():
        envs[local_rank]["TORCHELASTIC_ERROR_FILE"] = path
    return LogsDest(stdouts=dict(nothing), stderrs=dict(nothing), error_files=files)


def _link(names: dict[int, str], targets: dict[str, str]) -> None:
    for local_rank, name in names.items():
        target = targets.get(str(local_rank))
        if name and target:
            write_link(name, target)
