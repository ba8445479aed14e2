"""Findings from the guards of the training loop: a table, and rules that compare ranks or parts of a fact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from distdbg.diagnosis.guards import GuardRow, alike, by_place, facts, guard_finding, guard_rules, place
from distdbg.diagnosis.rules import rule
from distdbg.evidence.run import RunEvidence
from distdbg.model import Finding

_ONCE_A_STEP = (
    "Call scheduler.step() once after each optimizer.step(), outside of the loop over micro-batches; or make the "
    "schedule for the number of micro-batches."
)

GUARD_RULES = guard_rules(
    __name__,
    GuardRow(
        "decayed-norms",
        "the optimizer that steps at {place} applies weight decay to {count} norms or biases: {names}",
        "{exempt} other norms or biases are in a group without decay.",
        confidence="likely",
    ),
    GuardRow(
        "eval-mode-wrong",
        "the evaluation at {place} runs in train mode",
        "{active} behave as in training: dropout drops values, and batch norm updates its statistics from the "
        "evaluation's data.",
        when=lambda fields: isinstance(fields.get("active"), list),
        confidence="likely",
    ),
    GuardRow(
        "eval-mode-wrong",
        "after an evaluation, the training at {place} continues in eval mode",
        "The model was in train mode before the evaluation. {silenced} no longer behave as in training.",
        confidence="likely",
    ),
    GuardRow(
        "eval-with-grad",
        "the evaluation at {place} builds autograd graphs that no backward uses",
        "In {batches} batches the model was in eval mode, its output had a graph, and no backward followed.",
    ),
    GuardRow(
        "graph-retained",
        "the autograd graphs of the backward at {place} are kept alive",
        "{kept} of {of} graphs of the first steps still existed {after} steps later.",
    ),
    GuardRow(
        "leftover-steps-dropped",
        "the optimizer does not step on the last {left} micro-batches of the loop at {place}",
        "A step takes {each} micro-batches, and the next epoch starts to count again. If the gradients are cleared "
        "there, these micro-batches are lost; if not, the first step of the next epoch is too large.",
    ),
    GuardRow(
        "loss-never-changes",
        "the loss of the backward at {place} was {value} each time",
        "In {times} backwards it did not change in its last bit.",
    ),
    GuardRow(
        "loss-not-divided",
        "the losses of {losses} micro-batches are summed at {place}, and none is divided by {losses}",
        "{optimizer} is not affected by the scale of a gradient; gradient clipping would be.",
        when=lambda fields: "Adam" in str(fields.get("optimizer")),
        confidence="likely",
        severity="info",
    ),
    GuardRow(
        "loss-not-divided",
        "the losses of {losses} micro-batches are summed at {place}, and none is divided by {losses}",
        confidence="likely",
        severity="warning",
    ),
    GuardRow(
        "missing-set-epoch",
        "the loop at {place} never calls set_epoch; distdbg called it",
        "A second pass was about to begin with epoch {epoch}. Batches that workers had already loaded still have the "
        "order of that epoch.",
        when=lambda fields: fields.get("fixed"),
    ),
    GuardRow(
        "missing-set-epoch",
        "the loop at {place} reads its data in the same order in each epoch: set_epoch is not called",
        "The sampler shuffles by its epoch, and two passes of the training had epoch {epoch}.",
    ),
    GuardRow(
        "missing-zero-grad",
        "the optimizer that steps at {place} uses gradients that are never cleared",
        "{times} times in a row, a backward added to the gradient of the previous step.",
        when=lambda fields: fields.get("device") == "cpu",
    ),
    GuardRow(
        "missing-zero-grad",
        "the optimizer that steps at {place} uses gradients that are never cleared",
        "{times} times in a row, a backward added to the gradient of the previous step. A gradient that is zeroed "
        "through .data would look the same.",
        confidence="likely",
    ),
    GuardRow(
        "params-not-optimized",
        "{count} of {parameters} parameters get gradients and are in no optimizer that steps at {place}: {names}",
        "None of the model's parameters is in an optimizer: the optimizer holds copies, or another model's parameters.",
        when=lambda fields: fields.get("none_held") is True,
        confidence="possible",
        severity="info",
    ),
    GuardRow(
        "params-not-optimized",
        "{count} of {parameters} parameters get gradients and are in no optimizer that steps at {place}: {names}",
        "Optimizers hold other parameters of the same sizes, which may be copies.",
        when=lambda fields: fields.get("copied") is True,
        confidence="possible",
        severity="info",
    ),
    GuardRow(
        "params-not-optimized",
        "{count} of {parameters} parameters get gradients and are in no optimizer that steps at {place}: {names}",
        when=lambda fields: fields.get("ended"),  # an optimizer that comes later may hold them
        severity="warning",
    ),
    GuardRow(
        "params-not-optimized",
        "{count} of {parameters} parameters get gradients and are in no optimizer that steps at {place}: {names}",
        confidence="likely",
        severity="warning",
    ),
    GuardRow(
        "params-without-grad",
        "{count} of {parameters} parameters of the optimizer at {place} never got a gradient: {names}",
        "In {steps} steps the optimizer created no state for them.",
    ),
    GuardRow(
        "scheduler-before-optimizer",
        "the {scheduler} steps before the optimizer steps at {place}",
        "{times} times in a row, the scheduler stepped after the backward and before the optimizer.",
    ),
    GuardRow(
        "learning-rate-zero",
        "the {scheduler} of {place} has set the learning rate to 0: since step {since} nothing is learnt",
        "{zero} of {steps} steps of the optimizer had a learning rate of 0 in all groups of parameters.",
    ),
    GuardRow(
        "scheduler-cadence",
        "the {scheduler} is stepped {ratio:.3g} times for each step of the optimizer at {place}: the learning rate is "
        "0 since step {zero_since}",
        "It was stepped {moves} times in {steps} steps of the optimizer.",
        when=lambda fields: fields.get("zero_since"),
        remedy=_ONCE_A_STEP,
    ),
    GuardRow(
        "scheduler-cadence",
        "the {scheduler} is stepped {ratio:.3g} times for each step of the optimizer at {place}, and made for "
        "{planned}",
        "It was stepped {moves} times in {steps} steps of the optimizer.",
        when=lambda fields: fields.get("ratio"),
        confidence="likely",
        remedy=_ONCE_A_STEP,
    ),
    GuardRow(
        "scheduler-cadence",
        "the {scheduler} of {place} is made for {planned} {made_for}, and stepped {moved} times",
        "There were {passes} passes over the training data and {steps} steps of the optimizer.",
        confidence="likely",
    ),
    GuardRow(
        "warmup-too-long",
        "the training ended during the warm-up of the {scheduler} of {place}: after {moves} of {warmup:.0f} steps",
        "After {steps} steps of the optimizer the learning rate was {rate:.4g}; its peak is {peak:.4g}.",
        confidence="likely",
    ),
)


@rule("data-not-sharded", needs=("rank.guards",))
def data_not_sharded(evidence: RunEvidence) -> Iterator[Finding]:
    """Several ranks began a pass with the same batch."""
    for found in alike(facts(evidence, "data-not-sharded"), "batch", "batches", "part"):
        fields = found[0].fields
        samplers = fields.get("samplers")
        names = " over ".join(map(str, samplers)) if isinstance(samplers, list) else "its sampler"
        # With a DistributedSampler the entry's remedy, to use one, does not help.
        remedy = (
            "Create the DistributedSampler after init_process_group, without num_replicas and rank; or give it the "
            "number of ranks that average their gradients, and the number of this rank among them."
        )
        yield guard_finding(
            evidence,
            "data-not-sharded",
            found,
            f"the ranks train on the same batches in the loop at {place(found[0])}",
            f"{len(found)} ranks began a pass with the same batch. Their loaders give {fields.get('items')} items in "
            f"{fields.get('batches')} batches by {names}.",
            remedy=remedy if "DistributedSampler" in names else "",
        )


@rule("seeds-identical", needs=("rank.guards",))
def seeds_identical(evidence: RunEvidence) -> Iterator[Finding]:
    """The generators of several ranks had the same state before and after the same steps."""
    for found in alike(facts(evidence, "seeds-identical"), "before", "after"):
        before = found[0].fields.get("before")
        seed = before[1] if isinstance(before, list) and len(before) > 1 else "the same number"
        yield guard_finding(
            evidence,
            "seeds-identical",
            found,
            f"dropout draws the same random numbers on {len(found)} ranks in the steps at {place(found[0])}",
            f"The ranks' generators were seeded with {seed}, and had the same state before and after ten steps that "
            f"drew from them. The model has {found[0].fields.get('dropouts')} active dropout modules.",
        )


@rule("layer-rates-mixed", needs=("rank.guards",))
def layer_rates_mixed(evidence: RunEvidence) -> Iterator[Finding]:
    """`layers` of the fact: [name, [learning rate, …]] of each layer that breaks the order."""
    for found in by_place(facts(evidence, "layer-rates-mixed")):
        fields = found[0].fields
        layers = "; ".join(f"{name} has {' and '.join(rates)}" for name, rates in _layer_rates(fields))
        yield guard_finding(
            evidence,
            "layer-rates-mixed",
            found,
            f"{fields.get('count')} of {fields.get('of')} layers break the order of the learning rates in the "
            f"optimizer that steps at {place(found[0])}: {layers}",
            "The rates of all other layers rise, or fall, from one layer to the next.",
            confidence="likely",
        )


def _layer_rates(fields: Mapping[str, object]) -> Iterator[tuple[str, list[str]]]:
    layers = fields.get("layers")
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, list) and len(layer) == 2 and isinstance(layer[1], list):
            yield str(layer[0]), [f"{rate:g}" for rate in layer[1] if isinstance(rate, float)]
