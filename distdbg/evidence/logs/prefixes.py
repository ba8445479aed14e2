"""The prefixes that launchers, schedulers, containers and loggers put before a line of a log: one row each.

`strip` removes them repeatedly and in any order, and collects what each says: rank, local rank, task, host, pod, pid,
time, stream, level. A local rank, a task and a rank are different facts: `sources.py` decides what they mean together.
"""

# ruff: noqa: E501 -- a row of the table is a line

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any

from distdbg.evidence import jsonl
from distdbg.evidence.stacks.tracebacks import HEADER
from distdbg.model import MOST_RANKS, is_plausible_time
from distdbg.plain_text import whole_number

#: Prefixes of one line; more is no log.
_MOST_ROUNDS = 12
_MOST_JSON = 256 << 10
#: The year of times that have none.
NO_YEAR = 2000
_TIME = r"\d{4}[-/]\d\d[-/]\d\d[ T_]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d)(?![\w:]))?"
_LEVEL = r"(?:DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
#: What Horovod writes below `Missing ranks:`, `1: [allreduce.weight]`, begins with no task and no line's number.
_NO_TENSORS = r"(?!\[(?:all|broadcast|Distributed|Horovod|reduce))"
#: Names that end in a number and are no hosts.
_NO_HOST = (
    r"(?:step|epoch|iter|iteration|batch|layer|gpu|cuda|rank|line|python|torch|fp|bf|int|uint|float|utf|sha|md|h|x|"
    r"mlx|ib|eth|level|block|stage|shard|worker_id|process|test|error|fold|trial|run|seed|v|version)"
)


@dataclass(frozen=True)
class LineFacts:
    """What the prefixes of a line say. `task` numbers the processes of a launcher: ranks, or nodes below torchrun."""

    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    host: str = ""
    pod: str = ""
    pid: int | None = None
    #: epoch seconds; of times without a zone as if they were UTC, without a year as if in NO_YEAR
    t: float | None = None
    stream: str = ""
    level: str = ""
    #: by which the line came here: torchrun, srun, mpirun, Ray, …
    launchers: frozenset[str] = frozenset()
    #: a number at the beginning that may be a line's number
    number: int | None = None


NO_FACTS = LineFacts()


@dataclass(frozen=True)
class PrefixRow:
    """`pattern` is matched at the beginning of the line; its named groups are the facts. `begins` are the characters
    that such a line can begin with. `sample` is a whole line, `source` the program and the file or page that says so."""

    name: str
    pattern: re.Pattern[str]
    begins: str
    sample: str
    source: str
    launcher: str = ""
    #: beginnings of ordinary text: with one of these it is a prefix only after another one
    never_first: str = ""
    #: it is no prefix after a number or a host: `node7: 3: …` is not two of them
    not_again: bool = False


_DIGITS = "0123456789"
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _row(  # noqa: PLR0917 -- the columns of the table
    name: str, begins: str, pattern: str, sample: str, source: str, launcher: str = "", *, never_first: str = "",
    not_again: bool = False,
) -> PrefixRow:  # fmt: skip
    return PrefixRow(name, re.compile(pattern, re.ASCII), begins, sample, source, launcher, never_first, not_again)


#: The first row that fits is removed, then all rows are tried again.
ROWS: tuple[PrefixRow, ...] = (
    _row("excepthook", "[", r"\[rank(?P<rank>\d{1,7})\]: ?", "[rank3]: RuntimeError: planted",
         "torch/distributed/distributed_c10d.py, _distributed_excepthook", "torchrun"),
    _row("lightning", "[", r"\[rank: (?P<rank>\d{1,7})\] ?", "[rank: 3] Seed set to 42",
         "lightning/fabric/utilities/rank_zero.py", "Lightning"),
    _row("logged-rank", "[",
         r"\[(?:(?:global[_ ]?)?[Rr]ank|RANK)[ :=_]{0,2}(?P<rank>\d{1,7})(?:(?:/| of )\d{1,7})?\](?! ?(?:\[PG|Watchdog|NCCL|"
         r"Caught|Some NCCL|To avoid|Found key|Timeout at|ProcessGroup|Process group))[:,]? ?",
         "[Rank 3] ValueError: planted", "deepspeed/utils/logging.py, Megatron-LM, users' formats"),
    _row("mpirun-tag", "[", r"\[\d{1,9},(?P<task>\d{1,7})\](?:<(?P<stream>stdout|stderr|stddiag)>)?:? ?",
         "[1,3]<stderr>:ValueError: planted", "Open MPI, mpirun --tag-output", "mpirun"),
    _row("sagemaker-tag", "[", r"\[\d{1,9},mpirank:(?P<task>\d{1,7}),(?P<host>[\w.-]{1,253})\](?:<(?P<stream>stdout|stderr)>)?:? ?",
         "[1,mpirank:3,algo-2]<stderr>:ValueError: x", "sagemaker-training-toolkit, mpi.py", "mpirun"),
    _row("horovod", "[", r"\[(?P<task>\d{1,7})\]<(?P<stream>stdout|stderr)>:", "[3]<stderr>:ValueError: planted",
         "horovod/runner/gloo_run.py, prefix_output_with_timestamp", "Horovod"),
    _row("kubectl", "[", r"\[pod/(?P<pod>[\w.-]{1,253})/[\w.-]{1,253}\] ", "[pod/train-worker-3/pytorch] ValueError: x",
         "kubectl logs --prefix", "Kubernetes"),
    _row("bracketed-time", "[", rf"\[(?P<t>{_TIME})\]:? ?-? ?", "[2024-05-01 10:00:00,123] [INFO] x",
         "deepspeed/utils/logging.py, hydra, Megatron-LM"),
    _row("kernel-clock", "[", r"\[ *\d{1,9}\.\d{6}\] ", "[12345.678901] NVRM: Xid (PCI:0000:19:00): 79", "dmesg"),
    _row("kernel-time", "[", r"\[(?P<t>(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] ",
         "[Mon Nov 25 10:00:00 2024] NVRM: Xid (PCI:0000:19:00): 79", "dmesg -T"),
    _row("bracketed-level", "[", rf"\[(?P<level>{_LEVEL})\] ?", "[ERROR] ValueError: x", "deepspeed, Ray, logging"),
    _row("bracketed-place", "[", r"\[[\w./-]{1,80}\.py:\d{1,7}(?::\w{1,80}|\([^()]{0,80}\))?\] ?",
         "[launch.py:319:sigkill_handler] Killing subprocess 41", "deepspeed/utils/logging.py"),
    _row("bracketed-stream", "[", r"\[(?P<stream>stdout|stderr)\]:? ?", "[stderr] ValueError: x", "log shippers"),
    _row("bracketed-pid", "[", r"\[(?:PID|pid|Pid)[:= ]{1,2}(?P<pid>\d{1,9})\] ?", "[PID:7202] [RANK:1] ValueError: x",
         "axolotl/logging_config.py"),
    _row("bracketed-logger", "[", r"\[[a-z_][\w.]{1,80}(?::\d{1,7})?\](?=\[|(?: ?- ?| )\S)(?:: | - |: ?)?", "[__main__][ERROR] - x",
         "hydra's job logging, conf/hydra/job_logging/default.yaml"),
    _row("bracketed-number", "[", r"\[(?P<number>\d{1,9})\] (?=\[)", "[80746] [rank0]: ValueError: x", "editors, log viewers"),
    _row("tee", "[", r"\[[A-Za-z_]\w{0,40}?(?P<local_rank>\d{1,7})\]:(?!\d{1,5}(?![\d:./-]))", "[default3]:ValueError: x",
         "torch/distributed/elastic/multiprocessing/tail_log.py (--tee)", "torchrun"),
    _row("ray", "(", r"\((?:(?P<actor>[\w.:<>-]{1,100}) )?pid=(?P<pid>\d{1,9})(?:, ip=(?P<host>[\w.:-]{1,60}))?\) ?",
         "(RayTrainWorker pid=615, ip=10.0.0.6) ValueError: x", "ray/_private/ray_logging.py", "Ray"),
    _row("ray-daemon", "(", r"\((?:raylet|gcs_server|autoscaler)(?:, ip=(?P<host>[\w.:-]{1,60}))?\) ?",
         "(raylet, ip=10.0.0.6) ValueError: x", "ray/_private/worker.py, print_to_stdstream", "Ray"),
    _row("ray-native", "[", rf"\[(?P<t>{_TIME}) [IWEF] \d{{1,9}} \d{{1,9}}\] ?", "[2025-12-07 09:57:19,206 E 39 39] (raylet) ValueError: x",
         "ray/src/ray/util/logging.cc", "Ray"),
    _row("cri", _DIGITS, r"(?P<t>\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d)) (?P<stream>stdout|stderr) [FP] ?",
         "2024-05-01T10:00:00.123456789Z stderr F ValueError: x", "kubernetes/cri-api, log format of CRI",
         "Kubernetes"),
    _row("time", _DIGITS, rf"(?P<t>{_TIME})(?::|[ \t]*[|,-])?[ \t]", "2024-05-01 10:00:00,123 - INFO - x",
         "logging.Formatter, loguru, ts, kubectl logs --timestamps"),
    _row("us-date", _DIGITS, r"(?P<t>\d\d/\d\d/\d{4} \d\d:\d\d:\d\d)(?: -)? ", "05/01/2024 10:00:00 - ERROR - x",
         "examples of transformers (datefmt)"),
    _row("clock", _DIGITS, r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:[ \t]*[|-])?[ \t]", "10:00:00.123 | ERROR | x", "logging"),
    _row("epoch", _DIGITS, r"(?P<t>1[5-9]\d{8}\.\d{1,9})[: ]", "1714550400.123 ValueError: x", "ts %.s"),
    _row("srun-label", _DIGITS + " ", r" {0,5}(?P<task>\d{1,7}): " + _NO_TENSORS, "3: ValueError: x", "srun --label", "srun",
         not_again=True),
    _row("line-number", _DIGITS + " ", r" {0,8}(?P<number>\d{1,9})(?:\t|\| | \| |: " + _NO_TENSORS + ")", "   12\tValueError: x",
         "cat -n, less -N, editors", not_again=True),
    _row("severity", "<", r"<[0-7]>(?P<stream>)", "<4>NVRM: Xid (PCI:0000:19:00): 79", "/dev/kmsg, systemd"),
    _row("syslog", "JFMASOND", r"(?P<t>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?P<host>[\w.-]{1,253}) (?P<tag>[\w./@()-]{1,80})"
         r"(?:\[(?P<pid>\d{1,9})\])?: ?", "Nov 25 10:00:00 node7 python[4321]: ValueError: x", "journalctl, RFC 3164",
         "journald"),
    _row("journal-iso", _LETTERS, r"(?P<host>[\w.-]{1,253}) (?P<tag>(?:kernel|python[\d.]*|slurmstepd|systemd|torchrun|"
         r"containerd|kubelet|bash|docker|dockerd|srun))(?:\[(?P<pid>\d{1,9})\])?: ?",
         "node7 python[4321]: ValueError: x", "journalctl -o short-iso, after its time", "journald"),
    _row("kubetail", "[" + _LETTERS, r"(?:\[(?P<pod>[\w.-]{3,253}-[\w-]{1,40})\]|(?P<pod2>[a-z][\w.-]{2,253}-[\w-]{1,40}) "
         r"(?:[a-z][\w-]{1,60} )?[›|]) ", "train-worker-3 pytorch › ValueError: x", "kubetail, stern", "Kubernetes"),
    _row("compose", "abcdefghijklmnopqrstuvwxyz", r"(?P<host>[a-z][\w.-]{0,100}[-_]\d{1,5}) +\| ?", "worker-1  | ValueError: x",
         "docker compose logs", "Docker"),
    _row("worded-rank", "Rr", r"[Rr]ank(?:: {0,2}|[ =_]?)(?P<rank>\d{1,7})(?:\s?[:|]\s|\s-\s)", "rank 3: ValueError: x",
         "users' formats; ParlAI, core/logs"),
    _row("slurmstepd", "s", r"slurmstepd-(?P<host>[\w.-]{1,253}): ", "slurmstepd-node7: error: Detected 1 oom_kill event in StepId=4.0.",
         "slurmstepd of several nodes", "srun"),
    _row("pdsh", "abcdefghijklmnopqrstuvwxyz", rf"(?!{_NO_HOST}[-_]?\d)(?P<host>(?:[a-z][a-z0-9]*[-.])*[a-z0-9-]*\d"
         r"(?:\.[a-z][a-z0-9.-]{1,200})?): ", "worker-1: ValueError: x", "pdsh; DeepSpeed's launcher", "pdsh",
         not_again=True),
    _row("address", _DIGITS, r"(?P<host>(?:\d{1,3}\.){3}\d{1,3}): ", "10.0.0.7: ValueError: x",
         "pdsh with a hostfile of addresses", "pdsh", not_again=True),
    _row("torchx", _LETTERS, rf"(?!{_NO_HOST}/)(?P<pod>[A-Za-z][\w.-]{{0,80}}/\d{{1,5}}) "
         r"(?=\[|[IWEF]\d{4} |Traceback |  |[\w.]{1,80}(?:Error|Exception)\b)", "train/1 [rank9]: ValueError: x",
         "torchx/cli/cmd_log.py: role/replica; NeMo-Run", "torchx"),
    _row("stream", "s", r"(?P<stream>stdout|stderr)[:|] ?", "stderr: ValueError: x", "nvidia's and Ray's runners"),
    _row("level", "DINWECF-|: ", rf"[-|: ]{{0,4}}\b(?P<level>{_LEVEL})\b(?:[ \t]*[-|:]+|[ \t]{{2,}}|(?= \[|\[)) ?",
         "ERROR    | train:main:88 - x", "logging, loguru", never_first=" -|:"),
    _row("logger", _LETTERS + "_", r"(?:[a-z_][\w.]{0,80}:[\w<>]{1,60}:\d{1,7}|[a-z_]\w{0,60}(?:\.\w{1,60}){0,6}\.py:\d{1,7}"
         r"|(?:__main__|[a-z_]\w{0,60}(?:\.\w{1,60}){1,6})(?= - )) ?[-:]+ ", "__main__:train:88 - ValueError: x",
         "loguru, logging", never_first=_LETTERS + "_"),
    _row("logger-name", _LETTERS + "_", rf"[A-Za-z_][\w.]{{0,80}} - (?={_LEVEL} - )", "train - ERROR - ValueError: x", "logging, %(name)s - %(levelname)s - %(message)s",
         never_first=_LETTERS + "_"),
    _row("box", "│╭╰", r"[│╭╰] ?", "│ /work/train.py:8 in <module>", "rich.traceback"),
    _row("dash", "-|", r"[-|] ", "- ValueError: x", "what is left of a format", never_first="-|"),
    _row("progress", "0123456789 " + _LETTERS + "|", r"[^|\n]{0,80}?\d{1,3}%\|[^|\n]{0,200}\| ?[^\]\n]{0,60}\[[^\]\n]{0,80}\](?=\S)",
         " 50%|#####     | 10/20 [00:10<00:10,  1.00it/s]Traceback (most recent call last):", "tqdm"),
)  # fmt: skip

#: Facts after which no row with `not_again` fits.
_ONCE = ("task", "number", "host")
_BY_FIRST: dict[str, tuple[PrefixRow, ...]] = {
    char: tuple(row for row in ROWS if char in row.begins) for row in ROWS for char in row.begins
}
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]")
_MESSAGE_KEYS = ("log", "message", "msg", "body", "MESSAGE", "textPayload", "text", "event")
#: in the JSON object that torch/distributed/elastic/multiprocessing/errors/error_handler.py logs over several lines
_CALLSTACK = '"py_callstack":'
#: what stands below it there: without its indentation it does not look like the rest of a message
_BELOW = re.compile(r'\s+(?:"timestamp": "?\d{1,12}"?|[}\]]),?\s*$')
_RANK_KEYS = ("rank", "global_rank", "RANK", "process_rank")
_LOCAL_KEYS = ("local_rank", "LOCAL_RANK")
_HOST_KEYS = ("host", "hostname", "node", "_HOSTNAME", "node_name", "nodeName")
_POD_KEYS = ("pod", "pod_name", "kubernetes_pod_name")
_TIME_KEYS = ("time", "timestamp", "@timestamp", "ts", "asctime", "__REALTIME_TIMESTAMP")
_PID_KEYS = ("_PID", "pid", "process", "process_id")
_LEVEL_KEYS = ("level", "levelname", "severity")


def strip(line: str) -> tuple[str, LineFacts]:
    """The line without its prefixes, and what they say. The indentation that remains is the text's own."""
    if "\x1b" in line:
        line = _ESCAPE.sub("", line)
    text, found = line, dict[str, Any]()
    launchers: set[str] = set()
    for _ in range(_MOST_ROUNDS):
        inner = _unpacked(text, found, launchers) if text[:1] in '{"' or text.startswith((' "', "  ")) else None
        if inner is None:
            inner = _without_row(text, found, launchers)
        if inner is None:
            break
        text = inner
    if not found and not launchers:
        return text, NO_FACTS
    return text, LineFacts(**found, launchers=frozenset(launchers))


def _without_row(text: str, found: dict[str, Any], launchers: set[str]) -> str | None:
    for row in _BY_FIRST.get(text[:1], ()):
        match = row.pattern.match(text)
        if match is None:
            continue
        if text[0] in row.never_first and not found:
            continue
        if row.not_again and not found.keys().isdisjoint(_ONCE):
            continue
        _take(match.groupdict(), found)
        if row.launcher:
            launchers.add(row.launcher)
        return text[match.end() :]
    return None


def _take(groups: Mapping[str, str | None], found: dict[str, Any]) -> None:
    """The innermost rank counts: it is the nearest to the process."""
    for name, value in groups.items():
        if not value:
            continue
        if name in ("rank", "local_rank", "task", "number", "pid"):
            if int(value) < MOST_RANKS or name in ("pid", "number"):
                found[name] = int(value)
        elif name == "t":
            found.setdefault("t", epoch(value))
        elif name in ("pod", "pod2"):
            found["pod"] = value
        elif name == "host":
            found["host"] = value
        elif name in ("stream", "level"):
            found[name] = value


def _unpacked(  # noqa: PLR0911 -- one form a case
    text: str, found: dict[str, Any], launchers: set[str]
) -> str | None:
    """The message of a line of JSON, as Docker and log shippers write it; or a line of a notebook's output."""
    whole = text.strip()
    if len(whole) > _MOST_JSON:
        return None
    if whole[:1] == '"' and len(whole) > 1:
        return whole if _BELOW.match(text) else _string(whole)
    if _BELOW.match(text):
        return whole
    if whole[:1] != "{" or whole[-1:] != "}":
        return None
    try:
        value = jsonl.parse(whole)
    except ValueError:
        return None
    assert isinstance(value, dict)
    if (said := _of_torchelastic(value, found)) is not None:
        return said
    message = next((value[key] for key in _MESSAGE_KEYS if isinstance(value.get(key), str)), None)
    if message is None:
        return None
    flat = _flat(value)
    numbers: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("rank", _RANK_KEYS), ("local_rank", _LOCAL_KEYS), ("pid", _PID_KEYS),
    )  # fmt: skip
    for name, keys in numbers:
        number = next((n for key in keys if (n := whole_number(str(flat.get(key, "")))) is not None), None)
        if number is not None and number < (MOST_RANKS if name != "pid" else 1 << 31):
            found[name] = number
    words: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("host", _HOST_KEYS), ("pod", _POD_KEYS), ("level", _LEVEL_KEYS), ("stream", ("stream",)),
    )  # fmt: skip
    for name, keys in words:
        said = next((flat[key] for key in keys if isinstance(flat.get(key), str) and flat[key]), None)
        if said is not None:
            found[name] = said.upper() if name == "level" else said[:253]
    stamp = next((flat[key] for key in _TIME_KEYS if key in flat), None)
    if stamp is not None and "t" not in found and (t := epoch(str(stamp))) is not None:
        found["t"] = t
    launchers.add("JSON lines")
    return str(message).rstrip("\n")


def _string(line: str) -> str | None:
    """A line of a notebook's output, or the traceback in a JSON object that torchelastic's error handler printed."""
    handler = line.startswith(_CALLSTACK)
    if not handler and line.rstrip(",")[-1:] != '"':
        return None
    try:
        said = jsonl.parse(line.removeprefix(_CALLSTACK).strip().rstrip(","))
    except ValueError:
        return None
    if not isinstance(said, str):
        return None
    return said.rstrip("\n") + "\n" if handler else said.rstrip("\n")


def _of_torchelastic(value: Mapping[str, Any], found: dict[str, Any]) -> str | None:
    """The traceback, or the message, in an error file of `@record` (TORCHELASTIC_ERROR_FILE)."""
    inner = value.get("message")
    extra = inner.get("extraInfo") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(extra, dict):
        return None
    if (t := epoch(str(extra.get("timestamp", "")))) is not None:
        found["t"] = t
    stack = str(extra.get("py_callstack") or "")
    return (stack if HEADER in stack else str(inner.get("message") or "")).rstrip("\n")


def _flat(value: Mapping[str, Any]) -> dict[str, Any]:
    """With the keys of one level of objects below, such as `kubernetes` and `labels`."""
    flat = dict(value)
    for inner in value.values():
        if isinstance(inner, dict):
            flat = {**inner, **flat}
    return flat


@lru_cache(maxsize=4096)
def epoch(text: str) -> float | None:
    """Epoch seconds of a time as logs write it; None for text that is not a time, and for a year that no log is of."""
    t = _parse_time(text)
    return t if t is not None and is_plausible_time(t) else None


def _parse_time(text: str) -> float | None:
    said = text.strip().replace("/", "-").replace(",", ".").replace("_", "T", 1).replace("T", " ", 1)
    if said.replace(".", "", 1).isdecimal():
        value = float(said)
        return value / 1e6 if value > 1e14 else value / 1e3 if value > 1e11 else value if value > 1e9 else None
    said = said.replace(" UTC", "Z").replace(" Z", "Z")
    if found := re.match(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d+)? ?(Z|[+-]\d\d:?\d\d)?$", said):
        zone = (found[3] or "Z").replace("Z", "+00:00")
        zone = zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
        try:
            return datetime.fromisoformat(f"{found[1]}{zone}").timestamp() + float(found[2] or 0)
        except ValueError:
            return None
    for form in ("%m-%d-%Y %H:%M:%S", "%a %b %d %H:%M:%S %Y", "%Y %b %d %H:%M:%S"):
        try:
            year = f"{NO_YEAR} " if form.startswith("%Y %b") else ""
            return datetime.strptime(year + said, form).replace(tzinfo=timezone.utc).timestamp()
        except ValueError:  # noqa: PERF203
            continue
    return None
