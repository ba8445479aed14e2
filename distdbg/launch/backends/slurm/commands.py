"""Call Slurm's commands, each with a timeout, their errors as sentences. Only machine-readable formats are read.

Raises, all of them: ToolMissing where a command is not installed or may not be used, SlurmSilent where the controller
does not answer, UsageError for what Slurm refuses, NothingToAnalyse for a job that it does not know (any more).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from distdbg.errors import DistdbgError, NothingToAnalyse, ToolMissing, UsageError
from distdbg.plain_text import last_words, whole_number

#: Slurm's own MessageTimeout is 10 s by default, and its commands give up after it.
_WITHIN_S = 20.0
_SUBMIT_WITHIN_S = 90.0
_PING_WITHIN_S = 5.0
_SILENT = re.compile(
    r"[Uu]nable to contact slurm controller|Connection refused|Socket timed out|Zero Bytes|Communication connection "
    r"failure|[Uu]nable to establish controller|Could not establish a configuration source|backup controller|"
    r"Protocol authentication error|Unspecified error|Munge",
    re.IGNORECASE,
)
#: What Slurm says of a submission -> our sentence, and what to do. The first that fits.
_REFUSALS: tuple[tuple[str, str, str], ...] = (
    (r"invalid partition specified: (?P<x>\S+)|Invalid partition name", "Slurm has no partition {x}",
     "`sinfo -s` lists them; --partition names one."),
    (r"Invalid --time specification|Invalid time limit|time limit specification", "{time} is no time that Slurm takes",
     "Write --time as minutes, HH:MM:SS or D-HH:MM."),
    (r"[Tt]ime limit is invalid|longer than|exceeds partition", "the partition does not allow {time}",
     "`sinfo -o '%P %l'` has the limits; ask for less with --time."),
    (r"Invalid account", "Slurm does not take this account, or not in this partition",
     "`sacctmgr show assoc user=$USER` lists yours; --account names one."),
    (r"[Ii]nvalid qos", "Slurm does not take this quality of service", "`sacctmgr show assoc user=$USER` lists yours."),
    (r"Invalid feature", "no node has what --constraint asks for", "`sinfo -o '%N %f'` lists the nodes' features."),
    (r"[Ii]nvalid generic resource|Invalid gres|Invalid Trackable RESource", "no node has the GPUs that were asked for",
     "`sinfo -o '%N %G'` lists what the nodes have; see --gpus-per-node."),
    (r"[Nn]ode count specification invalid|Node configuration is not available|[Mm]ore processors requested",
     "no nodes of the partition are so many or so large", "`sinfo -o '%P %D %c %m %G'` lists what there is."),
    (r"unrecognized option '?(?P<x>[^\s']+)|invalid option", "sbatch has no option {x}",
     "`sbatch --help` lists them; see what follows --slurm."),
)  # fmt: skip


class SlurmSilent(ToolMissing):
    """The controller does not answer."""


@dataclass(frozen=True)
class JobState:
    """What squeue says of a job. Times are epoch seconds, None where Slurm does not know them yet."""

    number: int
    state: str
    reason: str = ""
    start: float | None = None
    nodes: str = ""
    count: int = 0

    @property
    def waits(self) -> bool:
        return self.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")

    @property
    def over(self) -> bool:
        return self.state in _OVER


_OVER = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE",
         "PREEMPTED", "REVOKED"}  # fmt: skip


def submit(script: str, environment: Mapping[str, str]) -> int:
    """`script` is the file's path; the job's number. Its environment is ours and `environment`."""
    text = call("sbatch", "--parsable", script, within=_SUBMIT_WITHIN_S, environment=environment)
    number = text.strip().rpartition("\n")[2].partition(";")[0]  # sites print words of their own before it
    job = whole_number(number)
    if job is None:
        raise DistdbgError(f"sbatch printed no job number: {text.strip()[-200:]!r}", "`squeue --me` has it.")
    return job


def job_state(job: str | int) -> JobState | None:
    """None where Slurm does not know the job: purged some minutes after its end (MinJobAge), or never there.

    `job` may be 12, 12_3 (of an array) or 12+1 (of a heterogeneous job).
    """
    try:
        text = call("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%A|%T|%r|%S|%D|%N")
    except NothingToAnalyse:
        return None
    rows = [line.split("|") for line in text.splitlines() if line.count("|") >= 5]
    if not rows:
        return None
    number, state, reason, start, count, nodes = rows[0][:6]
    return JobState(
        number=whole_number(number) or 0,
        state=state,
        reason="" if reason == "None" else reason,
        start=None if (begins := whole_number(start)) is None else float(begins),
        nodes=nodes,
        count=whole_number(count) or 0,
    )


def preempted(job: int) -> bool:
    """Whether Slurm preempted the job; False if that is not known. Without `preempt_send_user_signal` Slurm ends the
    steps by SIGTERM and does not signal the batch script."""
    return _search_job(r"\bPreemptTime=\d", job) is not None


def restarts(job: int) -> int:
    """How often the job was requeued, by any cause; 0 if that is not known. A requeue counts before the job starts
    again. Slurm requeues a job by itself if one of its nodes failed."""
    found = _search_job(r"\bRestarts=(\d+)", job)
    return int(found[1]) if found else 0


def exit_code(job: int) -> int | None:
    """The exit code of the batch script, 128+N if signal N ended it; None if it is not known."""
    found = _search_job(r"\bExitCode=(\d+):(\d+)", job)
    return None if found is None else int(found[1]) or (128 + int(found[2]) if int(found[2]) else 0)


def _search_job(pattern: str, job: int) -> re.Match[str] | None:
    """Search the record of the job; None if the controller does not show it."""
    try:
        return re.search(pattern, call("scontrol", "--oneliner", "show", "job", str(job)))
    except DistdbgError:
        return None


def cancel(job: int, *, full: bool = False) -> None:
    """`full`: the batch script too, at once. A job that has ended already is no error."""
    call("scancel", *(["--full"] if full else []), str(job))


def requeue(job: int) -> None:
    call("scontrol", "requeue", str(job))


def exclude(job: int, nodes: str) -> None:
    """Exclude these nodes from a pending job, too."""
    text = call("scontrol", "--oneliner", "show", "job", str(job))
    had = re.search(r"\bExcNodeList=(\S+)", text)
    before = had[1] if had and had[1] != "(null)" else ""
    call("scontrol", "update", f"JobId={job}", f"ExcNodeList={','.join(filter(None, (before, nodes)))}")


def gpus_of(job: str) -> int | None:
    """GPUs on the node of a job that has least of them; None where the controller does not say."""
    try:
        text = call("scontrol", "--oneliner", "--details", "show", "job", job)
    except DistdbgError:
        return None
    on_nodes = re.findall(r"\bNodes=(\S+) \S+ \S+ GRES=(\S*)", text)
    return min((_gpus(gres) for _, gres in on_nodes), default=None)


def _gpus(gres: str) -> int:
    """`gpu:h100:2(IDX:0-1),gpu:a100:1(IDX:2),shard:4` -> 3."""
    return sum(int(count) for count in re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)", gres))


def node_names(nodes: str) -> list[str]:
    """`node[1-2]` -> node1, node2."""
    return call("scontrol", "show", "hostnames", nodes).split() if nodes else []


def nodes_of(partition: str | None) -> tuple[str, int] | None:
    """(the partition, its number of nodes in any state), the default one's for None; None where unknown."""
    counts: dict[str, int] = {}
    default = None
    for line in call("sinfo", "--noheader", "--format=%R|%P|%D").splitlines():
        name, marked, count = (*line.split("|"), "", "")[:3]
        if (number := whole_number(count)) is not None:
            counts[name] = counts.get(name, 0) + number
            default = name if marked.endswith("*") else default
    wanted = partition or default
    return (wanted, counts[wanted]) if wanted in counts else None


def answers() -> bool:
    """Whether a controller is there, found out in seconds."""
    try:
        return " is UP" in call("scontrol", "ping", within=_PING_WITHIN_S)
    except DistdbgError:
        return False


def call(command: str, *words: str, within: float = _WITHIN_S, environment: Mapping[str, str] | None = None) -> str:
    """Standard output."""
    env = {**os.environ, **(environment or {})}
    if command != "sbatch":  # whose environment becomes the job's
        env |= {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(
            [command, *words], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
            timeout=within, env=env, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise ToolMissing(
            f"there is no {command} on PATH: this is no machine of a Slurm cluster",
            "Call distdbg where sbatch is; --on local runs on this machine.",
        ) from None
    except OSError as error:
        raise ToolMissing(
            f"{command} cannot be started: {error.strerror}", f"`which {command}` shows the file."
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmSilent(f"Slurm's controller does not answer: {command} took longer than {within:g} s",
                          "`scontrol ping` says when it is back.") from None  # fmt: skip
    if done.returncode or (command == "scancel" and "error:" in done.stderr):
        raise _error(command, words, done.stderr)
    return done.stdout


def _error(command: str, words: tuple[str, ...], stderr: str) -> DistdbgError:
    lines = [re.sub(r"^\w+: (error: |fatal: )?", "", line) for line in stderr.splitlines() if line.strip()]
    said = last_words("; ".join(lines), 400) or "it says nothing"
    if re.search(r"Invalid job id", stderr):
        job = next((word for word in words if word[:1].isdecimal()), "this one")
        return NothingToAnalyse(
            f"Slurm does not know job {job}: it was never there, or has ended and was forgotten",
            "`squeue --me` lists yours; `sacct -j` knows old ones where the site keeps accounts.",
        )
    if re.search(r"[Pp]ermission denied|not authorized", stderr):
        return ToolMissing(f"Slurm does not allow it: {said}", "The job is another user's; ask as its owner.")
    for pattern, sentence, remedy in _REFUSALS if command == "sbatch" else ():
        if found := re.search(pattern, stderr):
            named = found.groupdict().get("x")
            return UsageError(f"{sentence.format(x=repr(named) if named else 'of this name', time='the time limit')} "
                              f"(sbatch: {lines[0]})", remedy)  # fmt: skip
    if _SILENT.search(stderr):
        return SlurmSilent(f"Slurm's controller does not answer: {said}", "`scontrol ping` says when it is back.")
    kind = UsageError if command == "sbatch" else DistdbgError
    return kind(f"{command} failed: {said}", f"Call `{command}` by hand, or ask those who run the cluster.")
