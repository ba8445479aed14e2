"""Findings about jobs that hang."""

from __future__ import annotations

from distdbg.model import FindingDoc, LintDoc

ENTRIES = (
    FindingDoc(
        id="collective-mismatch",
        severity="error",
        title="ranks of a group are in different collectives",
        meaning="The members of a process group must begin the same operations in the same order. Some are in one and "
        "some in another: an operation was left out, done twice, or done in another order or group by the "
        "ranks that are named.",
        how_seen="The flight recorders give each operation's number in its group. At the earliest number where they "
        "do not agree, the smaller side is named; where both are equally large, both are, and it is said.",
        remedy="Compare the two lines that are named, and what the ranks did before: a `continue`, a `break`, an "
        "`except` or a condition that is true on some ranks only. Sum a flag over all ranks before leaving "
        "something out.",
        source="https://pytorch.org/docs/stable/distributed.html",
    ),
    FindingDoc(
        id="collective-not-joined",
        severity="error",
        title="ranks never entered a collective",
        meaning="Some ranks wait in an operation that others have not begun. Where those ranks are instead is not "
        "known: nothing could be collected of them, or they have ended. Where it is known, another "
        "finding is given.",
        how_seen="The flight recorders of the waiting ranks name the missing ones, and the dump says why there is "
        "no stack of them. Where the recorders name no rank, NCCL's RAS subsystem is asked, which counts "
        "the operations that each rank has launched. After a monitored_barrier whose time was up, torch's error "
        "names them.",
        remedy="Look at the ranks that are named: their output, their node, and whether py-spy may look at them "
        "(`distdbg hang-dump` says what is missing).",
        source="https://pytorch.org/docs/stable/distributed.html",
    ),
    FindingDoc(
        id="collective-shape-mismatch",
        severity="error",
        title="ranks give one collective different sizes or types",
        meaning="Most collectives want the same number of elements of the same type from every rank. With gloo a rank "
        "that gets more than it expects aborts, which need not be the one that is wrong; NCCL hangs or mixes "
        "up memory.",
        how_seen="The flight recorders, and the calls that each rank records, give sizes and types of each operation; "
        "the smaller side is named, and both where none is smaller.",
        remedy="Print the shapes before the line that is named. Drop or pad the last batch, and check that every rank "
        "has loaded the same checkpoint and configuration.",
        source="https://pytorch.org/docs/stable/distributed.html",
    ),
    FindingDoc(
        id="compile-asymmetry",
        severity="error",
        title="a rank compiles while the others wait for it",
        meaning="torch.compile or Triton compiles on some ranks at a moment at which the others do not: their input "
        "has another shape, type or flag, they take another branch, or their cache is cold. The others wait in a "
        "collective. If the compilation takes longer than the timeout of the process group, the job ends.",
        how_seen="The stack of the rank that the others wait for is inside of torch.compile (its conversion of a "
        "frame, or a backend's compiler) or of Triton's compiler.",
        remedy="Give all ranks inputs of the same shapes and types (pad or drop the last batch, mark varying "
        "dimensions with torch._dynamo.mark_dynamic), so that they compile at the same step; TORCH_LOGS=recompiles "
        "shows why one compiles again. Compile all shapes before the training, keep the cache "
        "(TORCHINDUCTOR_CACHE_DIR) on a disk that outlives the job, or raise the timeout of init_process_group above "
        "the longest compilation.",
        source="https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",
    ),
    FindingDoc(
        id="extension-build",
        severity="error",
        title="ranks build a C++ extension, or wait for its lock file",
        meaning="torch.utils.cpp_extension builds an extension on one rank, and the others wait until that rank "
        "removes the lock file in the build folder. A job that is killed while it builds leaves the file behind: then "
        "every later job waits for ever.",
        how_seen="The stacks show who builds and who waits in FileBaton, /proc the compilers and their CPU time, and "
        "which process has the lock file open. Its owner keeps it open, so a file that no process has open has no "
        "owner; one on another host is not seen.",
        remedy="Where compilers are busy, wait. Remove a lock file that nobody holds, after a look for jobs on other "
        "hosts that share the folder. TORCH_EXTENSIONS_DIR gives each job or host a folder of its own; build once "
        "before the job, and the ranks find it built.",
        source="https://pytorch.org/docs/stable/cpp_extension.html#torch.utils.cpp_extension.load",
    ),
    FindingDoc(
        id="group-deadlock",
        severity="error",
        title="ranks wait for one another in a circle",
        meaning="Each rank of the circle has begun an operation that needs another rank of the circle, and none "
        "can continue: groups are used in different orders, all ranks send before they receive, a receive waits "
        "for a sender that waits for the receiver elsewhere, a send and its receive have different tags, or a rank "
        "is in a collective while it holds a file lock that another rank waits for.",
        how_seen="The flight recorders and the calls of send and recv give each rank's open operation, and the "
        "ranks that have not entered it; /proc/locks gives the process that holds the file lock that a rank waits for. "
        "Following these from rank to rank leads back to the start, and every rank of the circle "
        "waits.",
        remedy="Use the groups in one order on all ranks, and one tag for a send and its receive. Release a file lock "
        "before the next collective, also one that a forked child has inherited. For exchanges "
        "between neighbours use batch_isend_irecv, or let even ranks send first and odd ranks receive first.",
        source="https://pytorch.org/docs/stable/distributed.html#torch.distributed.batch_isend_irecv",
    ),
    FindingDoc(
        id="network-cut",
        severity="error",
        title="the network between nodes is cut, or a collective that all have begun does not end",
        meaning="Two nodes no longer reach each other, although both live. Or every member of the group is in the "
        "same operation, with the same sizes, and it does not end: the hosts have done their part, and what "
        "is left is the network between them, or the devices.",
        how_seen="The launcher and a node's agent got no message of each other for 12 s, a connection found no answer "
        "either way, and both wrote it down. Or the flight recorders show the operation begun and unfinished "
        "on every rank that waits in it, and no member that has not come.",
        remedy="Look at the network between the nodes (link errors, a firewall, the interface in NCCL_SOCKET_IFNAME "
        "or GLOO_SOCKET_IFNAME) and at the GPUs (Xid messages in the kernel's log). No rank is named, since "
        "none is known.",
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    FindingDoc(
        id="process-stopped",
        severity="error",
        title="a rank's process is stopped",
        meaning="The kernel has stopped the process (state T): SIGSTOP, Ctrl-Z, a debugger that is attached, a "
        "scheduler that suspends jobs. It stays stopped until it gets SIGCONT.",
        how_seen="The state in /proc is T or t in both looks.",
        remedy="`kill -CONT PID` resumes it. Find out what stopped it: a debugger (TracerPid in /proc/PID/status), "
        "`scontrol suspend`, a shell's job control.",
        source="https://man7.org/linux/man-pages/man7/signal.7.html",
    ),
    FindingDoc(
        id="rank-conditional-collective",
        severity="error",
        title="a collective that only some ranks enter",
        meaning="A barrier, a save of sharded state, an evaluation through the DDP wrapper or a new_group is "
        "below something like `if rank == 0`. The ranks that enter it wait for those that do not.",
        how_seen="Ranks are in different collectives. In the script's source, a line of one side's stack is in a "
        "branch of an `if` about the rank, or behind a branch that returns, and the other side's is not. "
        "The other branch does not make the same call as often.",
        remedy="Move the collective out of the `if`: every rank calls it, and only rank 0 writes or prints. Evaluate "
        "with model.module on one rank, gather sharded state on all ranks, call new_group on all ranks.",
        source="https://pytorch.org/docs/stable/distributed.html#torch.distributed.new_group",
        lint=LintDoc(
            how_seen="A collective of all ranks is in or behind an `if` about the rank, directly or in a function that "
            "is called there, and the other ranks make no matching call. An `if` about a value that differs "
            "from rank to rank counts as well: one that only some ranks assign, count up or return. Of "
            "severity info are calls that wait for other ranks in some jobs only: the forward pass of a DDP "
            "model, which broadcasts the model's buffers, and Accelerate's save_state and get_state_dict, "
            "which wait for all ranks with FSDP and DeepSpeed.",
            remedy="Move the collective out of the `if`: every rank calls it, and only rank 0 writes or prints.",
        ),
    ),
    FindingDoc(
        id="start-stalled",
        severity="warning",
        title="no rank has begun to train, or a job stands still early",
        meaning="For a minute no rank has made a step or a call of torch.distributed, and some ranks do nothing: an "
        "import, a download, a compilation, a lock file of an earlier run, a rendezvous, or ranks that wait for one of "
        "these. The job has made fewer than three steps and eight calls: it is too young for its pace to be known, so "
        "that nobody can tell a long pause from a hang.",
        how_seen="The heartbeat pages, CPU time and bytes of all ranks, their children included: for a minute a rank "
        "made no progress and did nothing. Then the stacks show where each rank is. The job is not ended, and the "
        "finding is dropped once the ranks go on.",
        remedy="Look at the lines that are named. `--hang-timeout SECONDS` says after how long without any work a "
        "start is a hang.",
        source="https://pytorch.org/docs/stable/distributed.html#initialization",
    ),
    FindingDoc(
        id="stuck-in-dataloader",
        severity="error",
        title="a rank waits for its next batch",
        meaning="next() of a DataLoader does not return: the data set or a worker of the loader waits for a file, "
        "a lock or a server, or a worker has inherited a lock that no thread will release.",
        how_seen="DataLoader's frames are on the rank's stack; the stacks of its workers show which line of the "
        "data set they are in.",
        remedy="Look at the data set's line. Locks that exist before the workers are forked are copied as they are: "
        "make them in worker_init_fn, or use the spawn start method. DataLoader's own timeout= turns such a "
        "wait into an error.",
        source="https://pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader",
    ),
    FindingDoc(
        id="stuck-in-native",
        severity="error",
        title="a rank is inside native code that does not return",
        meaning="A call into a C library blocks or computes without end. Where it keeps the GIL, no other Python "
        "thread of that process can run either: signal handlers, loggers and watchdogs written in Python are "
        "silent.",
        how_seen="The stack ends in a call that is no communication; the process waits in a system call that Python "
        "itself does not use here, or burns CPU at one place in both looks. In a debugger's stacks of some ranks also "
        "a wait for the device, if no rank that was read does something else; if the rank of the stacks is not known, "
        "this is a warning, since one stack does not show for how long it waits.",
        remedy="`distdbg hang-dump --native` shows the C frames. Regular expressions that backtrack, tokenizers, "
        "image codecs and locks taken before a fork are the usual ones.",
        source="https://docs.python.org/3/c-api/init.html#thread-state-and-the-global-interpreter-lock",
    ),
    FindingDoc(
        id="stuck-in-python",
        severity="error",
        title="a rank is held up in its own Python code",
        meaning="A rank sleeps, polls or computes in a line of the script or of a library, while its peers wait "
        "for it in a collective. The peers are healthy, although a later timeout names one of them.",
        how_seen="The rank's stack ends in Python code and not in a communication; its process sleeps, or uses CPU "
        "between two looks; and the flight recorders show that it never entered the operation that its "
        "peers wait in.",
        remedy="Look at the line that is named: it waits for something that does not happen. Limit the number of "
        "retries, and let every rank learn (by a flag that is all-reduced) when one gives up.",
        source="https://github.com/pytorch/pytorch/issues/122694",
    ),
    FindingDoc(
        id="stuck-on-device",
        severity="error",
        title="the device of a rank does not finish what its host has enqueued",
        meaning="Every host has enqueued the collective. On one rank the device does not start it, because a kernel "
        "before it never ends, or does not complete it, although the other members have. Or no collective is open, and "
        "the host waits for a kernel or a copy of its own device. The host is not at fault, wherever it waits.",
        how_seen="ProcessGroupNCCL's flight recorder: all members of the group have the entry with the same sequence "
        "number, operation and sizes. Either other members have completed it and this rank has not, or the others' "
        "devices have started it and this rank's has not. Start times are only recorded with `--preset hang`. If no "
        "collective of the rank is open: its stack ends in a synchronisation of CUDA (`cudaDeviceSynchronize`, "
        "`.item()`), in Python or in C, at every look.",
        remedy="Run the operations before that line on one GPU with CUDA_LAUNCH_BLOCKING=1 and compute-sanitizer; "
        "look for Xid errors of that GPU, its NVLink and its NIC (`distdbg preflight`), and leave the GPU out to see "
        "whether the hang moves with it.",
        source="https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html",
    ),
    FindingDoc(
        id="stuck-on-io",
        severity="error",
        title="a rank waits for a file, a socket, a lock file or a child process",
        meaning="The rank is in a system call that waits for something outside: a server that does not answer, a "
        "pipe without a reader, a lock file that another process holds, a command that does not end, a "
        "disk that hangs (state D).",
        how_seen="/proc shows the system call and its object (the file, the socket's other end, the process that "
        "holds the lock); the stack shows the line.",
        remedy="Look at what is named: is the server up, the file system there, the other process alive? Give network "
        "calls a timeout, and do such work before the ranks need one another.",
        source="https://man7.org/linux/man-pages/man5/proc.5.html",
    ),
    FindingDoc(
        id="stuck-on-lock",
        severity="error",
        title="a rank waits for a lock or a thread of its own process",
        meaning="The main thread waits for a lock, a condition, a queue, a future or the end of a thread, in "
        "vain: two locks in opposite orders, a thread that has died, a pool that waits for itself, a "
        "notify that came too early.",
        how_seen="The stack ends in threading, queue or concurrent.futures, or the C frames show that Python waits "
        "for a lock; the process sleeps in a futex and nothing of it moves between two looks.",
        remedy="Look for the thread that should release it: the dump has all threads' stacks. Take locks in one "
        "order, give get() and join() a timeout, and let a thread report when it dies.",
        source="https://docs.python.org/3/library/threading.html",
    ),
    FindingDoc(
        id="uneven-inputs",
        severity="error",
        title="some ranks have fewer batches than others",
        meaning="A rank whose loader has ended leaves the loop, while the others begin a step without it.",
        how_seen="Ranks are in different collectives. All ranks of one side have reached the end of their loader "
        "more often than all of the other side, are in no forward or backward, and have not trained "
        "longer.",
        remedy="Give every rank the same number of batches: DistributedSampler (which pads) or drop_last, and for "
        "iterable data sets a fixed number of steps. torch.distributed.algorithms.join.Join lets ranks with "
        "fewer batches shadow the others.",
        source="https://pytorch.org/tutorials/advanced/generic_join.html",
    ),
    FindingDoc(
        id="unused-parameters",
        severity="error",
        title="a rank did not use parameters that the others did",
        meaning="DDP reduces gradients in buckets, each once all its gradients are there. A rank whose forward left "
        "out a branch never has them: the others wait in backward, while it has gone on.",
        how_seen="Ranks wait in DDP's reduction with the same number of backwards as the named one, which is "
        "elsewhere and says that parameters of its model have no gradient.",
        remedy="Use the same parameters on every rank (add 0 times the unused branch's output), or give "
        "DistributedDataParallel find_unused_parameters=True.",
        source="https://pytorch.org/docs/stable/notes/ddp.html",
    ),
)
