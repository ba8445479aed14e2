"""Findings about nodes, before and during a job."""

from __future__ import annotations

from distdbg.model import FindingDoc, LintDoc

ENTRIES = (
    FindingDoc(
        id="all-reduce-failed",
        severity="error",
        title="an all-reduce over the nodes fails",
        meaning="Single connections work, and torch's own collective does not: peers get a wrong address or "
        "interface, a firewall lets some ports through alone, or a device or a network card corrupts what it "
        "sends.",
        how_seen="`distdbg preflight` runs a small all-reduce with one rank a node, over gloo or NCCL, and checks the "
        "sum on each.",
        remedy="Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the interface that joins the nodes; open all ports "
        "between them; read the message that is quoted.",
        source="https://docs.pytorch.org/docs/stable/distributed.html#choosing-the-network-interface-to-use",
    ),
    FindingDoc(
        id="clock-skew",
        severity="warning",
        title="the nodes' clocks differ",
        meaning="Logs of different nodes cannot be put in order by their times, files look newer than they are, and "
        "from minutes on tickets and certificates are refused (munge, and Slurm with it, after five). torchrun's c10d "
        "rendezvous takes a node whose clock is 15 s behind for dead, and starts without it.",
        how_seen="In a preflight, sixteen round trips between the first node and each other: the difference of the "
        "clocks, right to half of the fastest one. In a run, the times of the agents' answers to the launcher's pings: "
        "the difference is at least what the fastest round trip leaves. It is reported from half a second on.",
        remedy="Look at chrony or ntpd on the node: `timedatectl`, `chronyc tracking`.",
        source="https://www.rfc-editor.org/rfc/rfc5905",
    ),
    FindingDoc(
        id="disk-low",
        severity="error",
        title="a disk is full or nearly so",
        meaning="Logs, checkpoints, loader workers (/dev/shm) or compiled kernels (temporary files) will find no "
        "room: the job dies when it first writes, often hours later, or /dev/shm kills it with a bus error.",
        how_seen="Bytes and inodes that are left for this user (statvfs), and whether the folder can be written, on "
        "each node.",
        remedy="Make room, or put the runs elsewhere; in a container give /dev/shm more (docker's --shm-size, a "
        "memory emptyDir under Kubernetes).",
        source="https://github.com/pytorch/pytorch/issues/5040",
    ),
    FindingDoc(
        id="duplicate-node-rank",
        severity="error",
        title="two nodes are one",
        meaning="Two names lead to one machine, or two nodes were given the same node rank. Of two torchruns with one "
        "rank one ends with EADDRINUSE and the other waits in silence.",
        how_seen="Host name, boot id and network namespace of each node; PET_NODE_RANK, NODE_RANK and GROUP_RANK in "
        "the environment that a job would inherit there.",
        remedy="Name each machine once, and give each node a rank of its own.",
        source="https://docs.pytorch.org/docs/stable/elastic/run.html",
    ),
    FindingDoc(
        id="folder-not-shared",
        severity="warning",
        title="the nodes do not see one folder",
        meaning="Each node would write its logs and its part of a checkpoint where no other node sees it.",
        how_seen="A small file that was made in the folder is looked for on each node.",
        remedy="Start from a folder on a file system that all nodes mount.",
        source="https://docs.pytorch.org/docs/stable/distributed.checkpoint.html",
    ),
    FindingDoc(
        id="gpu-shared-by-ranks",
        severity="warning",
        title="several ranks use one GPU",
        meaning="Ranks that share a GPU share its memory and its time, and NCCL refuses two ranks on one device. Or "
        "ranks have GPUs of their own, and a context (some 0.5 GB) on another's beside: they touched CUDA "
        "before they chose their device, or loaded a checkpoint to the device that it was saved from.",
        how_seen="NVML's list of each device's processes, at each of the last 3 looks, which are ten seconds apart. "
        "Devices with MIG instances are left out, and so are containers in which NVML shows no process.",
        remedy="Before anything else: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])); load checkpoints with "
        "map_location='cpu' or the rank's own device.",
        source="https://docs.pytorch.org/docs/stable/elastic/run.html#important-notices",
        lint=LintDoc(
            how_seen="A script that starts a process group calls torch.cuda.set_device, or gives DDP its device_ids, "
            "with a number that is written down, or moves the model that DDP wraps to cuda:0, and nothing in "
            "it sets what a rank can see.",
            remedy="Use the local rank: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])).",
        ),
    ),
    FindingDoc(
        id="interface-wrong",
        severity="error",
        title="a network interface is not the configured one",
        meaning="GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME fits no interface that is up on a node: the ranks there "
        "fail at their start. Where the interfaces differ in MTU, large messages may get lost on the way.",
        how_seen="The interfaces of each node, as the kernel lists them, against the variables. gloo takes whole "
        "names (several with commas, no ^ and no =), NCCL beginnings of names (^ leaves out, = asks for the "
        "whole name).",
        remedy="Set the variable to an interface of `ip -br addr` that every node has, or leave it out.",
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ),
    FindingDoc(
        id="limits-low",
        severity="warning",
        title="a limit is too low for a training job",
        meaning="InfiniBand registers memory that must be locked: below a low `ulimit -l` NCCL fails at its first "
        "collective. Few open files or processes end a job with many loader workers.",
        how_seen="The limits that a job would inherit on each node (getrlimit), and whether there are RDMA devices.",
        remedy="Raise it where the job is started: /etc/security/limits.conf, Slurm's PropagateResourceLimits, "
        "docker's --ulimit.",
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    FindingDoc(
        id="model-shrunk",
        severity="warning",
        title="the model was made smaller for this run",
        meaning="--keep-layers or --skip-attention changed what was computed. Losses, throughput and checkpoints of "
        "this run are not those of the model. Where they found nothing to shorten or to skip, the run was "
        "whole.",
        how_seen="Each rank reports at its first optimizer step which layers it kept and whose attention it left out.",
        remedy="Use such a run to reproduce a hang, a crash or a memory figure; do not keep its checkpoints.",
        source="https://huggingface.co/docs/transformers/attention_interface",
    ),
    FindingDoc(
        id="ptrace-denied",
        severity="warning",
        title="a rank that hangs could not be looked into",
        meaning="Stacks of a rank that is stuck in native code are read from outside, by py-spy, with what ptrace "
        "needs. Here the kernel or the container forbids it: of a hang less would be known.",
        how_seen="A test whether a child process may be read; the reason of a refusal is found in Yama, the "
        "capabilities and the user.",
        remedy="Run containers with --cap-add SYS_PTRACE; elsewhere sysctl kernel.yama.ptrace_scope=1 or 0.",
        source="https://docs.kernel.org/admin-guide/LSM/Yama.html",
    ),
    FindingDoc(
        id="unreachable",
        severity="error",
        title="a node cannot be reached",
        meaning="A node gave no answer, or a name or a port does not lead from one node to another. A job would wait "
        "for it: for 60 to 115 s with plain torchrun, which then does not name the missing node.",
        how_seen="A probe on every node: the first node listens on the port, every other connects to it by its name, "
        "and it connects back to every other. Each answer contains the name of its host.",
        remedy="Look at the name in /etc/hosts and DNS on the node that is named, at the firewall between the nodes, "
        "and at the node itself.",
        source="https://github.com/pytorch/pytorch/issues/73656",
    ),
    FindingDoc(
        id="versions-differ",
        severity="warning",
        title="the ranks or the nodes run different versions",
        meaning="One rank computes with another torch, NumPy or script than its peers: a node has an environment or a "
        "checkout of its own. Collectives may mismatch, numbers differ, checkpoints may not load.",
        how_seen="Each rank reports after its first step which versions it has imported, and the checksum of its "
        "script. `distdbg preflight` compares the nodes: Python, torch, CUDA, NCCL, the driver, libraries, "
        "the commit, and the variables that steer torch and NCCL; names of interfaces and paths may differ. "
        "Another Python, torch or NCCL is an error.",
        remedy="Give all nodes one environment: the same container or a shared file system, and the same checkout.",
        source="https://github.com/pytorch/pytorch/issues/18313",
    ),
)
