"""Findings about the training itself: data, gradients, optimizers, schedules."""

from distdbg.model import FindingDoc, LintDoc

ENTRIES = (
    FindingDoc(
        id="clip-after-step",
        severity="warning",
        title="gradients clipped after the step",
        meaning="The step has used the gradients as they were; clipping them afterwards changes nothing, as the next "
        "batch clears them. Training is as unstable as without clipping.",
        how_seen="By lint alone: no guard reports it.",
        remedy="Clip between backward() and step(); with a GradScaler behind scaler.unscale_(optimizer).",
        source="https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",
        lint=LintDoc(
            how_seen="In a loop that trains, clip_grad_norm_ follows a step, and no other step follows before the "
            "gradients are cleared or computed anew. Where its result is kept, or the norm is inf, it measures.",
        ),
    ),
    FindingDoc(
        id="data-not-sharded",
        severity="warning",
        title="the ranks train on the same batches",
        meaning="Data parallelism means that each rank reads other data. Without a DistributedSampler, or with one "
        "that was created for one replica, and with the same seed everywhere, every rank reads all of it in the "
        "same order: the gradients that are averaged are the same, and N ranks train as one would.",
        how_seen="A guard in each rank takes a checksum of the first batch of a loader that trains, all over its "
        "tensors, and sees a tensor of that shape enter the model. The same loop, as many batches, and the "
        "same first batch, on ranks over which DDP or FSDP averages the gradients. Datasets that are split "
        "among the ranks differ, whatever their sampler; where each rank gives the model a part of the "
        "batch, the batch may be the same.",
        remedy="Give the DataLoader sampler=DistributedSampler(dataset), or split the dataset by rank.",
        source="https://docs.pytorch.org/tutorials/beginner/ddp_series_multigpu.html#distributing-input-data",
        lint=LintDoc(
            title="every rank trains on all of the data",
            how_seen="A DDP model is trained from a DataLoader with shuffle=True and no sampler, over a data set that "
            "does not hear of ranks. Or a DistributedSampler is created, and no loader is given it. Or its "
            "seed depends on the rank.",
            remedy="Give the loader sampler=DistributedSampler(dataset), drop shuffle=True, and call set_epoch.",
        ),
    ),
    FindingDoc(
        id="dead-units",
        severity="warning",
        title="a third of a layer's units or more learn nothing",
        meaning="A unit whose ReLU is off for every input passes no gradient back, and so can never come on again: "
        "the layer is smaller than it was meant to be, and costs as much.",
        how_seen="With `--watch gradients`: of a linear or convolutional layer with 64 units or more, at least 30 % "
        "have had a gradient of exactly zero in all samples (at least eight), and so has what reads them. A "
        "layer without any may be unused or cut off by intent, and is none; what no later layer reads "
        "(classes, boxes, actions) is not looked at.",
        remedy="Lower the learning rate or the bias that pushed them below zero; use GELU, SiLU or LeakyReLU; "
        "normalise before the activation. In half precision without a scaler they may be too small to be held.",
        source="https://arxiv.org/abs/1903.06733",
    ),
    FindingDoc(
        id="decayed-norms",
        severity="info",
        title="some norms or biases are under weight decay, and others are exempt",
        meaning="Weight decay is meant for matrices; for the scales of norms and for biases it is commonly set to 0. "
        "Where they are chosen by name, a pattern like `LayerNorm.weight` misses what is called "
        "`norm1.weight`, and nobody notices.",
        how_seen="A guard looks once at the optimizer's groups. One decays nothing and holds vectors only, which "
        "shows the intention; another decays, and holds vectors as well. Where norms alone are exempt, "
        "biases of other layers are none.",
        remedy="Choose what is exempt by its shape: `p.ndim < 2`, or by the class of its module.",
        source="https://github.com/karpathy/minGPT/pull/24",
        lint=LintDoc(
            title="norms and biases are decayed, too",
            how_seen="AdamW or another optimizer with decoupled decay gets `model.parameters()` whole and a "
            "weight_decay that is not zero, for a model of the same file that has norms. Or a list of names "
            "without decay has those of BERT's norms, in a file about models that call theirs otherwise.",
            remedy="Two groups: parameters with fewer than two dimensions get weight_decay 0, all others the decay.",
        ),
    ),
    FindingDoc(
        id="eval-mode-wrong",
        severity="warning",
        title="eval mode that is never left, or never entered",
        meaning="After model.eval() dropout is off and batch norm uses its stored statistics, in training as well, "
        "until model.train() is called.",
        how_seen="A guard in each rank: a model trained in train mode, was called in eval mode without autograd, and "
        "then, still in eval mode, in three steps of an optimizer that holds its parameters. All its "
        "dropouts and batch norms are in eval mode, none of its parameters has been frozen meanwhile, and "
        "the script nowhere chooses the mode, as train(epoch < 2) does. Or, at least twice and with training "
        "in between: a pass over data that is not trained on, to its end, with one forward a batch, no "
        "autograd and no step, found the model, whose dropouts and batch norms are all on, in train mode; no "
        "model was ever called in eval mode, and the script does not name it.",
        remedy="Call model.eval() before each evaluation, and model.train() after it, or at the start of every epoch.",
        source="https://docs.pytorch.org/docs/stable/notes/autograd.html#evaluation-mode-nn-module-eval",
        lint=LintDoc(
            how_seen="A loop over epochs trains and calls eval() on the model that it trains, and calls train() "
            "nowhere. Or a training loop evaluates now and then, under an `if`, with eval() on a model whose "
            "train() is called outside of this loop only. Or train() is called in a loop over validation "
            "data. Or a loop that evaluates, with gradients off, calls the trained model, which has dropout "
            "or batch norm, and the file calls eval() nowhere. Of severity info: a method leaves eval mode "
            "on, and the file calls train() nowhere.",
            remedy="Call model.train() at the start of every epoch, and model.eval() before each evaluation.",
        ),
    ),
    FindingDoc(
        id="eval-with-grad",
        severity="warning",
        title="an evaluation builds graphs for a backward that never comes",
        meaning="model.eval() does not turn autograd off. Without torch.no_grad() each forward of the evaluation "
        "keeps its activations until its output is freed: more memory, less speed, and an out-of-memory that "
        "only comes at the first evaluation.",
        how_seen="A guard in each rank: in three batches of one pass over a loader a DDP module in evaluation mode "
        "gave an output that has a graph, and no backward or autograd.grad came.",
        remedy="Put the evaluation below `with torch.no_grad():` or torch.inference_mode().",
        source="https://docs.pytorch.org/docs/stable/notes/autograd.html#evaluation-mode-nn-module-eval",
        lint=LintDoc(
            title="an evaluation that records graphs",
            how_seen="A function puts the model into eval mode and calls it in a loop, never goes backward, and "
            "neither it nor a caller turns gradients off. Of severity info: any model of which all output is "
            "detached or becomes numbers.",
            remedy="Put the loop under `with torch.no_grad():` or torch.inference_mode().",
        ),
    ),
    FindingDoc(
        id="exploding-gradient",
        severity="warning",
        title="gradients have grown a hundredfold, and stay there",
        meaning="A gradient that grows from step to step moves the weights further each time, which makes the next "
        "one larger still: the loss rises, and ends as inf or NaN.",
        how_seen="With `--watch gradients`: in each of the last five samples a layer's norm is at least 100 times "
        "the median of its first ten (the very first left out), and the norm of all layers together at "
        "least 10 times its own median; or the norm of all together 10,000 times. The gradient is also at "
        "least 1 % of the layer's weights. A norm that rises and falls again is not reported. The norms "
        "are those that the optimizer gets, after clipping.",
        remedy="Lower the learning rate, or raise it more slowly at the start; clip gradients "
        "(torch.nn.utils.clip_grad_norm_); look at the layer's initialisation and normalisation.",
        source="https://proceedings.mlr.press/v28/pascanu13.html",
    ),
    FindingDoc(
        id="gradients-cleared-early",
        severity="warning",
        title="gradients cleared before the step that should use them",
        meaning="zero_grad between backward and step: the step has no gradients, and nothing is trained. Or zero_grad "
        "in front of each backward pass, and a step after several: the step uses the gradients of the last micro-batch "
        "only, and the batch is smaller than it was meant to be. No error says so.",
        how_seen="By lint alone: no guard reports it.",
        remedy="Clear the gradients where the step is, right after it.",
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        lint=LintDoc(
            how_seen="The optimizer that steps every so many batches, or after a loop over micro-batches, is cleared "
            "for each batch, under no test; or it is cleared between a backward pass and its step.",
        ),
    ),
    FindingDoc(
        id="graph-retained",
        severity="warning",
        title="the graphs of old steps are kept alive",
        meaning="A loss that is added to a sum or a list without detach() or item(), an output that a module keeps, a "
        "hidden state that goes on to the next batch: each holds on to the graph that made it, and that to "
        "tensors of its step. Memory grows with each step until it runs out.",
        how_seen="A guard hangs tokens on the graph of each of the first backwards. Of at least eight of those graphs "
        "something was still alive forty steps later.",
        remedy="Keep loss.item() or loss.detach() instead of the loss; detach a hidden state between batches.",
        source="https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory",
        lint=LintDoc(
            title="a value that carries the graph is kept from step to step",
            how_seen="What backward() is called on, a loss that it is a part of, or the model's output that it was "
            "computed of is appended to a list or added to a sum that outlives the step, with its graph: as "
            "it is, after arithmetic, in a dictionary, by a method of a class of the file, or by the caller "
            "of a function that returns it.",
            remedy="Keep loss.detach() (no wait for the device) or loss.item().",
        ),
    ),
    FindingDoc(
        id="layer-rates-mixed",
        severity="warning",
        title="a layer has two learning rates, or that of another layer",
        meaning="With layer-wise decay each layer has a rate of its own. A pattern like `layers.1` takes `layers.10` "
        "along, and a part that no pattern names falls to the default: torch refuses one parameter in two "
        "groups, and sees none of this.",
        how_seen="A guard looks once at the optimizer's groups. At least three quarters of a list of layers have one "
        "rate each, which rises or falls from layer to layer; the others have two, or one that breaks the "
        "order. A part that has one rate in all layers that have it is left out.",
        remedy="Take the number of the layer out of the name (`int(name.split('.')[1])`) instead of looking for a "
        "part of it, and print what each group holds.",
        source="https://arxiv.org/abs/1801.06146",
    ),
    FindingDoc(
        id="learning-rate-zero",
        severity="warning",
        title="a schedule has set the learning rate to 0, and the training goes on",
        meaning="With a learning rate of 0 an optimizer changes no parameter: the steps that follow cost time and "
        "train nothing. Usual causes are a schedule that is shorter than the training, and one that counts something "
        "else than the steps.",
        how_seen="Before each step the learning rates of the optimizer of a schedule: all are 0 for the newest quarter "
        "of all steps, at least for ten, or for all steps of a script that has ended.",
        remedy="Make the schedule as long as the training, in the unit in which scheduler.step() is called.",
        source="https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",
    ),
    FindingDoc(
        id="leftover-steps-dropped",
        severity="info",
        title="the last batches of an epoch are never stepped",
        meaning="Where the number of batches is no multiple of the accumulation, the gradients of the last ones are "
        "thrown away, or spill into the next epoch.",
        how_seen="A guard counts backwards and steps of a pass over a loader: some are left behind the last step, and "
        "the next epoch's first step comes after a full number of backwards again.",
        remedy="Step as well at the last batch: `or i + 1 == len(loader)`.",
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        lint=LintDoc(
            how_seen="The step is only under `(i + 1) % n == 0`, and no step follows at the end of the loader.",
        ),
    ),
    FindingDoc(
        id="loader-lengths-differ",
        severity="warning",
        title="the ranks' loaders have different lengths",
        meaning="Each step averages gradients over all ranks. A rank that has fewer batches leaves the loop sooner, "
        "and the others wait for it in their next step for ever (uneven-inputs), or train on without it.",
        how_seen="A guard in each rank reports the number of batches of a training loop's loader, and the number "
        "of steps in a complete pass. DDP or FSDP averages the gradients of the compared ranks, and the "
        "loop and the pass are the same: a rank with fewer batches finished, and another made more steps, "
        "and more backwards until the script ended, or hangs. Lengths may differ under join(), and where "
        "a loop stops, or starts again, after a number of steps that all ranks agree on.",
        remedy="Give every rank the same number of batches: DistributedSampler pads, drop_last=True cuts. Where "
        "lengths must differ, train within `with model.join():` or stop after as many steps as the shortest "
        "rank has.",
        source="https://docs.pytorch.org/tutorials/advanced/generic_join.html",
    ),
    FindingDoc(
        id="loss-never-changes",
        severity="warning",
        title="the loss is the same number at every step",
        meaning="Batches differ and the optimizer steps, but the loss depends on neither: a value that is detached or "
        "saturated, a target that is always the same, a softmax over one class, units that are dead.",
        how_seen="A guard reads the loss where a backward begins, in the steps 2 to 11, and again in the steps 101 to "
        "110 where it was the same there. It is reported where all are equal to the last bit, in float32 or wider.",
        remedy="Print the output of the model and the target of two batches: what of the loss does not change?",
        source="https://docs.pytorch.org/docs/stable/notes/autograd.html",
    ),
    FindingDoc(
        id="loss-not-divided",
        severity="warning",
        title="an accumulated loss is not divided by the number of micro-batches",
        meaning="Gradients that are added up over N micro-batches are N times as large as those of one large "
        "batch: the learning rate is in effect N times what was set, and clipping begins N times as soon. "
        "Optimizers of Adam's kind do not depend on the size of a gradient; clipping does.",
        how_seen="A guard sees several backwards from one line, one for each batch of one loader, before one step "
        "of the optimizer. Each begins from a mean that was not divided, three times in ten steps. "
        "Scripts that divide their gradients are not reported.",
        remedy="Divide the loss by the number of micro-batches before backward().",
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation",
        lint=LintDoc(
            how_seen="Backward passes are accumulated, and nothing divides a loss between the model and the step.",
        ),
    ),
    FindingDoc(
        id="metric-of-one-rank",
        severity="warning",
        title="a metric of one rank's part of the data",
        meaning="A DistributedSampler gives each rank a part of the validation data. What a rank adds up is the "
        "metric of its part: rank 0 reports that of 1 / world size of the data, and ranks that choose the best "
        "checkpoint or stop early by it may disagree.",
        how_seen="By lint alone: no guard reports it.",
        remedy="Add the sums and the counts up with all_reduce before they are divided and shown.",
        source="https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",
        lint=LintDoc(
            how_seen="A function without gradients adds up values over a loader with a DistributedSampler and returns "
            "or prints the sum, and neither it, nor what it calls, nor its callers reduce, gather or ask for "
            "the world size.",
        ),
    ),
    FindingDoc(
        id="missing-set-epoch",
        severity="warning",
        title="each epoch has the same order: set_epoch is not called",
        meaning="DistributedSampler shuffles by seed and epoch. Without set_epoch, every epoch gives the same "
        "batches in the same order to the same ranks: the model trains, and a little worse.",
        how_seen="A guard in each rank sees two passes over one sampler that shuffles, with the same `epoch`; in "
        "each at least half of the batches were taken and the optimizer stepped. A single batch that is "
        "read ahead is no pass. A script that names set_epoch is judged at its end, by three passes, "
        "since it may go through its data several times an epoch; where a sampler has an order of its "
        "own, the first batches were the same, too.",
        remedy="Call sampler.set_epoch(epoch) at the head of each epoch, or launch with `--guard "
        "missing-set-epoch=fix`.",
        source="https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",
        lint=LintDoc(
            title="a DistributedSampler without set_epoch",
            how_seen="A shuffling DistributedSampler feeds a training loop inside a loop over epochs, and neither "
            "set_epoch is called on it there nor its `epoch` set. A loader is followed through generators, "
            "iterators and functions; a factory is judged by the constants that it is called with.",
            remedy="Call sampler.set_epoch(epoch) at the start of every epoch, before the loader is iterated.",
        ),
    ),
    FindingDoc(
        id="missing-zero-grad",
        severity="warning",
        title="gradients are not cleared between optimizer steps",
        meaning="backward adds to the gradients that are there. Without zero_grad each step uses the sum of all steps "
        "so far: the training diverges, or looks like one with a far too large learning rate.",
        how_seen="A guard looks at one parameter in a few steps: its gradient is the same tensor, untouched, from one "
        "step of the optimizer to the next backward, and that backward adds to it; three times in a row. "
        "Accumulation over micro-batches, SAM, GANs and gradients cleared or written by hand are none.",
        remedy="Call optimizer.zero_grad() once for each optimizer step, before the backward or after the step.",
        source="https://docs.pytorch.org/tutorials/recipes/recipes/zeroing_out_gradients.html",
        lint=LintDoc(
            severity="error",
            title="gradients are never cleared between steps",
            how_seen="A loop goes backward and steps an optimizer, and neither it, nor a function that it calls, nor "
            "a loop around it clears gradients.",
            remedy="Call optimizer.zero_grad() once for each step, before the first backward pass or after the step.",
        ),
    ),
    FindingDoc(
        id="non-finite",
        severity="error",
        title="a loss, gradients or weights went NaN or infinite",
        meaning="One value that is not finite spreads: through the forward into the loss, with the backward into all "
        "gradients before it, by the all-reduce to all ranks, and with the step into the weights. From there "
        "on nothing is learnt.",
        how_seen="After the steps 11, 22, 44 and so on, then after each thousand, and at the end of the script a rank "
        "looks at the norms of eight parameters. After the backwards 1, 2, 4 and so on, then after each thousand, it "
        "reads two losses; where one is not finite, those that follow: 8 in a row that are NaN, or 48 that are not "
        "finite, are reported where no weight is to blame. With `--watch numerics` it looks at the loss where a "
        "backward begins, and at one gradient before each step. Where one is not finite, it looks at what the modules "
        "of that forward had made, in their order. What a scaler of gradients or the optimizer itself skips, masks of "
        "-inf that end within a module, and NaN in the data that a module masks, are none. It is an error where an "
        "optimizer stepped on such gradients, else a warning.",
        remedy="Look at the named module with the reported input: a logarithm or division needs an epsilon, a "
        "square root at 0 has no finite gradient, half precision overflows at 65504; clip gradients or lower "
        "the learning rate where values grow before. For bad data, look at the batch of that rank and step.",
        source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    ),
    FindingDoc(
        id="overfit-fails",
        severity="error",
        title="the loss of one repeated batch does not fall",
        meaning="A training that works learns a single batch by heart: its loss falls by far more than a tenth within "
        "100 steps. Where it does not, something is broken that no more data will mend.",
        how_seen="`distdbg overfit` (or `launch --overfit-batch N`) repeats the first batch of the training in each "
        "rank, reads the loss that each backward began from, and looks at gradients and optimizers before "
        "each step. The median of the last ten losses is not below the first one by more than they waver, "
        "and not by 1 %; or they are not finite.",
        remedy="Look at the parameters that are named: does the optimizer hold the model that is trained, and does "
        "the loss reach it? Else at the learning rate, at a detach, no_grad or .item() between model and loss, "
        "and at whether inputs and labels belong together.",
        source="https://karpathy.github.io/2019/04/25/recipe/",
    ),
    FindingDoc(
        id="overfit-learns",
        severity="info",
        title="the loss of one repeated batch falls",
        meaning="The model, the loss, the gradients and the optimizer are connected. It says nothing about the "
        "data, nor about how well the training continues.",
        how_seen="`distdbg overfit` (or `launch --overfit-batch N`) repeats the first batch of the training in each "
        "rank, reads the loss that each backward began from, and looks at gradients and optimizers before "
        "each step. The median of the last ten losses is below the first one by a tenth of it or more.",
        remedy="Nothing is to be done. The named parameters may be unused on purpose.",
        source="https://karpathy.github.io/2019/04/25/recipe/",
    ),
    FindingDoc(
        id="overfit-unknown",
        severity="warning",
        title="whether one batch can be learnt is not known",
        meaning="The batch could not be repeated, no loss was seen, the script ended before, or the loss fell by too "
        "little to be sure of either; or several losses move and none falls, as those of a GAN do.",
        how_seen="`distdbg overfit` (or `launch --overfit-batch N`) repeats the first batch of the training in each "
        "rank, reads the loss that each backward began from, and looks at gradients and optimizers before "
        "each step. The loss has to fall by a tenth of its start, and by more than the last ones waver.",
        remedy="Give more steps (--overfit-batch 1000) where it fell slowly; else run the script with a DataLoader of "
        "torch, and with one loss.",
        source="https://karpathy.github.io/2019/04/25/recipe/",
    ),
    FindingDoc(
        id="param-in-two-groups",
        severity="warning",
        title="one parameter belongs to two groups",
        meaning="`'layer.1' in 'layer.10.weight'` is true. Learning rates that are given by layer then go to the "
        "wrong layers, or torch refuses the groups.",
        how_seen="By the error that torch raises: a parameter appears in more than one group.",
        remedy='End the text with what follows the number: f"layer.{i}.".',
        source="https://docs.pytorch.org/docs/stable/optim.html#per-parameter-options",
    ),
    FindingDoc(
        id="params-not-optimized",
        severity="warning",
        title="parameters get gradients, and no optimizer holds them",
        meaning="They are part of the model, want gradients and get them, and stay what they were at the start: the "
        "optimizer was made of other parameters, or before a part was added, replaced or wrapped.",
        how_seen="A guard compares the parameters of the DDP or FSDP2 model that have a gradient with those of all "
        "optimizers that step, in three windows of ten steps, and where some are missing between them, too. "
        "Before the run ends it is likely only: an optimizer may still come. Where optimizers hold other "
        "parameters of the same sizes, those may be copies; a parameter whose values change is not reported.",
        remedy="Make the optimizer of model.parameters(), after the model is whole and wrapped; freeze with "
        "requires_grad_(False) what is not to be trained.",
        source="https://docs.pytorch.org/docs/stable/optim.html#constructing-it",
        lint=LintDoc(
            title="parameters that no optimizer holds",
            how_seen="In one function, a new module is assigned to an attribute of a model after an optimizer took "
            "model.parameters().",
            remedy="Build the optimizer after the model is complete, or add_param_group the new layer's parameters.",
        ),
    ),
    FindingDoc(
        id="params-without-grad",
        severity="info",
        title="parameters are to be trained, and never get a gradient",
        meaning="They stay what they were at the start. Something cuts the graph (detach, no_grad, .item(), a part "
        "that the forward does not call), or they are a part that this training does not need, which then "
        "costs memory, and DDP a search for unused parameters in each step.",
        how_seen="A guard in each rank: the optimizer keeps a state for each parameter that ever had a gradient; "
        "these have none, and no gradient, at step 101 and again at the last look, after a pass over a "
        "loader, at the end, or at step 1001.",
        remedy="Look at where the forward leaves these parameters out; freeze with requires_grad_(False), or remove, "
        "what is not to be trained.",
        source="https://docs.pytorch.org/docs/stable/notes/autograd.html#setting-requires-grad",
    ),
    FindingDoc(
        id="schedule-length-wrong",
        severity="warning",
        title="a schedule that is too long for the run",
        meaning="Accelerate steps a prepared scheduler once for each rank, so its length is that of all ranks "
        "together. A number of steps from the whole loader, before it is shared among the ranks, times the number of "
        "ranks is too long by the number of ranks: the learning rate never comes down.",
        how_seen="By lint alone: no guard reports it.",
        remedy="Divide the length of the loader by accelerator.num_processes before it becomes steps, or take it from "
        "the loader that prepare() returned.",
        source="https://github.com/huggingface/diffusers/pull/8312",
        lint=LintDoc(
            how_seen="The length of a loader before prepare() goes into the steps of a schedule times the number of "
            "ranks; or (info) the steps of a schedule are multiplied by those of accumulation, or are the "
            "micro-batches of all epochs.",
        ),
    ),
    FindingDoc(
        id="scheduler-before-optimizer",
        severity="warning",
        title="the scheduler steps before the optimizer",
        meaning="Since torch 1.1 a scheduler is stepped after the optimizer. Stepped before it, the first value of "
        "the schedule is never used, and each step has the rate of the next. torch warns of it once, on "
        "stderr, and of a GradScaler that skips its first step with the same words.",
        how_seen="A guard in each rank: after a step of the optimizer a backward began, the scheduler moved once, and "
        "the same optimizer stepped; three times in a row. A step that a GradScaler skips does not look like "
        "that.",
        remedy="Call scheduler.step() after optimizer.step().",
        source="https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",
        lint=LintDoc(
            how_seen="In a loop, lr_scheduler.step() comes before the first optimizer.step() of the same round, on "
            "the same level, and is given no epoch.",
            remedy="Call scheduler.step() after optimizer.step(), or at the end of the epoch.",
        ),
    ),
    FindingDoc(
        id="scheduler-cadence",
        severity="warning",
        title="the schedule of the learning rate moves at another pace than it was made for",
        meaning="A schedule that is stepped with each micro-batch ends after a part of the steps of the optimizer. "
        "A OneCycleLR that is made for all steps and moved once an epoch never leaves its warm-up; a "
        "CosineAnnealingLR that is made for the number of epochs and moved with each step goes up and down "
        "many times an epoch.",
        how_seen="Several moves before each step of the optimizer, and a learning rate of 0 for a quarter of the steps "
        "or a length that is the number of steps. At the end of the script: how often the schedule moved, the length "
        "it was made for, and how many passes over a loader and steps of the optimizer there were. All of them must "
        "fit: a OneCycleLR made for fewer than half of the steps counts epochs, of which not all came.",
        remedy="Call scheduler.step() as often as its length counts: after each batch for OneCycleLR, after each "
        "epoch where T_max counts epochs.",
        source="https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.OneCycleLR.html",
        lint=LintDoc(
            title="a scheduler is stepped at another pace than it counts",
            how_seen="The arguments of the scheduler name the unit it counts in; the loop that steps it is of the "
            "other.",
            remedy="Step it in the loop that its arguments count, or give it the number of steps it will really get.",
        ),
    ),
    FindingDoc(
        id="seeds-identical",
        severity="info",
        title="every rank draws the same random numbers",
        meaning="One seed for all ranks is right for equal initial weights, which DDP makes equal anyway, and wrong "
        "for augmentation, dropout and noise: every rank draws the same.",
        how_seen="A guard in each rank, on models with dropout: before and after ten steps the generator of the "
        "model's device stood at the same place on ranks over which DDP or FSDP averages the gradients, and "
        "was drawn from in between.",
        remedy="Seed with seed + rank, at the latest after the model was built.",
        source="https://docs.pytorch.org/docs/stable/notes/randomness.html",
        lint=LintDoc(
            how_seen="The script knows its rank and seeds torch, numpy or random with a value that the rank is no part "
            "of.",
        ),
    ),
    FindingDoc(
        id="vanishing-gradient",
        severity="warning",
        title="the first layers get next to no gradient",
        meaning="Each layer that a gradient passes on its way back multiplies it; where the factors are small (a "
        "chain of sigmoids, weights that began too small) nothing is left for the first layers, which stay as "
        "random as they began.",
        how_seen="With `--watch gradients`, in every sample of the run: the norms of the first layers, in the model's "
        "order, are at most 1/10,000 of those of the last quarter, and also less than 1e-7 of their own "
        "weights. Embeddings, layers with one row or none (biases, norms), frozen and unused layers are not "
        "looked at.",
        remedy="Give the gradient a way round: residual connections, normalisation (LayerNorm, BatchNorm), ReLU or "
        "GELU in place of sigmoid and tanh, an initialisation that fits the activation.",
        source="https://proceedings.mlr.press/v9/glorot10a.html",
    ),
    FindingDoc(
        id="warmup-too-long",
        severity="warning",
        title="the warm-up is longer than the run",
        meaning="The learning rate rises for as many steps as the warm-up has. If the run has no more than these, it "
        "ends before the learning rate has reached its value, and nothing says so. Often the length was "
        "counted in micro-batches, or for one rank, and the schedule moves with each step of all ranks.",
        how_seen="At the end of a script that ended by itself: a LinearLR that rises, a OneCycleLR or a schedule of "
        "transformers had made fewer moves than its own warm-up has, and the rate was below its peak and "
        "still its own: a SequentialLR ends the warm-up itself. The last pass over the data was gone through "
        "to the end, or the schedule had made all the moves it was planned for.",
        remedy="Give the warm-up a few percent of the steps that the run will really make.",
        source="https://huggingface.co/docs/transformers/main_classes/optimizer_schedules",
    ),
)
