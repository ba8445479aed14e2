"""Findings about slow steps."""

from distdbg.model import FindingDoc, LintDoc

ENTRIES = (
    FindingDoc(
        id="alloc-in-loop",
        severity="warning",
        title="each step allocates what could have been kept",
        meaning="After the first steps torch's allocator has what it needs: a cudaMalloc or cudaFree in a later one "
        "waits for the device. On a CPU a large tensor of zeros, ones or numbers in a row that is made in "
        "each step is new memory each time, page by page.",
        how_seen="In a profile, calls of cudaMalloc, cudaFree, cudaHostAlloc in most of the steps, while no kernel "
        "ran; without a GPU, torch.zeros, ones, full, eye and arange of one size by the same line in most of "
        "the steps. Below 5 % of a step nothing is said.",
        remedy="Make it once, before the loop, and reuse it (`zero_()`, register_buffer); on a GPU look with `distdbg "
        "memory analyze` for what fills it, and take torch.cuda.empty_cache() out of the loop.",
        source="https://pytorch.org/docs/stable/notes/cuda.html#cuda-memory-management",
    ),
    FindingDoc(
        id="attention-not-fused",
        severity="warning",
        title="attention runs on the math path where a fused kernel would do",
        meaning="The math path writes the whole matrix of scores to memory, and reads it back for the softmax: more "
        "time, and memory that grows with the square of the sequence.",
        how_seen="In a profile, `_scaled_dot_product_attention_math`, where the shapes, types and the dropout that "
        "were recorded (record_shapes=True) fit a fused kernel; only its forward is counted. Without shapes "
        "it is a possibility. Where no fused kernel would take these inputs, nothing is said.",
        remedy="Take out sdpa_kernel(SDPBackend.MATH) or enable_flash_sdp(False); run in bfloat16 on a GPU; for a "
        "causal mask say is_causal=True instead of attn_mask.",
        source="https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
    ),
    FindingDoc(
        id="buffers-broadcast",
        severity="warning",
        title="DDP broadcasts large buffers in each forward",
        meaning="Before each forward DDP sends all buffers of rank 0 to the others, so that statistics of batch norms "
        "stay the same. Tables, masks and positions that are registered as buffers go along, though they "
        "never change, and the forward waits for them.",
        how_seen="In a profile, DDP's `_sync_buffers` in most of the steps, with 250,000 numbers or more, where it is "
        "5 % of a step on every rank that was profiled: on one rank alone it may be the wait for another.",
        remedy="DistributedDataParallel(..., broadcast_buffers=False) where buffers are the same on all ranks; else "
        "keep what never changes out of the buffers (a plain attribute on the device), and use SyncBatchNorm.",
        source="https://pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    FindingDoc(
        id="causal-mask-given",
        severity="warning",
        title="attention gets an explicit causal mask",
        meaning="With is_causal=True a fused kernel leaves out the half of the scores that is masked, and reads no "
        "mask. With a mask as a tensor it computes all of them; on a GPU flash attention then takes none at "
        "all.",
        how_seen="In a profile, scaled_dot_product_attention with a square mask for all of the batch, where the "
        "script's own source shows that this mask is torch.ones(...).tril(), triu of -inf above the "
        "diagonal, or generate_square_subsequent_mask, and nothing else. Only its forward is counted; below "
        "5 % nothing is said.",
        remedy="Take attn_mask away, and say is_causal=True.",
        source="https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
    ),
    FindingDoc(
        id="data-parallel",
        severity="warning",
        title="DataParallel is used, one process for several GPUs",
        meaning="DataParallel copies the model to each GPU in each forward, and drives all of them from one Python "
        "thread. Between ranks it does nothing: each trains a model of its own, on its own share of the data.",
        how_seen="In a profile, DataParallel's own forward in most of the steps, by the line that calls the model.",
        remedy="Wrap the model in DistributedDataParallel(model, device_ids=[local_rank]) instead, with one process a "
        "GPU.",
        source="https://pytorch.org/tutorials/intermediate/ddp_tutorial.html#comparison-between-dataparallel-and-distributeddataparallel",
    ),
    FindingDoc(
        id="data-starved",
        severity="warning",
        title="steps wait for their data",
        meaning="The loader does not have the next batch when the step asks for it: all that the step computes with "
        "waits for so long.",
        how_seen="In a profile, the time in the loader's next batch: on a GPU only as far as no kernel ran meanwhile. "
        "Below 10 % of a step, or 1 ms, nothing is said; nor of a single step, which may be a loader's "
        "first.",
        remedy="More num_workers (some per GPU, as the cores allow), persistent_workers=True, pin_memory=True; do "
        "costly work once, and store it; look at the line that is named.",
        source="https://pytorch.org/docs/stable/data.html#single-and-multi-process-data-loading",
    ),
    FindingDoc(
        id="gpu-throttled",
        severity="warning",
        title="a GPU is throttled",
        meaning="The device has lowered its clocks for heat, a power brake or a hardware fault. Every collective "
        "waits for the slowest rank.",
        how_seen="NVML's clocks event reasons: in preflight, and while a job runs at a quarter of the looks, which "
        "are ten seconds apart. A power cap is left out: it is where a busy GPU belongs.",
        remedy="Look at the node's cooling and power supply; leave it out until it has recovered.",
        source="https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",
    ),
    FindingDoc(
        id="graph-break",
        severity="warning",
        title="torch.compile breaks its graph",
        meaning="What is compiled ends at this line, Python runs it, and another graph begins behind it: nothing is "
        "fused across it, and each part is entered through Python. In a hot function this costs what "
        "compiling was to gain.",
        how_seen="With `--watch compile` (or `distdbg compile-report`) a rank listens to torch's structured trace, "
        "which names the line and the reason each time that it compiles.",
        remedy="Move what is named out of the compiled function (prints, .item(), branches on a tensor's values, "
        "calls into C); torch.compile(fullgraph=True) makes each break an error.",
        source="https://docs.pytorch.org/docs/stable/torch.compiler_faq.html#graph-breaks",
    ),
    FindingDoc(
        id="loader-restarts",
        severity="warning",
        title="a loader's workers are started anew in each epoch",
        meaning="Without persistent_workers a loader ends its workers with its last batch, and starts others for the "
        "next pass: each of them imports and copies what the data set needs, and nothing is fetched ahead "
        "meanwhile.",
        how_seen="In a profile, a loader that starts workers at least twice in it, and what their end and their "
        "beginning take of all its steps; what the first batch then waits for comes on top. Below 5 % "
        "nothing is said.",
        remedy="DataLoader(..., persistent_workers=True).",
        source="https://pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader",
    ),
    FindingDoc(
        id="non-contiguous-hot",
        severity="warning",
        title="tensors are copied in each step only to be laid out otherwise",
        meaning="A transposed or permuted tensor is a view; what needs it contiguous copies all of it, each time anew.",
        how_seen="In a profile, `contiguous` and the copies of `reshape`, by line. An attention layer needs one or "
        "two of them: below 10 % of a step nothing is said.",
        remedy="Copy once, before the loop; store it in the order in which it is read; choose an operator that takes "
        "the view (einsum, matmul, channels_last).",
        source="https://pytorch.org/docs/stable/tensor_view.html",
    ),
    FindingDoc(
        id="recompile",
        severity="warning",
        title="torch.compile compiles a function again and again",
        meaning="A graph holds for what was seen when it was made: shapes, values of Python numbers, dtypes, modes. "
        "Where such a guard fails, the function is compiled anew, which takes seconds to minutes; after a "
        "limit (8) torch gives up and runs it uncompiled. Once is normal: with the second shape torch makes "
        "it dynamic.",
        how_seen="With `--watch compile` (or `distdbg compile-report`) a rank listens to torch's structured trace, "
        "which names the guards that failed each time. Up to two times for one place are of severity info, "
        "and more where no one kind of guard failed so often: training and evaluation, with and without a "
        "gradient.",
        remedy="Keep shapes the same (drop_last=True, padding to a few lengths), mark what changes with "
        "torch._dynamo.mark_dynamic, and pass numbers that change as tensors.",
        source="https://docs.pytorch.org/docs/stable/torch.compiler_faq.html#why-are-you-recompiling",
    ),
    FindingDoc(
        id="slow-link",
        severity="warning",
        title="some ranks use a slower network than the others",
        meaning="A collective is as fast as its slowest member's link. Where one node fell back to sockets, or one of "
        "its cards works without GPU Direct RDMA, all wait for it in every step, and nothing is printed.",
        how_seen="`Using network` and `GPU Direct RDMA` lines of the ranks' NCCL logs (NCCL_DEBUG=INFO, as the "
        "presets debug and network set it) that differ between ranks. `distdbg preflight` measures every "
        "pair of nodes, and names a node or a pair whose best is below 0.4 of the others' and below the "
        "worst of them; and counts each GPU's NVLinks.",
        remedy="On the named node: is the HCA there and up (`ibv_devinfo`), NCCL_IB_HCA and NCCL_SOCKET_IFNAME right, "
        "the nvidia_peermem module loaded, the container given /dev/infiniband?",
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    FindingDoc(
        id="small-kernels",
        severity="warning",
        title="operators are too small: to begin them takes longer than to run them",
        meaning="To launch a kernel takes the host 5 to 10 us. Kernels shorter than that leave the GPU idle between "
        "them, however fast it is. On a CPU, too, an operator on a few numbers is mostly Python and torch's "
        "own work.",
        how_seen="In a profile: most kernels are shorter than 10 us, the GPU is busy for less than 80 % of the step, "
        "and gaps of at most 20 us are 5 % of it or more. Without a GPU: one line of the script runs 256 "
        "operators or more a step, mostly of at most 25 us, which are 10 % of it or more; layers and "
        "optimizers are not meant.",
        remedy="torch.compile(mode='reduce-overhead') or CUDA graphs; a larger batch; fused optimizers "
        "(AdamW(fused=True)); one operator on a stack of tensors instead of a loop.",
        source="https://pytorch.org/blog/accelerating-pytorch-with-cuda-graphs/",
    ),
    FindingDoc(
        id="straggler",
        severity="warning",
        title="a rank is slower than the others, which wait for it",
        meaning="Every step takes all ranks equally long, since a collective makes them wait for the last. One comes "
        "last nearly every time: the job runs at its pace.",
        how_seen="In a dump, by the time at which each rank entered each collective of the flight recorder, but for "
        "the first ten of a group. Over a "
        "whole run, by the phases in which the agent samples each rank, ten times a second: the slow rank "
        "is longer in a phase of its own, the others are longer where they wait. In profiles of the same "
        "steps, by each rank's time without communication and without waiting for a processor, and by its "
        "line. Not reported are ranks that are slow in turns, ranks without a process group (none waits "
        "for another), and a rank that alone reads a value from its GPU (a progress bar's loss), since "
        "the hosts of the others run ahead of theirs.",
        remedy="Look at what this rank does more in the phase that is named: larger or slower data, a slower disk, a "
        "throttled or shared GPU or CPU, work that only it does (logging, evaluation, a profiler). `distdbg "
        "hang-dump` on the running job shows its stack while the others wait.",
        source="https://github.com/pytorch/pytorch/issues/71303",
    ),
    FindingDoc(
        id="sync-in-step",
        severity="warning",
        title="values of tensors are read on the host in each step",
        meaning="`.item()`, `.cpu()`, `.tolist()`, `float(loss)`, `if tensor > 0` end a GPU's queue: the host waits "
        "until all is computed, and the GPU then waits for the host's next launch. Read one element at a "
        "time, they are slow on a CPU, too.",
        how_seen="In a profile, these calls by line. On a GPU the cost is its idle time from the end of its last "
        "kernel to the next one; without a GPU, the time in the calls. A cost below 5 % of a step is not "
        "reported, such as a loss that is read once a step.",
        remedy="Keep the sum on the device and read it every 100 steps; read many values with one `.tolist()`; "
        "replace `if tensor` by torch.where.",
        source="https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html#avoid-unnecessary-cpu-gpu-synchronization",
        lint=LintDoc(
            title="a value of each parameter is read on every step",
            how_seen="In the innermost training loop, below no `if`, a loop over all parameters reads one value of "
            "each.",
            remedy="Keep the sum on the device (`total += loss.detach()`) and read it every 100 steps; of many "
            "parameters stack the values and read them once.",
        ),
    ),
    FindingDoc(
        id="tensor-float-off",
        severity="info",
        title="matrix products in float32 do not use TF32",
        meaning="From compute capability 8.0 on a GPU multiplies float32 several times faster in TF32: the same "
        "range, 10 bits of mantissa instead of 23. torch leaves it off for matrix products. Only the "
        "authors of the training can decide whether that precision is enough.",
        how_seen="In a profile of such a GPU, kernels whose names say sgemm, or a gemm of f32f32_f32f32, for 10 % of "
        "a step or more.",
        remedy="torch.set_float32_matmul_precision('high'), or train in bfloat16 by autocast; compare the losses.",
        source="https://pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices",
    ),
    FindingDoc(
        id="transfer-in-loop",
        severity="warning",
        title="a GPU waits for copies from the host",
        meaning="A copy from memory that is not pinned goes through a buffer of the driver, and the host waits "
        "for it, even with `non_blocking`: no kernel is launched meanwhile. From pinned memory the host "
        "waits only without `non_blocking=True`, and then also for all work that was launched before.",
        how_seen="In a profile, copies that CUDA itself names `Memcpy HtoD (Pageable -> Device)`, and those named "
        "`(Pinned -> Device)` that the same operator waits for, by the line that began them; the time counts "
        "in which no kernel ran. Below 5 % of a step nothing is said.",
        remedy="DataLoader(pin_memory=True) with `.to(device, non_blocking=True)`; make on the device what need not "
        "come from the host: torch.zeros(..., device=device).",
        source="https://pytorch.org/tutorials/intermediate/pinmem_nonblock.html",
    ),
)
