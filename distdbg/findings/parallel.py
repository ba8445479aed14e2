"""Findings about DDP, FSDP, mixed precision and checkpoints."""

from distdbg.model import FindingDoc, LintDoc

ENTRIES = (
    FindingDoc(
        id="autocast-dtypes-mixed",
        severity="info",
        title="autocast to float16 and to bfloat16, one inside the other",
        meaning="The inner region computes in another type than the outer one: what passes between them is rounded "
        "twice, and what bfloat16 can hold may be infinite in float16. The inner one is often a default that "
        "was forgotten: autocast without a dtype means float16 on a GPU.",
        how_seen="A guard sees the script enter a region, with gradients on, while one to the other type is in force "
        "on the same kind of device; three times at one line. Who opened the outer one does not matter.",
        remedy="Give both the same dtype, or leave the inner one out.",
        source="https://docs.pytorch.org/docs/stable/amp.html#torch.autocast",
    ),
    FindingDoc(
        id="checkpoint-module-prefix",
        severity="info",
        title="a checkpoint's names begin with module. or _orig_mod.",
        meaning="The state of the DDP or compiled wrapper was saved, and not that of the model inside. The plain "
        "model refuses these names; with strict=False it loads nothing at all, and says so in a return value "
        "only.",
        how_seen="A guard looks at the names in what torch.save is given: all of one dict of tensors begin so, and "
        "the model that is trained is wrapped. A script that names the prefix, as one that strips it does, "
        "is left alone.",
        remedy="Save model.module.state_dict(), or model._orig_mod.state_dict() below torch.compile.",
        source="https://github.com/pytorch/pytorch/issues/9176",
        lint=LintDoc(
            title="a checkpoint whose keys begin with `module.`",
            how_seen="torch.save is given the state_dict of what DistributedDataParallel returned. Possible if only a "
            "test or another method wraps the model, or Accelerate's prepare does.",
            remedy="Save model.module.state_dict().",
        ),
    ),
    FindingDoc(
        id="checkpoint-not-atomic",
        severity="info",
        title="the only checkpoint is overwritten in place",
        meaning="torch.save to the name of the last checkpoint cuts that file to nothing and then writes: a job that "
        "is killed meanwhile, out of memory or out of time, has neither the old one nor the new one.",
        how_seen="A guard sees torch.save open a name for the second time and find the inode that it wrote before, "
        "with no other file of at least half the size beside it, nor one elsewhere that this rank saved "
        "once, in a script that copies no files.",
        remedy="Write under another name, then rename: torch.save(state, part); os.replace(part, path). Or launch "
        "with `--guard checkpoint-not-atomic=fix`.",
        source="https://docs.python.org/3/library/os.html#os.replace",
    ),
    FindingDoc(
        id="checkpoint-on-one-gpu",
        severity="warning",
        title="every rank loads a checkpoint onto one GPU",
        meaning="torch.load puts each tensor on the device it was saved from. A checkpoint of rank 0 is of cuda:0. "
        "With eight ranks a node that GPU gets eight contexts and eight copies of the weights, and runs out of memory "
        "where the others have room.",
        how_seen="By lint alone: no guard reports it.",
        remedy='Load with map_location="cpu", or onto the GPU of the rank (map_location=f"cuda:{local_rank}").',
        source="https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints",
        lint=LintDoc(
            how_seen="torch.load without map_location, on all ranks, of what is called a checkpoint, a state or "
            "weights; a warning if the file starts the process group or wraps the model.",
        ),
    ),
    FindingDoc(
        id="checkpoint-race",
        severity="warning",
        title="several ranks write the same checkpoint file",
        meaning="Every rank saves to one name (torch.save, safetensors, save_pretrained, numpy, or "
        "torch.distributed.checkpoint with no_dist): each truncates what another is writing. The file is torn "
        "when two overlap, and holds some rank's state otherwise; loading it fails, or silently gives one "
        "rank's random state to all.",
        how_seen="A guard in each rank notes path, inode and step of its first saves. The same path and the same "
        "inode on one host, at the same step, from different ranks. Files with the rank in their name, and "
        "disks that each node has for itself, are right.",
        remedy="Save on rank 0 only (`if dist.get_rank() == 0:`), or put the rank into the name where each has a "
        "state of its own. `--guard checkpoint-race=fix` gives the name to the lowest rank.",
        source="https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints",
        lint=LintDoc(
            title="several ranks write the same file",
            how_seen="A file is saved, opened for writing, copied or moved, a checkpoint is removed, a folder is made "
            "without exist_ok, or a helper such as save_checkpoint is called: no `if` about the rank, in the "
            "function or in its callers, restricts it to one rank, and no rank is part of the path. Or that "
            "`if` asks for the local rank only. Or one rank makes a folder that all write into, or writes a "
            "file that all read, with no barrier between. A remark, unless the file shows that all ranks "
            "come. Only the run can show whether the paths are the same.",
            remedy="Save on one rank only (`if dist.get_rank() == 0:`), or make the rank part of the file's name.",
        ),
    ),
    FindingDoc(
        id="clip-before-unscale",
        severity="warning",
        title="gradients are clipped before they are unscaled",
        meaning="Under a GradScaler gradients are multiplied by some thousands. Clipping them to 1.0 then makes the "
        "step tiny, and how tiny changes whenever the scale does.",
        how_seen="A guard sees torch clip gradients to a bound of at most 100 while the GradScaler of their optimizer "
        "has not unscaled them, and the optimizer's next step go through that scaler; three times in ten "
        "steps.",
        remedy="Call scaler.unscale_(optimizer) before clipping.",
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping",
        lint=LintDoc(
            how_seen="A scaled backward pass, a clip and scaler.step follow each other on one way, without "
            "scaler.unscale_(optimizer) before the clip.",
        ),
    ),
    FindingDoc(
        id="collective-in-handler",
        severity="warning",
        title="a collective in __del__, at exit, or behind except",
        meaning="A collective needs all ranks at one time. Garbage is collected, processes end and errors are raised "
        "on each rank by itself: the rank that enters waits for ranks that never come, or takes part in another "
        "collective of theirs.",
        how_seen="By lint alone: `distdbg launch` reports the hang that follows as collective-not-joined.",
        remedy="Let all ranks learn of an error first (an all_reduce of a flag behind the `try`), and call "
        "collectives at a fixed place of the loop or of the end of training.",
        source="https://docs.pytorch.org/docs/stable/distributed.html#shutdown",
        lint=LintDoc(
            how_seen="A collective of all ranks in a method `__del__`, in a function that atexit.register is given, "
            "or in an `except` of an error that one rank alone may have, with no collective in the `try`.",
        ),
    ),
    FindingDoc(
        id="collective-on-cpu-tensor",
        severity="warning",
        title="a collective of NCCL gets a tensor of the host",
        meaning="NCCL moves tensors of a GPU only. all_reduce of `torch.tensor([total])` raises: there is no backend "
        "for the device cpu. Code that ran on one process, or with gloo, does so at its first evaluation on several.",
        how_seen="By lint alone: no guard reports it.",
        remedy="Make the tensor with device=… of this rank, or move it there before the call.",
        source="https://docs.pytorch.org/docs/stable/distributed.html#backends",
        lint=LintDoc(
            how_seen="A file names the backend nccl and no other, and a tensor that torch.tensor, zeros, FloatTensor "
            "or their like make without a device goes into all_reduce, broadcast, reduce or all_gather of all ranks.",
        ),
    ),
    FindingDoc(
        id="ddp-without-device-ids",
        severity="warning",
        title="DDP over GPUs without device_ids",
        meaning="Without device_ids and without torch.cuda.set_device every rank's default device is GPU 0: barriers, "
        "and whatever says just `cuda`, meet there, and each rank takes some hundred MiB of it for a context.",
        how_seen="A guard sees the forward of a DDP model that is on one GPU and was given no device_ids, while the "
        "rank's current GPU is another one; three times in a row. A device_ids that does not fit is known by "
        "the message of the exception that it ends with.",
        remedy="Call torch.cuda.set_device(local_rank) first, and pass device_ids=[local_rank].",
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
    ),
    FindingDoc(
        id="device-set-late",
        severity="warning",
        title="a rank chooses its GPU after it has used one",
        meaning="Until torch.cuda.set_device is called, the current GPU of each rank is GPU 0. A barrier before that "
        "line makes communicators and contexts there for all ranks of a node: memory that is missing later, or an "
        "error, as NCCL refuses two ranks on one device.",
        how_seen="By lint alone: no guard reports it.",
        remedy="Call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group, or give that its "
        "device_id.",
        source="https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html",
        lint=LintDoc(
            how_seen="torch.cuda.set_device behind init_process_group in the same function, and a collective between "
            "the two. Without one nothing is said: NCCL starts with the first collective.",
        ),
    ),
    FindingDoc(
        id="fsdp-dtype-mismatch",
        severity="info",
        title="FSDP's mixed precision does not fit the parameters",
        meaning="Mixed precision keeps parameters in float32, where the optimizer steps, and computes in half "
        "precision. Over a model that is of half precision already it only casts inputs, and small updates "
        "are rounded away; with float32 to compute in it gathers twice the bytes and wins back none of what "
        "was rounded.",
        how_seen="A guard compares the policy with the parameters that want gradients, once: all units have one and "
        "the same mismatch. A policy that asks for another type in reductions, buffers or outputs is of use.",
        remedy="Give FSDP the model in float32 and param_dtype=torch.bfloat16, reduce_dtype=torch.float32; or, to "
        "train in half precision throughout, give it inputs of that type and leave the policy out.",
        source="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.MixedPrecisionPolicy",
    ),
    FindingDoc(
        id="fsdp-layer-left-out",
        severity="warning",
        title="a layer is no FSDP unit, though its siblings are",
        meaning="What is in no unit of its own belongs to the unit around it, mostly the root: it is gathered before "
        "the first layer computes, and stays until the last gradient, on every rank.",
        how_seen="A guard looks at the units of an FSDP model of over 10 million parameters once: in one ModuleList, "
        "ModuleDict or Sequential most layers of a class are units or hold some, and others, no smaller, do "
        "not.",
        remedy="Call fully_shard on each of the layers before the root, or let the policy name the layer's class.",
        source="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    ),
    FindingDoc(
        id="fsdp-single-unit",
        severity="warning",
        title="FSDP gathers the whole model at once",
        meaning="FSDP gathers the parameters of one unit at a time. With one unit that is the whole model: no memory "
        "is saved while it computes, and nothing overlaps with the gathering. The wrap policy matched "
        "nothing, or fully_shard was called on the root only.",
        how_seen="A guard adds up the parameters of each FSDP unit once: the largest holds nine tenths of over 10 "
        "million, though the model has layers of one kind in a row.",
        remedy="Call fully_shard on each layer before the root, or give FSDP a policy that names the layer's class.",
        source="https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    ),
    FindingDoc(
        id="full-state-dict-gather",
        severity="warning",
        title="each rank gathers the whole state of a sharded model on its own device",
        meaning="A full state_dict without offloading puts the whole model on every rank's device, beside its shards "
        "and everything else on it: saving is where such jobs run out of memory, and all ranks but one throw "
        "it away.",
        how_seen="A guard sees the options of get_model_state_dict and its like, or of FSDP1's state_dict: full, and "
        "not offloaded to the CPU; the model is sharded and has over 10 million parameters. Below 1 GiB it "
        "is a hint.",
        remedy="StateDictOptions(full_state_dict=True, cpu_offload=True), which only rank 0 keeps; FSDP1: "
        "FullStateDictConfig(offload_to_cpu=True, rank0_only=True). Or save shards: "
        "torch.distributed.checkpoint.",
        source="https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict.StateDictOptions",
    ),
    FindingDoc(
        id="gradients-summed",
        severity="warning",
        title="gradients summed over the ranks, and not divided",
        meaning="all_reduce sums. Without a division by the number of ranks each step is world size times as large as "
        "on one GPU, and the learning rate that was tuned there diverges.",
        how_seen="By lint alone: no guard reports it.",
        remedy="Divide by dist.get_world_size() behind the all_reduce, or reduce with op=dist.ReduceOp.AVG.",
        source="https://docs.pytorch.org/tutorials/intermediate/dist_tuto.html#distributed-training",
        lint=LintDoc(
            how_seen="A loop calls all_reduce on `.grad` of each parameter with a sum over all ranks, and neither this "
            "function nor one that calls it divides, multiplies or asks for the number of ranks.",
        ),
    ),
    FindingDoc(
        id="loss-outside-autocast",
        severity="warning",
        title="the loss is computed in half precision, outside of autocast",
        meaning="Under autocast torch computes losses in float32. Outside of it they take what the model gives, and "
        "sum over a batch in half precision: large sums lose their small parts, and float16 overflows at "
        "65504.",
        how_seen="A guard sees the wrapped model's forward run under autocast, and a loss function of torch's make a "
        "number of half precision, as it never does under autocast; three backwards in a row.",
        remedy="Compute the loss within the same `with torch.autocast(…):`, or of outputs.float().",
        source="https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float32",
    ),
    FindingDoc(
        id="mixed-devices",
        severity="warning",
        title="an operation gets tensors of two devices",
        meaning="What a loader gives is on the host, and so is a tensor that a module keeps as a plain attribute: "
        ".to(device) passes it by. Where DDP is given no device_ids it moves no inputs, and the first "
        "operation that meets both raises. Where the device is the CPU, as on the machine it was tried on, "
        "nothing is seen.",
        how_seen="A guard notes which inputs of a DDP model are on another device than its parameters, and reports it "
        "where that very forward raised an error about devices that ended the script.",
        remedy="Move all that the forward gets: inputs.to(device), mask.to(device).",
        source="https://docs.pytorch.org/docs/stable/notes/cuda.html",
    ),
    FindingDoc(
        id="no-sync-at-step",
        severity="warning",
        title="the batch that the optimizer steps with is under no_sync",
        meaning="Under no_sync DDP does not average gradients; the first backward pass outside of it averages what was "
        "added up. Where no_sync holds for the batch that the optimizer steps with, each rank steps with gradients of "
        "its own: the weights of the ranks drift apart, and nothing fails.",
        how_seen="By lint alone. What follows from it, a guard reports as weights-desynced.",
        remedy="Let no_sync hold for every micro-batch but the one before the step: the same test for both, "
        "`(i + 1) % n != 0` for no_sync and `(i + 1) % n == 0` for the step.",
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.no_sync",
        lint=LintDoc(
            how_seen="no_sync is taken under a test of a loop's counter that holds in a round in which the optimizer "
            "steps: the tests of both are computed for the rounds of one step. Or require_backward_grad_sync "
            "is set between the forward and the backward pass, and both read it.",
        ),
    ),
    FindingDoc(
        id="redundant-allreduce",
        severity="warning",
        title="DDP reduces gradients for each micro-batch",
        meaning="Gradients are accumulated over micro-batches, and every one of them is followed by an all-reduce of "
        "the whole model. The result is the same as with one, at several times the traffic.",
        how_seen="A guard in each rank: several backwards of one line, each after a forward of a DDP module outside "
        "of no_sync, without anything cleared between, and then one step of the optimizer; three times in a "
        "row.",
        remedy="Run all micro-batches but the last, forward and backward, within `with model.no_sync():`.",
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.no_sync",
        lint=LintDoc(
            title="gradients are averaged over the ranks more often than the optimizer steps",
            how_seen="Backward passes are accumulated, the file is about DDP or FSDP, and nothing in it holds the "
            "averaging back: no no_sync, no set_requires_gradient_sync, no accumulate().",
            remedy="Run all but the last micro-batch under model.no_sync(), or FSDP2's "
            "set_requires_gradient_sync(False).",
        ),
    ),
    FindingDoc(
        id="scaler-misused",
        severity="warning",
        title="half precision without the GradScaler that it needs, or a GradScaler that is of no use",
        meaning="In float16 a gradient below 6e-8 is zero, and many are: a GradScaler multiplies the loss, divides "
        "the gradients, and skips steps that overflowed. An optimizer that steps past it uses gradients some "
        "thousands of times too large. bfloat16 has the range of float32: there a scaler only costs, and "
        "waits for the device in each step.",
        how_seen="A guard looks at the autocast of the wrapped model's forward, at what the backward begins from, and "
        "at whether the optimizer's step comes from a GradScaler; three steps in a row. Losses and gradients "
        "that are scaled by hand are left alone.",
        remedy="float16: scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(). bfloat16: leave the "
        "scaler out, or make it with enabled=False.",
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        lint=LintDoc(
            severity="error",
            title="a GradScaler that is used by halves",
            how_seen="On one way through the training loop, scaler.scale(loss).backward() is followed by "
            "optimizer.step(), scaler.step by no scaler.update(), or scaler.unscale_ by a second one for the "
            "same optimizer before the update.",
            remedy="scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(). To clip, call "
            "scaler.unscale_(optimizer) once before all clips.",
        ),
    ),
    FindingDoc(
        id="seeds-lost-in-spawn",
        severity="warning",
        title="the seed is set before the ranks are started",
        meaning="torch.multiprocessing.spawn starts new interpreters: they import the script again and begin with "
        "random seeds of their own. What the parent seeded holds for the parent alone, and no run can be repeated.",
        how_seen="By lint alone: no guard reports it.",
        remedy="Set the seed at the start of the function that spawn runs, with the rank added where ranks should "
        "draw different numbers.",
        source="https://docs.pytorch.org/docs/stable/notes/randomness.html",
        lint=LintDoc(
            how_seen="torch.manual_seed in the function that calls spawn, before it, and nothing seeds in the "
            "function that spawn starts or in what that calls.",
        ),
    ),
    FindingDoc(
        id="tracker-on-every-rank",
        severity="warning",
        title="every rank starts a run of the experiment tracker",
        meaning="wandb.init and its like start one run in each process that calls them. With N ranks the tracker shows "
        "N runs of one job, each with the losses of its own batches, and the ranks that have nothing to log send "
        "system metrics all the same.",
        how_seen="By lint alone: no guard reports it.",
        remedy="Call it under `if rank == 0:`, and log there only; or give each rank's run a common group and the rank "
        "as its name.",
        source="https://docs.wandb.ai/guides/track/log/distributed-training/",
        lint=LintDoc(
            how_seen="wandb.init, mlflow.start_run, neptune.init_run, swanlab.init, clearml's Task.init or "
            "comet_ml.Experiment without a test of the rank around it and without the rank among its arguments, in a "
            "function of which the file shows that each rank runs it.",
        ),
    ),
    FindingDoc(
        id="weights-desynced",
        severity="warning",
        title="ranks that average their gradients have different weights",
        meaning="DDP, or a script that all-reduces gradients by itself, trusts that all ranks start alike and step "
        "alike. A gradient that is not reduced, a parameter that one rank changes by itself, a step that it "
        "skips, or an optimizer of its own lets the ranks drift apart: each trains another model, and only rank 0's is "
        "saved.",
        how_seen="Each rank computes the norms of its parameters after the steps 11, 22, 44 and so on, then after each "
        "thousand, and at the end of the script, and reports their checksums. Ranks of the same hardware must have the "
        "same, to the last bit. Without DDP these are parameters that were equal before the first step and whose "
        "gradients the script all-reduces, and, if it exchanges nothing but gradients, the others of the same modules. "
        "If it exchanges activations, too, the bias beside a reduced weight in a module of torch, and nothing else.",
        remedy="Look at what changes this parameter on some ranks only: loading, initialising or clamping it after "
        "DDP has wrapped the model, or steps that are skipped by rank.",
        source="https://docs.pytorch.org/docs/stable/notes/ddp.html#internal-design",
        lint=LintDoc(
            severity="error",
            title="ranks train different weights",
            how_seen="Below the line that wraps the model, load_state_dict is called on it under an `if` about the "
            "rank, and the file broadcasts nothing; or (info) an optimizer is given a model in DDP and another "
            "one in none.",
            remedy="Load on every rank (torch.load with map_location), or before the model is wrapped.",
        ),
    ),
    FindingDoc(
        id="work-not-waited",
        severity="warning",
        title="an asynchronous operation that nothing waits for",
        meaning="isend, irecv and collectives with async_op=True return a handle at once, before the operation is "
        "finished. Where it is dropped, the next lines may read tensors that have not arrived, or change those that "
        "are still sent: results are wrong from time to time, and an error of the operation is lost.",
        how_seen="By lint alone: no guard reports it. Torch gives no event for `wait()`, and its flight recorder says "
        "when an operation was finished, not who waited for it.",
        remedy="Keep the handle and call its wait() before the tensors are used, or leave async_op out.",
        source="https://docs.pytorch.org/docs/stable/distributed.html#synchronous-and-asynchronous-collective-operations",
        lint=LintDoc(
            how_seen="The call is a statement of its own, and not within a coalescing manager, whose end waits. A "
            "handle that is assigned is taken for waited for.",
        ),
    ),
)
