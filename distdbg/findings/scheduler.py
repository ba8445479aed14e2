"""Findings about schedulers, launchers and signals that ended a job from outside."""

from distdbg.model import FindingDoc

ENTRIES = (
    FindingDoc(
        id="job-cancelled",
        severity="error",
        title="the job was cancelled",
        meaning="Slurm cancelled the job or a step of it. Somebody ran scancel, or srun ended the step after one of "
        "its tasks had failed: then the task's own failure is the cause, and this only follows.",
        how_seen="slurmstepd's line `CANCELLED AT` without a reason, in a log that has no earlier failure.",
        remedy="`sacct -j JOB --format=JobID,State,ExitCode,Comment` says which user cancelled it; look above "
        "for a failure.",
        source="https://slurm.schedmd.com/scancel.html",
    ),
    FindingDoc(
        id="launcher-failed",
        severity="error",
        title="the launcher or the scheduler failed",
        meaning="torchrun's rendezvous, mpirun, srun, Ray or Kubernetes could not start, place or keep the processes. "
        "Where a process shows an error of its own, that is the cause.",
        how_seen="The launcher's own words in a log.",
        remedy="Read the launcher's line; collect the log of each rank (torchrun --log-dir LOGS --redirects 3, srun "
        "--label), since a launcher repeats only that a process failed.",
        source="https://pytorch.org/docs/stable/elastic/errors.html",
    ),
    FindingDoc(
        id="node-failed",
        severity="error",
        title="a node failed",
        meaning="The scheduler found that a node does not answer any more, and ended the processes on it or the whole "
        "job.",
        how_seen="Slurm's `Node failure on`, Kubernetes' NodeNotReady, Ray's lost heartbeats, in a log.",
        remedy="Look at that node's kernel messages and management controller; exclude it until it is repaired.",
        source="https://slurm.schedmd.com/faq.html",
    ),
    FindingDoc(
        id="preempted",
        severity="error",
        title="the job lost its nodes to another one",
        meaning="A scheduler or a provider took the machines back: a job of higher priority, an eviction, a spot "
        "instance, a maintenance.",
        how_seen="`DUE TO PREEMPTION` of Slurm, `Preempted` or `Evicted` of Kubernetes, a provider's notice.",
        remedy="Save checkpoints often and let the job be requeued, or use machines that are not preempted.",
        source="https://slurm.schedmd.com/preempt.html",
    ),
    FindingDoc(
        id="requeued",
        severity="error",
        title="the job was put back into the queue",
        meaning="The scheduler ended the job to start it again later, after a preemption, a node's failure or a "
        "request.",
        how_seen="`DUE TO JOB REQUEUE` in the batch script's output.",
        remedy="Nothing, where it starts from its last checkpoint; otherwise submit it with --no-requeue.",
        source="https://slurm.schedmd.com/scontrol.html",
    ),
    FindingDoc(
        id="signal-from-outside",
        severity="error",
        title="a signal from outside ended the job",
        meaning="torchrun or a rank was asked to end: SIGHUP when a terminal closes, SIGTERM by a scheduler, a "
        "container's stop or a person, SIGINT by Ctrl-C. Where a process shows an error of its own, that is the cause.",
        how_seen="torchrun's `got signal` and `death signal`.",
        remedy="Start it in tmux or as a batch job (SIGHUP); look at the scheduler's log and at the other nodes' logs "
        "for that time (SIGTERM).",
        source="https://pytorch.org/docs/stable/elastic/run.html",
    ),
    FindingDoc(
        id="time-limit",
        severity="error",
        title="the job's time limit was reached",
        meaning="Slurm ended the job at its requested time limit. Later messages of its ranks are consequences. "
        "Whether the job was slow, hung or simply longer than that, the line does not say.",
        how_seen="slurmstepd's line `DUE TO TIME LIMIT`.",
        remedy="Ask for more time (--time), or save a checkpoint before the end (--signal=B:USR1@300) and requeue; "
        "compare the last step's time with the limit's to see whether it hung.",
        source="https://slurm.schedmd.com/sbatch.html",
    ),
)
#: The ids: what schedulers and launchers say of a job.
OUTSIDE = frozenset(entry.id for entry in ENTRIES)
