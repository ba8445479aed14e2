"""A plan for other hosts as shell: the parts that every backend's --dry-run has. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from distdbg.launch.link.meeting import IS_HOST, LOCAL_ADDRESS, NODE_RANK
from distdbg.launch.plan.dry_run import comments, node_lines, quote
from distdbg.launch.plan.job import FIRST_NODE, FIRST_PORT, Plan

#: What each node of several hosts fills in for itself; the agents find out which address of the first all others reach.
_PER_NODE = {
    FIRST_NODE: "$FIRST", NODE_RANK: "$NODE", IS_HOST: "$((NODE == 0))", LOCAL_ADDRESS: "$ADDRESS",
}  # fmt: skip
_ADDRESS = 'if [ "$NODE" = 0 ]; then ADDRESS=$FIRST; else ADDRESS=node$(printf %06d "$NODE")-$(hostname); fi'


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
