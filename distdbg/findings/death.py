"""Findings about ranks and nodes that died."""

from __future__ import annotations

from distdbg.model import FindingDoc

ENTRIES = (
    FindingDoc(
        id="abort-at-exit",
        severity="warning",
        title="a rank aborted after its script had finished",
        meaning="The script ran to its end; afterwards, while the interpreter took its objects apart, native code "
        "aborted. A thread of gloo's does so on a busy machine (`terminate called without an active "
        "exception`): it frees the last collective when the interpreter is ending already. The training is "
        "complete, but the process has a bad exit code, and so has the job.",
        how_seen="The worker side saw the script's end before the signal; standard error holds the last words.",
        remedy="Before init_process_group(): import torch.distributed.nn.functional, whose functions otherwise keep "
        "the group for ever (DDP imports it). At the end: delete the DDP model and the optimizers, "
        "gc.collect(), then torch.distributed.destroy_process_group(), which now waits for gloo's threads.",
        source="https://github.com/pytorch/pytorch/issues/190489",
    ),
    FindingDoc(
        id="cuda-error",
        severity="error",
        title="CUDA reported an error",
        meaning="A kernel failed (an index out of range, a wrong memory access), or the driver does not fit. CUDA "
        "reports late: the Python line shown is where it was noticed.",
        how_seen="CUDA's words in the rank's exception or before its abort.",
        remedy="Run again with `--preset sync-crash`: the traceback then shows the call that failed.",
        source="https://pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution",
    ),
    FindingDoc(
        id="cuda-oom",
        severity="error",
        title="the GPU's memory ran out",
        meaning="An allocation on the GPU failed: weights, optimizer, activations and the allocator's reserve, or "
        "another process, fill it.",
        how_seen="torch's OutOfMemoryError, or CUDA's own error, in the rank's exception; or the event in a memory "
        "snapshot, with the segments as they were then. It is explained by a memory-leak where that holds "
        "more than the request was short of; it is fragmented only where holes are 40 MiB and a twentieth of "
        "the device or more.",
        remedy="Lower the batch size and accumulate, checkpoint activations, shard with FSDP; `distdbg memory "
        "analyze` shows what fills it.",
        source="https://pytorch.org/docs/stable/notes/cuda.html#memory-management",
    ),
    FindingDoc(
        id="gpu-fault",
        severity="error",
        title="a GPU is faulty",
        meaning="A device is off the bus, needs a reset, has memory errors that were not corrected, or a node shows "
        "fewer of them than its peers. A job on it fails, or waits for it.",
        how_seen="NVML on each node (state and ECC counters since the driver was loaded), Xid messages in the "
        "kernel's log since boot; Xids that NVML reports to each agent while the job runs.",
        remedy="Leave the node out; reset the GPU (nvidia-smi -r) or reboot, and tell the cluster's administrators.",
        source="https://docs.nvidia.com/deploy/xid-errors/index.html",
    ),
    FindingDoc(
        id="host-oom",
        severity="error",
        title="the node's memory ran out",
        meaning="The kernel ended a rank with SIGKILL because the machine, or the container's or job's limit, had no "
        "memory left; or an allocation was refused.",
        how_seen="A kernel message that names the process (certain), the control group's oom_kill counter that rose "
        "while the job ran, or Slurm's own message of its step (likely).",
        remedy="Ask for more memory, lower num_workers and prefetch_factor, keep large Python objects out of the "
        "dataset, load data and checkpoints memory-mapped or once a node.",
        source="https://docs.kernel.org/admin-guide/cgroup-v2.html",
    ),
    FindingDoc(
        id="launch-failed",
        severity="error",
        title="the job could not start",
        meaning="The ranks failed before their first step for a reason that lies in the start itself: the script has "
        "a syntax error or imports what is not there, does not accept one of its arguments or its configuration, a "
        "name is not resolved, a port is taken, a node did not come, or torch or the GPUs that were asked for are "
        "missing.",
        how_seen="The kind of the ranks' exceptions, where no step was made; torchrun's own last words, where no rank "
        "was started.",
        remedy="The finding says what to mend; `distdbg launch --dry-run` shows what would be started.",
        source="https://pytorch.org/docs/stable/elastic/run.html",
    ),
    FindingDoc(
        id="launcher-lost",
        severity="error",
        title="the launcher disappeared",
        meaning="The process `distdbg launch` was killed by a signal that cannot be handled, or its host went down. "
        "Its agents end their ranks then, with SIGTERM first. No exit code of the job exists. If no agent recorded "
        "it, this is only possible, and a warning: a run directory that takes no more writes looks the same.",
        how_seen="The run has no record of its end, and the launcher's process (pid, start time, boot) does not exist "
        "any more; or an agent recorded that its connection to the launcher was closed.",
        remedy="Look for its pid in the kernel log (`dmesg -T | grep -i kill`), for the end of a session or a "
        "container, and for a scheduler's limit on the host that it ran on. Start it in tmux or as a batch job, and "
        "resume from the last checkpoint.",
        source="https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
    FindingDoc(
        id="loader-worker-died",
        severity="error",
        title="a DataLoader worker died",
        meaning="A worker process of the DataLoader was killed or ended; the rank noticed and raised.",
        how_seen="The DataLoader's exception in the rank; the control group's count of memory kills, the kernel's "
        "messages of the workers that it names, and what they held when the agent last looked.",
        remedy="Run with num_workers=0 to see the error itself; for SIGKILL look at the node's memory and lower "
        "num_workers.",
        source="https://pytorch.org/docs/stable/data.html#multi-process-data-loading",
    ),
    FindingDoc(
        id="nccl-error",
        severity="error",
        title="NCCL reported an error",
        meaning="A collective failed or timed out. That another rank or the network went away is most often a "
        "consequence: then it follows the finding that explains it.",
        how_seen="NCCL's or the watchdog's words in the rank's exception, before its abort, or in its nccl.log.",
        remedy="Look at the rank that failed first; where none did, run again with `--preset network` and check the "
        "interfaces.",
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    FindingDoc(
        id="nic-fault",
        severity="error",
        title="a network card or its link failed",
        meaning="NCCL's InfiniBand or RoCE transport got an error from a card: the peer's port does not answer, or a "
        "port reported an event. Both ends of a broken link complain, so one report alone does not tell whose "
        "it is.",
        how_seen="`Got completion from peer …` and `async event` lines of the ranks' NCCL logs: the host that most of "
        "them have in common, as the one that reports or as the peer.",
        remedy="On the named node: `ibstat`, `ibv_devinfo` and `mlxlink -d HCA` for the port's state and error "
        "counters, dmesg for mlx5 messages; then its cable and switch port. Leave the node out meanwhile.",
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#networking-issues",
    ),
    FindingDoc(
        id="node-lost",
        severity="error",
        title="a node was lost",
        meaning="The process that ran a node's ranks (torchrun, or distdbg's agent beside it) was killed or went "
        "silent without a last word, or the node itself went away.",
        how_seen="torchrun's exit status as its agent read it; an agent's record that ends in the middle although the "
        "launcher saw the job end; or, on other hosts, an agent that says nothing for 12 s, whose host does "
        "not answer a connection either; or Slurm's word that the node has failed (`srun: error: Node "
        "failure on …`). Where the node itself lived on, it is `network-cut`.",
        remedy="Look at the node: its memory, its scheduler's log, `last -x` for reboots. Leave it out and resume "
        "from the last checkpoint.",
        source="https://github.com/pytorch/pytorch/issues/88251",
    ),
    FindingDoc(
        id="rank-exception",
        severity="error",
        title="a rank raised an exception",
        meaning="A rank ended with an exception that its script did not catch, or with an exit code other than 0. Of "
        "several, the one that began it comes first: one that is not about communication, before one that was "
        "still being handled when the peers died (where only connections were lost, that one began it); lost "
        "connections are consequences.",
        how_seen="The worker side reports the exception at once and, when a sibling dies, what each rank was "
        "handling; without it, the last traceback on standard error, then torchelastic's error file.",
        remedy="Mend the line that the finding names. `distdbg findings` lists the kinds that are recognised by their "
        "message.",
        source="https://github.com/pytorch/pytorch/issues/113546",
    ),
    FindingDoc(
        id="rank-exited-early",
        severity="error",
        title="a rank left in the middle with exit code 0",
        meaning="A rank ended well while other ranks were in a collective that needed it; they failed with lost "
        "connections. torchrun blames one of those, because it takes exit code 0 for success.",
        how_seen="A rank that exited 0 before the first communication error of the others, where no rank has an error "
        "of its own, and that is a member of the process group which failed, if that is known. Ranks that "
        "merely finish at different times in a job that succeeds are not meant.",
        remedy="Look for sys.exit, return or break under a condition that differs by rank, and for datasets of "
        "different lengths (then drop_last, a DistributedSampler or torch.distributed.algorithms.join.Join).",
        source="https://pytorch.org/docs/stable/notes/ddp.html",
    ),
    FindingDoc(
        id="rank-killed",
        severity="error",
        title="a signal ended a rank",
        meaning="The rank did not end by itself: SIGKILL and SIGTERM come from outside (a person, a scheduler, the "
        "kernel), SIGSEGV, SIGABRT, SIGBUS, SIGILL and SIGFPE from an error in native code within it. Ranks "
        "that torchrun or distdbg ended after a failure are not meant.",
        how_seen="The exit status that the agent reads from the kernel when the process ends; faulthandler's stack on "
        "standard error for crashes.",
        remedy="For SIGKILL look at memory, at the scheduler's log and at who shares the node; for a crash at the "
        "Python line of faulthandler's stack and the native library that it calls.",
        source="https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
    FindingDoc(
        id="restart-blocked",
        severity="warning",
        title="torchrun could not start the ranks again, because another node had finished",
        meaning="With --max-restarts torchrun starts the ranks of all nodes again after a failure. If the ranks of a "
        "node have already ended with exit code 0, its torchrun takes no part in a restart: both wait for each other, "
        "without any message, until torchrun's exit barrier times out (300 s).",
        how_seen="All ranks of a node ended with exit code 0, a rank of another node failed, that node's torchrun may "
        "make restarts, and it went on for more than 10 s after its last rank had ended, without an attempt.",
        remedy="Let the ranks wait for each other before they end (`torch.distributed.barrier()` before "
        "`destroy_process_group()`), so that no node finishes before the others.",
        source="https://docs.pytorch.org/docs/stable/elastic/agent.html",
    ),
    FindingDoc(
        id="restarted",
        severity="warning",
        title="the ranks were started more than once",
        meaning="An earlier attempt failed and --max-restarts started the ranks again. The verdict is about the "
        "newest attempt; the earlier ones have folders of their own.",
        how_seen="More than one folder under attempts/, with failed ranks in the earlier ones.",
        remedy="`distdbg report RUN --attempt 1` gives the verdict on an earlier attempt.",
        source="https://pytorch.org/docs/stable/elastic/run.html",
    ),
    FindingDoc(
        id="shm-exhausted",
        severity="error",
        title="shared memory ran out",
        meaning="DataLoader workers pass batches through /dev/shm, and it is full.",
        how_seen="The DataLoader's or the allocator's words in the rank's exception or on its standard error.",
        remedy="Give the container more (--shm-size, --ipc=host), lower num_workers or prefetch_factor.",
        source="https://github.com/pytorch/pytorch/issues/5040",
    ),
    FindingDoc(
        id="watchdog-stuck",
        severity="error",
        title="the watchdog thread of ProcessGroupNCCL got stuck",
        meaning="torch's heartbeat monitor ends a process whose watchdog thread makes no progress for some minutes. No "
        "collective timed out: a call of CUDA or NCCL in this process did not return, or another thread held the GIL "
        "in such a call.",
        how_seen="The heartbeat monitor's words in the rank's log. If a collective of the same rank timed out before, "
        "the watchdog got stuck while it ended NCCL, and only the timeout is reported.",
        remedy="Take the stacks of all threads of that process the next time (`distdbg hang-dump`, or `gdb -p PID`), "
        "and look for CUDA errors and Xid messages of its GPU. Raise TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC only if the call "
        "is known to return later.",
        source="https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp",
    ),
)
