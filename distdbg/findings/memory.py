"""Findings about memory."""

from __future__ import annotations

from distdbg.model import FindingDoc

ENTRIES = (
    FindingDoc(
        id="fragmentation",
        severity="warning",
        title="GPU memory is held in pieces that no request fits into",
        meaning="torch's allocator reserves more and more for the same use: blocks that live long lie between holes, "
        "and tensors of changing shapes do not fit into them.",
        how_seen="Reserved memory rises over the steps of a snapshot or of a run at flat active memory, or stands far "
        "above it at the very peak. Never from one reading at a step's end, where activations were just "
        "freed.",
        remedy="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; pad shapes to a few sizes.",
        source="https://pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
    ),
    FindingDoc(
        id="gpu-memory-taken",
        severity="warning",
        title="a GPU's memory is taken before the job starts",
        meaning="Another job, a notebook or what a crashed job left behind holds memory there: the new job runs out "
        "of memory early, or shares the device's time.",
        how_seen="NVML's used memory and its list of processes, with the user and the command where /proc shows them.",
        remedy="Ask the owner, or end what was left behind: `nvidia-smi`, then kill the pid that is named.",
        source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
    ),
    FindingDoc(
        id="host-memory-growth",
        severity="warning",
        title="a rank's memory on the host grows with every step",
        meaning="The memory of the process itself (no files, nothing shared) rises from step to step, after the "
        "warm-up and beyond the end of an epoch. It ends when the machine or the control group has no more.",
        how_seen="The figure by step, in six parts after the first third: each part's lowest is above that of the "
        "part before, by about as much each time; or by epoch, after the first, where each of them adds "
        "about as much. A cache that fills, a start that ends and a saw's teeth are none. Within the first "
        "epoch nothing is said, unless the end is near: a dataset may be filling its cache. Nor where each "
        "step needs more than the last (longer sequences), or where what was asked for at the start is "
        "filled, and there is room for it. Loaders' workers are judged the same way, by their agent's looks "
        "every ten seconds.",
        remedy="Launch with --memory: it names the container that grows. Else look for lists and caches that live "
        "longer than a step, for losses that are kept with their graphs, and for C libraries.",
        source="https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory",
    ),
    FindingDoc(
        id="memory-leak",
        severity="warning",
        title="memory is kept, step after step",
        meaning="What one line allocates is kept, step after step: a list of tensors, a loss and its graph, state "
        "chained across batches, a cache without end.",
        how_seen="Bytes that each stack of a memory snapshot holds at the end of each step: after the warm-up they "
        "rise in every third of the trace. With --memory: containers of Python that have grown at each of "
        "the last four counts, with graphs in them, or 4 KiB a step beyond the end of an epoch, or with "
        "memory's end near; on CUDA, allocated bytes at the ends of steps. What is made once, or rises and "
        "falls, or is full, is none. It is of severity error where it held at least what a failed request "
        "was short of: it explains that cuda-oom.",
        remedy="Keep numbers, not tensors (`loss.item()`), detach what goes from batch to batch, bound the cache.",
        source="https://pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory",
    ),
    FindingDoc(
        id="peak-too-high",
        severity="info",
        title="one line, or one rank, makes the peak of GPU memory",
        meaning="Between its peaks the run needs much less: one line's short-lived tensors decide how large a GPU "
        "must be; or one rank needs more than the others, and all wait for it to fit.",
        how_seen="The trace of a memory snapshot as it would be without one stack; the peaks of ranks side by side, "
        "by their snapshots or, with --memory, by torch's own maximum (Max_MA) in their lines: a fifth above "
        "the middle one, of three or more. The stages of a pipeline differ by nature.",
        remedy="Do in parts what the line does at once (chunked loss, checkpointing), or spread the rank's extra work.",
        source="https://pytorch.org/blog/understanding-gpu-memory-1/",
    ),
    FindingDoc(
        id="reference-cycle",
        severity="warning",
        title="tensors are freed by the garbage collector only",
        meaning="An object that refers to itself, directly or through others, holds tensors: they stay when they "
        "are no longer needed, until Python's collector happens to run. Memory rises and falls, and may "
        "run out in between.",
        how_seen="With --memory: of the live tensors that were watched through weak references, eight or more went in "
        "the middle of a collection, in two counts or more. Reference counting frees between collections.",
        remedy="Let go of the back reference (weakref, or `del` at the step's end). gc.collect() hides it, and costs.",
        source="https://pytorch.org/blog/understanding-gpu-memory-2/",
    ),
    FindingDoc(
        id="untracked-gpu-memory",
        severity="warning",
        title="GPU memory that torch does not account for",
        meaning="What is in use of a device is far more than what torch has reserved of it, or the difference grows: "
        "NCCL's buffers (some 0.5 GiB a process group), CUDA contexts, libraries with allocators of their "
        "own, other processes on the same GPU.",
        how_seen="The driver's figure for the device minus torch's reserved bytes, every few seconds: a quarter of "
        "the device at each of the last looks, or a rise in each of six parts after the warm-up. NVML's "
        "list of processes names other users of the device.",
        remedy="See with nvidia-smi which processes use the device; make fewer process groups, or destroy those "
        "that are done; give each rank a device of its own before anything touches CUDA "
        "(torch.cuda.set_device).",
        source="https://github.com/NVIDIA/nccl/issues/964",
    ),
)
