"""Names that a rank writes beside its snapshot, and what the peak says with them; files are of torch's own form."""

from distdbg.evidence.memory.analysis import analyse
from distdbg.evidence.memory.answer import as_plain, from_plain
from distdbg.evidence.memory.owners import KEY, folded, module_of_name, read_owners
from distdbg.report.memory_report import MemoryUse, memory_report
from distdbg.report.page.memory_page import memory_page
from distdbg.report.text.memory_text import memory_lines
from distdbg.report.text.screen import Screen
from tests.made_snapshot import CALL, MAIN, MIB, TORCH, Made, backward, forward, model_init, optimizer, snapshot

LINEAR = (f"{TORCH}/nn/modules/linear.py", 125, "forward")
FORWARDS = [
    ["/home/me/model.py", 60, 70, "Net", [""]],
    ["/home/me/model.py", 30, 40, "Block", ["layers.*"]],
    ["/home/me/model.py", 45, 48, "Gate", ["layers.*.gate", "head.gate"]],
    [LINEAR[0], 120, 126, "Linear", []],
]


def memory_text(answers, **how):
    return "\n".join(memory_lines(MemoryUse(answers), Screen.of(**how)))


def block_of(*innermost):
    """A stack through Net and Block."""
    return [*innermost, *forward(35)[:1], CALL, *forward(64)[:1], CALL, MAIN]


def owned(made, blocks, **more):
    with_names = snapshot(made)
    with_names[KEY] = {"schema": "distdbg.owners/1", "left_out": 0, "blocks": blocks, "forwards": FORWARDS, **more}
    return with_names


def built():
    """(device, what each address is): a model with a buffer, its gradients, one optimizer's state, activations."""
    made = Made()
    weight = [made.alloc(8 * MIB, model_init(12)) for _ in range(2)]
    running = made.alloc(3 * MIB, model_init(13))
    scratch = made.alloc(2 * MIB, model_init(14))  # in __init__, and nobody's
    made.alloc(5 * MIB, block_of(LINEAR, CALL))
    made.alloc(6 * MIB, block_of(("/home/me/model.py", 46, "forward"), CALL))
    made.alloc(4 * MIB, [("/home/me/train.py", 7, "loss"), MAIN])
    grads = [made.alloc(8 * MIB, backward()) for _ in range(2)]
    state = made.alloc(16 * MIB, optimizer())
    blocks = [[0, at, 8 * MIB, "parameters", f"layers.{n}.weight"] for n, at in enumerate(weight)]
    blocks += [[0, at, 8 * MIB, "gradients", f"layers.{n}.weight"] for n, at in enumerate(grads)]
    blocks += [[0, running, 3 * MIB, "buffers", "norm.running_mean"]]
    blocks += [[0, state, 16 * MIB, "optimizer state", "exp_avg of layers.1.weight"]]
    return made, blocks, scratch


def test_buffers_have_a_kind_and_modules_their_share():
    made, blocks, _ = built()
    (answer,) = analyse(owned(made, blocks))
    assert answer.peak.kinds == {"parameters": 16 * MIB, "gradients": 16 * MIB, "optimizer state": 16 * MIB,
                                 "activations": 11 * MIB, "unattributed": 6 * MIB, "buffers": 3 * MIB}  # fmt: skip
    assert answer.peak.modules == {
        "layers.*": {"parameters": 16 * MIB, "gradients": 16 * MIB, "optimizer state": 16 * MIB},
        "layers.*.gate": {"activations": 6 * MIB},
        "layers.*: Linear": {"activations": 5 * MIB},
        "norm": {"buffers": 3 * MIB},
    }
    assert answer.peak.phases == {"init": 21 * MIB, "backward": 16 * MIB, "optimizer": 16 * MIB, "forward": 11 * MIB,
                                  "elsewhere": 4 * MIB}  # fmt: skip
    names = {answer.stacks[h.stack].label: h.names for h in answer.peak.holders}
    assert names["model.py:12 __init__"] == "layers.1.weight and 1 more" and names["model.py:35 forward"] == ""
    assert from_plain(as_plain(answer)) == answer
    text = memory_text([answer], color=False, width=140)
    assert "buffers 3.00 MiB (4 %)" in text and "exp_avg of layers.1.weight" in text
    assert "48.0 MiB layers.* (parameters 16.0 MiB, gradients 16.0 MiB, optimizer state 16.0 MiB)" in text
    assert "made in: init 21.0 MiB · backward 16.0 MiB · optimizer 16.0 MiB · forward 11.0 MiB" in text
    assert "6.00 MiB in others, or in none that is known" in text
    assert memory_report([answer]).verdict == ()


def test_the_page_shows_them_and_a_name_is_no_markup():
    made, blocks, _ = built()
    blocks[-1][4] = "exp_avg of <script>alert(1)</script>.weight"
    (answer,) = analyse(owned(made, blocks))
    page = memory_page(memory_report([answer]), [answer])
    assert "The same by module" in page and "<b>layers.*.gate</b>" in page and "norm.running_mean" in page
    assert "&lt;script&gt;alert(1)" in page and "<script>alert" not in page
    (plain,) = analyse(snapshot(made))
    assert "by module" not in memory_page(memory_report([plain]), [plain])


def test_without_names_it_is_as_it_was():
    made, _, _ = built()
    (answer,) = analyse(snapshot(made))
    assert answer.peak.kinds["parameters"] == 21 * MIB and "buffers" not in answer.peak.kinds
    assert answer.peak.modules == {} and "by module" not in memory_text([answer], color=False, width=140)


def test_a_name_is_of_what_stood_when_the_file_was_written():
    made, blocks, _ = built()
    (_, address, _, _, _) = blocks[0]
    made.free(address)
    again = made.alloc(8 * MIB, block_of(LINEAR, CALL))
    assert again == address
    for _ in range(3):
        made.alloc(MIB, block_of(LINEAR, CALL))
    raw = owned(made, [[0, again, 8 * MIB, "parameters", "late.weight"]])
    (answer,) = analyse(raw)
    assert answer.last.modules["late"] == {"parameters": 8 * MIB}
    made.free(again)
    (after,) = analyse(owned(made, [[0, again, 8 * MIB, "parameters", "late.weight"]]))
    assert "late" not in after.peak.modules, "what had that address before is another tensor"


def test_what_came_to_that_address_while_names_were_looked_up_is_not_taken_for_it():
    made, blocks, _ = built()
    blocks[0][2] = 11 * MIB
    (answer,) = analyse(owned(made, blocks))
    assert answer.peak.modules["layers.*"]["parameters"] == 8 * MIB


def test_of_many_more_than_are_reported_those_made_in_a_model_are_still_parameters():
    made, blocks, _ = built()
    (answer,) = analyse(owned(made, blocks, left_out=7))
    assert answer.peak.kinds["parameters"] == 18 * MIB


def test_what_is_wrong_in_it_is_left_out():
    assert read_owners(None) is read_owners({"blocks": []}) is read_owners({"because": "KeyError"}) is None
    odd = {"schema": "distdbg.owners/1", "blocks": [[0, "x", 4, "parameters", "a"], [0, 1, 4, "gold", "a"], 5, [0, 2]],
           "forwards": [[1, 2, 3, "A", []], ["f", 1, 2, "A", 7], "x"]}  # fmt: skip
    owners = read_owners(odd)
    assert owners.blocks == {} and not owners.whole and owners.module_of([("f", 1, "forward")]) == "A"
    made, _, _ = built()
    (answer,) = analyse({**snapshot(made), KEY: odd})
    assert answer.peak.active == 68 * MIB


def test_paths_are_folded():
    assert folded("layers.3.mlp.0.fc1") == "layers.*.mlp.*.fc1" and folded("fc1.h2") == "fc1.h2" and folded("7") == "*"
    assert module_of_name("exp_avg of layers.3.weight and 4 more in one block") == "layers.*"
    assert module_of_name("weight") == ""


def test_frames_of_distdbg_are_no_callers():
    """A rank that distdbg has launched from a source checkout has them outside the script's own."""
    made = Made()
    ours = [("/home/me/distdbg/distdbg/worker/bootstrap.py", 65, "_run_script")]
    made.alloc(8 * MIB, [("/home/me/train.py", 7, "step"), MAIN, *ours])
    (answer,) = analyse(snapshot(made))
    assert answer.stacks[answer.peak.holders[0].stack].callers == ("train.py:7 step", "train.py:90 <module>")
