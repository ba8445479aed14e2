"""A plan as shell: what `--dry-run` prints, and what does the same when it is pasted, less the watching. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from distdbg.launch.environment import Variable
from distdbg.launch.meeting import IS_HOST, LOCAL_ADDRESS, NODE_RANK
from distdbg.launch.plan import FIRST_NODE, FIRST_PORT, NodePlan, Plan
from distdbg.launch.slurm.step import step_options

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def render_dry_run(plan: Plan) -> str:
    """Each command line, and each variable with its origin. For bash, zsh and ksh."""
    if plan.place.far:
        return _far(plan)
    several = len(plan.nodes) > 1
    lines = [_comment(note) for note in plan.notes]
    lines += [_comment(f"for each rank: {name}={value}") for name, value in plan.rank_env.items()]
    for node in plan.nodes:
        lines += [_comment(f"node {node.node_rank}"), "(", *_node(node, plan), ") &" if several else ")"]
    return "\n".join([*lines, *(["wait"] if several else [])])


def _node(node: NodePlan, plan: Plan) -> Iterable[str]:
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


#: What each node of several hosts fills in for itself; the agents find out which address of the first all others reach.
_FAR = {
    FIRST_NODE: "$FIRST", NODE_RANK: "$NODE", IS_HOST: "$((NODE == 0))", LOCAL_ADDRESS: "$ADDRESS",
}  # fmt: skip
_ADDRESS = 'if [ "$NODE" = 0 ]; then ADDRESS=$FIRST; else ADDRESS=node$(printf %06d "$NODE")-$(hostname); fi'


def _far(plan: Plan) -> str:
    """The same on every host: once by srun, or by one ssh each."""
    hosts, slurm = plan.place.hosts, plan.place.on == "slurm"
    lines = [_comment(note) for note in plan.notes]
    lines += [_comment(f"for each rank: {name}={value}") for name, value in plan.rank_env.items()]
    there = "srun --nodes=1 --ntasks=1 --overlap -w" if slurm else "ssh"
    lines.append(
        f"FIRST=$({there} {quote(hosts[0])} hostname -I | cut -d ' ' -f 1)  # an address that all others reach"
    )
    exports = [line for line in _node(plan.nodes[0], plan) if not line.startswith("exec ")]
    command = " ".join(_far_word(word, plan.place.port) for word in exports.pop().split(" "))
    lines += exports if slurm else []
    script = [_ADDRESS, *([] if slurm else exports), f"exec {command}"]
    if slurm:
        told = quote("\n".join(["NODE=$SLURM_PROCID", *script]))
        container = plan.place.container.step() if plan.place.container else []
        step = " ".join(map(quote, step_options(hosts, container)))
        return "\n".join([*lines, "export FIRST", f"{step} bash -c {told}"])
    for number, host in enumerate(hosts):
        text = quote("\n".join([f"cd {quote(str(Path.cwd()))}", *script]))
        lines.append(f"printf 'NODE=%s FIRST=%s\\n%s\\n' {number} \"$FIRST\" {text} | ssh {quote(host)} bash &")
    return "\n".join([*lines, "wait"])


def _far_word(word: str, port: int) -> str:
    """A quoted word, with what the node fills in."""
    plain = word.replace(FIRST_PORT, str(port))
    for name, value in _FAR.items():
        plain = plain.replace(name, value)
    return plain if plain == word.replace(FIRST_PORT, str(port)) else f'"{plain.strip(chr(39))}"'


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
