"""Print a plan as shell commands, for `--dry-run`; pasted, they run the same job without the watching. Pure."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from distdbg.launch.link.meeting import IS_HOST, LOCAL_ADDRESS, NODE_RANK
from distdbg.launch.plan.job import FIRST_NODE, FIRST_PORT, NodePlan, Plan
from distdbg.masking import MASK, mask, mask_argv

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: What each node of several hosts fills in for itself; the agents find out which address of the first all others reach.
_PER_NODE = {
    FIRST_NODE: "$FIRST", NODE_RANK: "$NODE", IS_HOST: "$((NODE == 0))", LOCAL_ADDRESS: "$ADDRESS",
}  # fmt: skip
#: A torch.py or queue.py of the working directory is not torchrun's. The ranks do not inherit the option.
_SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()
_SECRET = "a secret, which is not shown: the shell has to have it"
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
    return lines + [_comment(f"for each rank: {name}={mask(name, value)}") for name, value in plan.rank_env.items()]


def node_lines(node: NodePlan, plan: Plan) -> Iterable[str]:
    """One node's variables, and its command line last."""
    odd = [v for v in node.environment if not _NAME.fullmatch(v.name)]
    for name in node.unset:
        yield f"unset {name}  # distdbg: it is in the command line"
    for variable in node.environment:
        if variable in odd:
            continue
        if mask(variable.name, variable.value) == variable.value:
            yield f"export {variable.name}={quote(variable.value)}  {_comment(variable.origin)}"
        else:
            yield f'export {variable.name}="${{{variable.name}?}}"  {_comment(f"{variable.origin}; {_SECRET}")}'
    if not plan.inherit_stdin:
        yield "exec < /dev/null"
    # A shell cannot export a name such as A-B; env(1) can.
    exported = ["env", *(f"{v.name}={v.value}" for v in odd)] if odd else []
    torchrun = [plan.place.python, *_SAFE_PATH, "-m", "torch.distributed.run", *_without_agent(node.torchrun)]
    command = [*exported, *torchrun]
    if mask_argv(command) != command:
        yield _comment(f"{MASK} in the command line stands for a secret: write it there")
    yield " ".join(map(quote, mask_argv(command)))


def _without_agent(words: Sequence[str]) -> list[str]:
    """The words without our agent: nothing captures the ranks' output, so torchrun prints it."""
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
