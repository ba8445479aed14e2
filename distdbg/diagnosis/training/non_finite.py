"""Find where the first NaN or infinite value of a loss, of gradients or of weights was made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from distdbg.diagnosis.guards import Facts, facts, guard_finding, place
from distdbg.diagnosis.rules import rule
from distdbg.evidence.run import GuardFact, RunEvidence
from distdbg.model import Finding, grouped
from distdbg.wording import counted

#: What a rank's own forward has shown; a gradient alone may have come from any rank that it was averaged with.
_OWN = ("module", "before", "near", "data", "loss", "losses")
#: Nothing is learnt, or the weights themselves are bad.
_FATAL = ("weights", "losses")
#: Keys of a tensor's statistics that count values which are not finite, and how people write these.
_BAD_VALUES = {"nan": "NaN", "inf": "inf", "neginf": "-inf"}


@rule("non-finite", needs=("rank.guards",))
def non_finite(evidence: RunEvidence) -> Iterable[Finding]:
    """One finding: the earliest step, and of that step the ranks whose own forward made it."""
    found = facts(evidence, "non-finite")
    if not found:
        return
    first = min((f.step for f in found if f.step is not None), default=None)
    earliest = [f for f in found if f.step == first]
    own = [f for f in earliest if f.fields.get("made") in _OWN] or earliest
    same = [f for f in own if _key(f.fields) == _key(own[0].fields)]
    others = len({f.rank for f in found} - {f.rank for f in same})
    summary, cause = _summary_and_cause(same)
    if others:
        cause += f" {counted(others, 'other rank')} got it later, or with the averaged gradients."
    cause += _saved(same[0], found)
    made = own[0].fields.get("made")
    fatal = made in _FATAL or any(f.fields.get("stepped") or f.fields.get("lasting") for f in found)
    sure = made in ("module", "data", *_FATAL) and own[0].fields.get("traced") is not False
    yield guard_finding(evidence, "non-finite", same, summary, cause, severity="error" if fatal else "warning",
                  confidence="certain" if sure else "likely")  # fmt: skip


def _saved(one: GuardFact, found: Facts) -> str:
    """Where `--on-nonfinite dump` saved the batch and the model, and whether they can be replayed."""
    dump, folder = one.fields.get("dump"), _folder(one)
    if not isinstance(dump, dict) or not folder:
        return ""
    because = dump.get("because")
    because = because if isinstance(because, dict) else {}
    missing = grouped((str(why), str(name)) for name, why in because.items() if name != "script.py")
    if missing:
        why = "; ".join(f"without {' and '.join(names)}, because {why}" for why, names in missing.items())
        return f" What could be saved is in {folder} of the run, {why}."
    if left_out := dump.get("left_out"):
        return (f" The batch is saved in {folder} of the run, without what cannot be saved plainly "
                f"({', '.join(map(str, left_out[:3]))}): it cannot be run again.")  # fmt: skip
    return f" What went in is saved in {folder} of the run{_model(one, found)}"


def _model(one: GuardFact, found: Facts) -> str:
    """Another rank may have to save the model: with the weights of its own report, if it reported any."""
    rank = one.fields["dump"].get("model_of_rank")
    if rank is None:
        return ": `distdbg replay` runs it again."
    other = next((f for f in found if f.rank == rank and isinstance(f.fields.get("dump"), dict)), None)
    if other is None:
        return f", without the model: that was left to rank {rank}, which reported none. It cannot be run again."
    if other.step != one.step:
        return (f", without the model: that was left to rank {rank}, which saved it at step {other.step}, with other "
                "weights. `distdbg replay` refuses that.")  # fmt: skip
    files = other.fields["dump"].get("files")
    if not isinstance(files, list) or "state.pt" not in files or "model.pkl" not in files:
        return f", without the model: rank {rank}, to which that was left, could not save it. It cannot be run again."
    return f", and the model in {_folder(other)}: `distdbg replay` runs it again."


def _folder(fact: GuardFact) -> str:
    return f"{fact.citation.path.rpartition('/')[0]}/nonfinite" if fact.citation is not None else ""


def _key(fields: Mapping[str, Any]) -> tuple[object, ...]:
    return fields.get("made"), fields.get("module"), fields.get("before")


def _summary_and_cause(found: Facts) -> tuple[str, str]:
    fields = found[0].fields
    if fields.get("made") == "logged":
        return _as_logged(found[0])
    made, module, at = fields.get("made"), _name(fields.get("module")), f"at step {found[0].step}"
    why = [f"The backward began at {place(found[0])}."] if made != "gradient" and found[0].where else []
    if made == "losses":
        skipped = "No optimizer has stepped meanwhile: a scaler of gradients, or the script, leaves these steps out."
        masked = "The optimizer steps, and the weights are finite: something sets the gradients to other values."
        why.append(masked if fields.get("masked") else skipped)
    elif fields.get("loss"):
        why.append(f"The loss was {fields['loss']}.")
    if made == "weights":
        why.append("A loss that is not finite makes all gradients so, and a step on them the weights. "
                   "`--watch numerics` names the module and the step that made it.")  # fmt: skip
    elif fields.get("bad_weights") and made != "gradient":
        why.append(f"{fields['bad_weights']} of {fields.get('weights')} parameters were already not finite then: what "
                   "made it may lie in a step before.")  # fmt: skip
    elif fields.get("late"):
        why.append("It was looked at a step after it was first seen, as on a GPU; the weights are still finite.")
    if made == "gradient" and fields.get("after") is not None:
        why.append(f"The gradients of {_name(fields['after'])}, from which a backward comes, are finite: what lies "
                   "between the two made it.")  # fmt: skip
    if fields.get("gone"):
        why.append(f"The outputs of {fields['gone']} modules before it could no longer be looked at.")
    of = "The model's" if made in ("loss", "data") else "Its"
    subjects = {"input": f"{of} input", "output": f"{of} output", "batch": "The batch is not finite, either"}
    why += [
        f"{words}: {_figures(fields[key])}." for key, words in subjects.items() if isinstance(fields.get(key), dict)
    ]
    if fields.get("traced") is False:
        why.append(
            f"The same samples are not finite behind {module}, the first module whose output could be looked at."
        )
    if not fields.get("stepped") and made != "losses":
        why.append("No optimizer was seen to step on gradients that are not finite.")
    return _summary(fields, made, module, at), " ".join(why)


def _as_logged(fact: GuardFact) -> tuple[str, str]:
    """What a training log shows of a job that something else launched: the values, and not what made them."""
    values, lasting = fact.fields["values"], fact.fields.get("lasting")
    words = " and ".join(f"{name} is {value}" for name, value in values.items())
    at = f"at step {fact.step} " if fact.step is not None else ""
    loss = (
        "The loss stays so until the end of the log: nothing is learnt any more."
        if lasting
        else (
            "The log shows finite losses: gradients that are not finite come from the backward, or from another rank."
        )
    )
    return f"{at}{words} (line {fact.fields.get('line')}), and no later value is finite", (
        f"{loss} `distdbg launch --watch numerics` names the module and the step that made it."
    )


def _summary(fields: Mapping[str, Any], made: object, module: str, at: str) -> str:
    because, of = fields.get("because"), f" of {module}" if fields.get("module") is not None else ""
    words = {
        "module": f"the output of {module} is the first that is not finite",
        "before": f"{module} made a value that is not finite, before {_name(fields.get('before'))} in its forward",
        "near": f"the output of {module} is the first seen that is not finite; {because}",
        "data": f"the batch already held values that are not finite ({_kinds(fields)}): it is the data, no module "
        "made them",
        "loss": "the loss is not finite, and all modules' outputs are: it was made in the loss, or in its targets",
        "weights": f"the weights are not finite ({fields.get('bad_weights')} of {fields.get('weights')} parameters "
        "that were looked at): nothing is learnt any more",
        "losses": f"each of {fields.get('losses')} losses in a row is {fields.get('loss')}: nothing is learnt any more",
        "gradient": f"the gradient{of} is the first that is not finite, though the loss was "
        f"({fields.get('bad_gradients')} of {fields.get('gradients')} gradients)",
    }
    unknown = f"the loss or the gradients are not finite; the module is not known, because {because}"
    return f"{at} {words.get(str(made), unknown)}"


def _name(module: object) -> str:
    return "the model's own forward" if module == "" else str(module)


def _kinds(fields: Mapping[str, Any]) -> str:
    """`1 NaN, 2 inf`: the values of the input that are not finite."""
    tensor = fields.get("input")
    counts = tensor if isinstance(tensor, dict) else {}
    return ", ".join(f"{counts[key]} {word}" for key, word in _BAD_VALUES.items() if counts.get(key))


def _figures(tensor: Mapping[str, Any]) -> str:
    """`float32[8, 4], 3 NaN, 1 inf of 32, 2 zeros, finite from -1.5 to 0.25, mean 0.1`."""
    sizes = tensor.get("shape")
    shape = ", ".join(map(str, sizes)) if isinstance(sizes, list) else ""
    bad = [f"{tensor[key]} {word}" for key, word in _BAD_VALUES.items() if tensor.get(key)]
    words = [f"{tensor.get('dtype')}[{shape}]", f"{', '.join(bad)} of {tensor.get('count')}" if bad else "all finite"]
    if tensor.get("zeros"):
        words.append(f"{tensor['zeros']} zeros")
    if "min" in tensor:
        words.append(f"finite from {tensor['min']:.3g} to {tensor['max']:.3g}, mean {tensor['mean']:.3g}")
    return ", ".join(words)
