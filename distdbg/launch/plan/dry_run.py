"""A plan as shell: what `--dry-run` prints, and what does the same when it is pasted, less the watching. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from distdbg.launch.plan.environment import Variable
from distdbg.launch.plan.job import NodePlan, Plan

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def render_dry_run(plan: Plan) -> str:
    """On this machine: each command line, and each variable with its origin. For bash, zsh and ksh."""
    several = len(plan.nodes) > 1
    lines = comments(plan)
    for node in plan.nodes:
        lines += [_comment(f"node {node.node_rank}"), "(", *node_lines(node, plan), ") &" if several else ")"]
    return "\n".join([*lines, *(["wait"] if several else [])])


def comments(plan: Plan) -> list[str]:
    """What was decided, and what differs between the ranks."""
    lines = [_comment(note) for note in plan.notes]
    return lines + [_comment(f"for each rank: {name}={value}") for name, value in plan.rank_env.items()]


def node_lines(node: NodePlan, plan: Plan) -> Iterable[str]:
    """One node's variables, and its command line last."""
    odd = [v for v in node.environment if not _NAME.fullmatch(v.name)]
    for name in node.unset:
        yield f"unset {name}  # distdbg: it stands in the command line"
    for variable in node.environment:
        if variable not in odd:
            yield f"export {variable.name}={quote(variable.value)}  {_comment(variable.origin)}"
    if not plan.inherit_stdin:
        yield "exec < /dev/null"
    command = [plan.place.python, "-m", "torch.distributed.run", *_without_agent(node.torchrun)]
    yield " ".join([*_exported_by_env(odd), *map(quote, command)])


def _exported_by_env(odd: Sequence[Variable]) -> list[str]:
    """A shell cannot export a name such as A-B; env(1) can."""
    return ["env", *(quote(f"{v.name}={v.value}") for v in odd)] if odd else []


def _without_agent(words: Sequence[str]) -> list[str]:
    """Without our agent there is nobody to take the ranks' output: torchrun prints it."""
    at = next((i for i in range(len(words)) if tuple(words[i : i + 2]) == ("--logs-specs", "distdbg")), None)
    return list(words) if at is None else [*words[:at], *words[at + 2 :]]


def quote(text: str) -> str:
    """A word for the shell. Bytes that are no UTF-8, and control characters but newline, are written in $'…'."""
    if all(c.isprintable() or c == "\n" for c in text):
        return shlex.quote(text)
    raw = text.encode("utf-8", "surrogateescape")
    plain = (chr(b) if 0x20 <= b < 0x7F and b not in b"\\'" else f"\\{b:03o}" for b in raw)
    return "$'" + "".join(plain) + "'"


def _comment(text: str) -> str:
    """One line, whatever stands in it."""
    return "# " + "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
