"""torchrun's own flags: any torchrun command line works with its first word replaced by `distdbg launch`.

Source: torch/distributed/run.py (get_args_parser) of torch 2.13; a flag that a newer torch has and this table lacks is
found by reading that file's `add_argument` calls, without importing torch.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from distdbg.errors import UsageError
from distdbg.plain_text import whole_number


@dataclass(frozen=True)
class Flag:
    """`name` is the dashed long form without dashes in front; `takes_value` False for a switch.

    `from_env` False for the few whose PET_* variable torchrun does not read.
    """

    name: str
    takes_value: bool = True
    short: str | None = None
    help: str = ""
    from_env: bool = True

    @property
    def variable(self) -> str:
        """torchrun reads its defaults from these (argparse_util.env)."""
        return "PET_" + self.name.upper().replace("-", "_")


FLAGS: tuple[Flag, ...] = (
    Flag("nnodes", help="Number of nodes, or a range MIN:MAX. Without an endpoint the same as --nodes."),
    Flag("nproc-per-node", help="Ranks on each node: a number, auto, gpu, cpu.  [default: auto]"),
    Flag("rdzv-backend", help="How the nodes meet: c10d, static, etcd-v2, …"),
    Flag("rdzv-endpoint", help="HOST:PORT where the nodes meet: this is one node of N."),
    Flag("rdzv-id", help="Name of the job, the same on all nodes."),
    Flag("rdzv-conf", help="Settings of the rendezvous, KEY=VALUE,KEY=VALUE."),
    Flag("standalone", takes_value=False, help="One node, with a rendezvous of its own on a free port."),
    Flag("max-restarts", help="How often the ranks are started again after a failure.  [default: 0]"),
    Flag("monitor-interval", help="Seconds between torchrun's looks at its ranks.  [default: 0.1]"),
    Flag("start-method", help="spawn, fork or forkserver; only --run-path uses it."),
    Flag("event-log-handler", help="A registered handler of torchelastic's events."),
    Flag("role", help="A name for the ranks in torchelastic's records."),
    Flag("module", takes_value=False, short="m", help="The program is a module, as with python -m."),
    Flag("no-python", takes_value=False, help="The program is no Python script: run it as it is."),
    Flag("run-path", takes_value=False, help="Run the script by runpy in torchrun's child; it has no worker side."),
    Flag("log-dir", help="A folder in which torchrun's own names link to the logs of the ranks."),
    Flag("redirects", short="r", help="Streams that only go to the logs: 3 for both, or by local rank 0:1,1:2."),
    Flag("tee", short="t", help="Streams that go to the logs and to the terminal, written as for --redirects."),
    Flag("local-ranks-filter", help="Only these local ranks are shown on the terminal: 0,1,2."),
    Flag("duplicate-stdout-filters", help="Words; lines with one of them are copied to a file of their own."),
    Flag("duplicate-stderr-filters", help="The same for standard error."),
    Flag("node-rank", help="Which node this is: this is one node of N."),
    Flag("master-addr", help="Address of the first node (static rendezvous): this is one node of N."),
    Flag("master-port", help="Port of the rendezvous.  [default: a free one]"),
    Flag("local-addr", help="Address of this node, as the others reach it."),
    Flag("logs-specs", help="A torchrun.logs_specs entry point; distdbg then keeps no logs.", from_env=False),
    Flag("numa-binding", help="Bind ranks to CPUs near their GPUs; see torch/numa/binding.py.", from_env=False),
    Flag(
        "signals-to-handle", help="Signals by which torchrun ends its ranks.  [default: SIGTERM,SIGINT,SIGHUP,SIGQUIT]"
    ),
    Flag("shutdown-timeout", help="Seconds from torchrun's SIGTERM to SIGKILL.  [default: 30, or --grace if longer]"),
    Flag("virtual-local-rank", takes_value=False, help="Each rank sees its GPU as device 0."),
)
_BY_NAME = {flag.name: flag for flag in FLAGS}
_NEGATIVE = re.compile(r"-\d+$|-\d*\.\d+$")
_BY_SHORT = {flag.short: flag for flag in FLAGS if flag.short}
#: Flags that mean "this is one node of N": the rendezvous is the user's.
_ONE_OF_N = ("rdzv-endpoint", "node-rank", "master-addr")
#: The hidden option that carries a flag which only the installed torch knows, as NAME=VALUE or NAME for a switch.
OTHER = "--torchrun-flag"


def normalise(arguments: Iterable[str], own: Mapping[str, bool]) -> list[str]:
    """Rewrite to full dashed names up to the program, which stands behind a `--` of ours and keeps its arguments.

    `own` holds distdbg's options, long and short with their dashes -> whether they take a value. Raises UsageError
    for a flag that neither distdbg nor torchrun knows, with the nearest that one of them does.
    """
    rest = list(arguments)
    done: list[str] = []
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*done, "--", *rest]
        if not word.startswith("-") or word == "-":
            # argparse, and so torchrun, drops a `--` right behind the program.
            return [*done, "--", word, *(rest[1:] if rest[:1] == ["--"] else rest)]
        name, equals, value = word.partition("=")
        if not name.startswith("--") and len(word) > 2:
            name, equals, value = _split_short(word, own)
        canonical, takes_value = _resolve(name, own)
        if takes_value and not equals:
            value = _next_value(name, rest)
        elif equals and not takes_value:
            raise UsageError(f"the option {name} takes no value, and {value!r} was given", f"Write {name} alone.")
        done += _words(canonical, takes_value, value, own)
    return done


def _words(canonical: str, takes_value: bool, value: str, own: Mapping[str, bool]) -> list[str]:
    if canonical not in own and canonical[2:] not in _BY_NAME:
        return [OTHER, f"{canonical[2:]}={value}" if takes_value else canonical[2:]]
    # In one word: click would take a value that begins with a dash for an option.
    return (
        [f"{canonical}={value}"]
        if takes_value and canonical.startswith("--")
        else [canonical, value][: 1 + takes_value]
    )


def _next_value(name: str, rest: list[str]) -> str:
    """argparse's rule: a word that begins with a dash is no value, unless it is a number or has a space in it."""
    if rest and (not rest[0].startswith("-") or rest[0] == "-" or " " in rest[0] or _NEGATIVE.match(rest[0])):
        return rest.pop(0)
    found = f", and {rest[0]!r} follows" if rest else ""
    raise UsageError(f"the option {name} needs a value{found}", f"A value that begins with a dash: {name}=VALUE")


def _split_short(word: str, own: Mapping[str, bool]) -> tuple[str, str, str]:
    """`-r3` and `-r=3` as argparse reads them: -r with the value 3."""
    head = word[:2]
    flag = _BY_SHORT.get(head[1])
    if (flag and flag.takes_value) or own.get(head):
        return head, "=", word[2:].removeprefix("=")
    return word, "", ""


def _resolve(name: str, own: Mapping[str, bool]) -> tuple[str, bool]:
    """The canonical option and whether it takes a value; exact names first, then argparse's unique beginnings."""
    if name in own:
        return name, own[name]
    if not name.startswith("--"):
        flag = _BY_SHORT.get(name[1:])
        if flag is None:
            raise _unknown(name, own)
        return f"--{flag.name}", flag.takes_value
    wanted = name[2:].replace("_", "-")
    if f"--{wanted}" in own:
        return f"--{wanted}", own[f"--{wanted}"]
    table = _BY_NAME if wanted in _BY_NAME else _BY_NAME | installed_flags()
    fits = [table[wanted]] if wanted in table else [f for n, f in table.items() if wanted and n.startswith(wanted)]
    if len(fits) != 1:
        raise _unknown(name, own, [f"--{f.name}" for f in fits])
    return f"--{fits[0].name}", fits[0].takes_value


def _unknown(name: str, own: Mapping[str, bool], fits: list[str] | None = None) -> UsageError:
    if fits:
        return UsageError(f"the option {name} could be {' or '.join(fits)}", "Write more of it.")
    known = [*own, *(f"--{n}" for n in _BY_NAME)]
    near = difflib.get_close_matches(name.replace("_", "-"), known, n=1, cutoff=0.75)
    hint = f"Did you mean {near[0]}?" if near else "`distdbg launch --help` lists all options."
    return UsageError(f"neither distdbg nor torchrun has an option {name}", hint)


def installed_flags() -> dict[str, Flag]:
    """Flags of the torch that is installed, read from its source; empty where there is none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return {}
    source = Path(spec.submodule_search_locations[0]) / "distributed" / "run.py"
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return {}
    calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "add_argument")
    found = (_flag_of(call) for call in calls)
    return {flag.name: flag for flag in found if flag is not None}


def _flag_of(call: ast.Call) -> Flag | None:
    names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    long = next((n[2:].replace("_", "-") for n in names if n.startswith("--")), None)
    if long is None:
        return None
    action = next((ast.unparse(k.value) for k in call.keywords if k.arg == "action"), "")
    short = next((n[1:] for n in names if n.startswith("-") and not n.startswith("--")), None)
    switch = "check_env" in action or "store_true" in action
    return Flag(long, takes_value=not switch, short=short, from_env=action in ("env", "check_env"))


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Flags that PET_* variables set, as torchrun reads them: a switch is on where its variable is a number but 0.

    An empty value is torchrun's default and so none of the user's. Raises UsageError for a switch that is no number.
    """
    found: dict[str, str] = {}
    for flag in (f for f in FLAGS if f.from_env and environ.get(f.variable)):
        value = environ[flag.variable]
        if flag.takes_value:
            found[flag.name] = value
            continue
        try:
            if int(value):
                found[flag.name] = ""
        except ValueError:
            message = f"{flag.variable}={value!r} is not a number"
            raise UsageError(message, "torchrun reads 1 as on and 0 as off.") from None
    return found


#: PET_* variables of torchrun's switches. The arguments say what is on; that one of these is off they cannot say.
SWITCH_VARIABLES = tuple(flag.variable for flag in FLAGS if not flag.takes_value)


#: Between torchrun's signal to its ranks and SIGKILL, where nothing else is said.
KILLS_AFTER_S = 30
_NUMBERS = {
    "max-restarts": (int, "a number of restarts"),
    "node-rank": (int, "the number of a node"),
    "master-port": (int, "a port"),
    "shutdown-timeout": (int, "a number of seconds"),
    "monitor-interval": (float, "a number of seconds"),
}


def value_mistake(name: str, value: str) -> str:
    """A sentence for a value that torchrun would refuse in every process, empty for one that is well."""
    if name == "nnodes":
        low, _, high = value.partition(":")
        least, most = whole_number(low), whole_number(high if ":" in value else low)
        good = least is not None and most is not None and 0 < least <= most
        return "" if good else f"--nnodes {value!r} is neither a number of nodes nor a range such as 1:4"
    kind, what = _NUMBERS.get(name, (str, ""))
    try:
        number = kind(value)
    except ValueError:
        return f"--{name} {value!r} is not {what}"
    return f"--{name} {value} is below 0" if not isinstance(number, str) and number < 0 else ""


def check_values(flags: Mapping[str, str]) -> None:
    """Raise UsageError for a value that torchrun would refuse."""
    for name, value in flags.items():
        if mistake := value_mistake(name, value):
            raise UsageError(mistake, "`distdbg launch --help` has torchrun's flags.")


def is_one_of_many(flags: Mapping[str, str]) -> bool:
    """Whether the user brings the rendezvous: Kubernetes, plain machines, one launch a node."""
    foreign = flags.get("rdzv-backend", "c10d") not in ("c10d", "static")
    return foreign or any(name in flags for name in _ONE_OF_N) or ":" in flags.get("nnodes", "")


#: Flags whose place in a job file is a key of its own.
OWN_KEYS = {
    "nnodes": "`nodes: N`",
    "nproc-per-node": "`nproc_per_node: K`",
    "module": "`module: NAME`",
    "no-python": "`command: PROGRAM`",
}


def grace_note(grace: float) -> list[str]:
    """A warning where the installed torchrun kills its ranks before the end of any grace period."""
    flags = installed_flags() if grace > KILLS_AFTER_S else {}
    if not flags or "shutdown-timeout" in flags:
        return []
    return [f"--grace {grace:g}: this torch's torchrun kills its ranks {KILLS_AFTER_S} s after it asked them to end"]


def check_names(flags: Mapping[str, str]) -> list[tuple[str, str]]:
    """Mistakes in a job file's `torchrun` part: (key, sentence) of each that is no flag or has a wrong value."""
    mistakes: list[tuple[str, str]] = []
    for name, value in flags.items():
        flag = _BY_NAME.get(name) or installed_flags().get(name)
        if name in OWN_KEYS and not (name == "nnodes" and ":" in value):
            mistakes.append((name, f"torchrun's {name} has a key of its own in a job file: {OWN_KEYS[name]}"))
        elif flag is None:
            near = difflib.get_close_matches(name, _BY_NAME, n=1)
            mistakes.append((name, f"torchrun has no flag {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")))
        elif not flag.takes_value and value:
            mistakes.append((name, f"torchrun's {name} is a switch and takes no value; write `{name}: true`"))
        elif flag.takes_value and not value:
            mistakes.append((name, f"torchrun's {name} needs a value"))
        elif mistake := value_mistake(name, value):
            mistakes.append((name, mistake.removeprefix("--")))
    return mistakes
