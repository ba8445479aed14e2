"""Print a plan as shell commands, for `--dry-run`; pasted, they run the same job without the watching. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from distdbg.launch.link.meeting import IS_HOST, LOCAL_ADDRESS, NODE_RANK
from distdbg.launch.plan.job import FIRST_NODE, FIRST_PORT, NodePlan, Plan
from distdbg.launch.plan.shell_words import argument_words, assignment, quote

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: What each node of several hosts fills in for itself; the agents find out which address of the first all others reach.
_PER_NODE = {
    FIRST_NODE: "$FIRST", NODE_RANK: "$NODE", IS_HOST: "$((NODE == 0))", LOCAL_ADDRESS: "$ADDRESS",
}  # fmt: skip
#: A torch.py or queue.py of the working directory is not torchrun's. The ranks do not inherit the option.
_SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()
_ADDRESS = 'if [ "$NODE" = 0 ]; then ADDRESS=$FIRST; else ADDRESS=node$(printf %06d "$NODE")-$(hostname); fi'


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
    if secrets := _secret_variables(plan):
        lines.append(_comment(f"secrets are not shown; give these variables their values first: {', '.join(secrets)}"))
    return lines + [_comment(f"for each rank: {name}={value}") for name, value in plan.rank_env.items()]


def node_lines(node: NodePlan, plan: Plan) -> Iterable[str]:
    """One node's variables, and its command line last."""
    odd = [v for v in node.environment if not _NAME.fullmatch(v.name)]
    for name in node.unset:
        yield f"unset {name}  # distdbg: it is in the command line"
    for variable in node.environment:
        if variable not in odd:
            yield f"export {assignment(variable.name, variable.value).text}  {_comment(variable.origin)}"
    if not plan.inherit_stdin:
        yield "exec < /dev/null"
    safe_path = () if plan.place.container else _SAFE_PATH  # the Python of an image may be too old for it
    command = [plan.place.python, *safe_path, "-m", "torch.distributed.run", *_without_agent(node.torchrun)]
    # A shell cannot export a name such as A-B; env(1) can.
    exported = ["env", *(assignment(v.name, v.value).text for v in odd)] if odd else []
    yield " ".join([*exported, *(word.text for word in argument_words(command))])


def _secret_variables(plan: Plan) -> list[str]:
    words = [assignment(v.name, v.value) for node in plan.nodes for v in node.environment]
    words += [word for node in plan.nodes for word in argument_words(node.torchrun)]
    return sorted({name for word in words for name in word.secrets})


def _without_agent(words: Sequence[str]) -> list[str]:
    """The words without our agent: nothing captures the ranks' output, so torchrun prints it."""
    at = next((i for i in range(len(words)) if tuple(words[i : i + 2]) == ("--logs-specs", "distdbg")), None)
    return list(words) if at is None else [*words[:at], *words[at + 2 :]]


def _comment(text: str) -> str:
    """The value on one line."""
    return "# " + "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


@dataclass(frozen=True)
class RemoteShell:
    """`head` is for the launching host; `exports`, then `address` and `command` for each node, which has $NODE and
    $FIRST set."""

    head: list[str]
    exports: list[str]
    address: str
    command: str


def remote_shell(plan: Plan, there: str) -> RemoteShell:
    """`there`: the words that run a command on the host whose name follows them."""
    first = f"FIRST=$({there} {quote(plan.place.hosts[0])} hostname -I | cut -d ' ' -f 1)"
    exports = [line for line in node_lines(plan.nodes[0], plan) if not line.startswith("exec ")]
    command = " ".join(_word(word, plan.place.port) for word in exports.pop().split(" "))
    head = [*comments(plan), f"{first}  # an address that all others reach"]
    return RemoteShell(head, exports, _ADDRESS, f"exec {command}")


def _word(word: str, port: int) -> str:
    """A quoted word, with what the node fills in."""
    plain = word.replace(FIRST_PORT, str(port))
    for name, value in _PER_NODE.items():
        plain = plain.replace(name, value)
    return plain if plain == word.replace(FIRST_PORT, str(port)) else f'"{plain.strip(chr(39))}"'
