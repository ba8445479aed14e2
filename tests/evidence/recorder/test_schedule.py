"""The schedule of a rank: sizes, what must agree, and the user's line, from entries of torch's recorder."""

from dataclasses import replace

from distdbg.evidence.recorder.schedule import read_schedule, with_modules

TORCH = "/opt/lib/python3.11/site-packages/torch/distributed"


def entry(name="nccl:all_reduce", takes=((4, 8),), gives=((4, 8),), kind="Float", frames=(), at=5, number=1):
    return {
        "process_group": ["0", "default_pg"], "profiling_name": name, "time_created_ns": at,
        "is_p2p": " " in name, "collective_seq_id": number,
        "input_sizes": [list(shape) for shape in takes], "input_dtypes": [kind] * len(takes),
        "output_sizes": [list(shape) for shape in gives], "output_dtypes": [kind] * len(gives),
        "frames": [{"name": f, "filename": file, "line": line} for f, file, line in frames],
    }  # fmt: skip


def test_the_larger_side_counts_and_the_inputs_must_agree():
    gather = entry("nccl:_all_gather_base", takes=[(8,)], gives=[(64,)], kind="BFloat16")
    scatter = entry("nccl:_reduce_scatter_base", takes=[(64,)], gives=[(8,)], kind="Double")
    found = read_schedule({"entries": [entry(), gather, scatter]})
    assert [(one.operation, one.bytes, one.agrees) for one in found] == [
        ("all_reduce", 128, 128), ("all_gather_into_tensor", 128, 16), ("reduce_scatter_tensor", 512, 512),
    ]  # fmt: skip


def test_an_exchange_of_parts_of_different_sizes_agrees():
    ones, others = (entry("nccl:all_to_all", takes=[(size,)], gives=[(8,)]) for size in (3, 5))
    first, second = read_schedule({"entries": [ones, others]})
    assert first.what == second.what and first.bytes == 32


def test_the_users_line_and_the_phase():
    frames = (
        ("all_gather_single", f"{TORCH}/distributed_c10d.py", 1),
        ("unshard", f"{TORCH}/fsdp/_fully_shard/_fsdp_param_group.py", 2),
        ("_pre_backward", f"{TORCH}/fsdp/_fully_shard/_fsdp_state.py", 3),
        ("forward", "/home/me/gpt.py", 80),
    )
    before, alone = read_schedule({"entries": [entry(frames=frames), entry()]})
    assert (before.line.file, before.line.line, before.phase) == ("/home/me/gpt.py", 80, "backward")
    assert (alone.line, alone.phase) == (None, "backward"), "without Python it is autograd's thread"
    assert read_schedule({"entries": [entry()]})[0].phase == "", "a recorder without frames tells nothing"


def test_the_module_is_that_of_the_innermost_span():
    one, *_ = read_schedule({"entries": [entry()]})
    spans = [[1, 4, "layers.0"], [0, 9, "model"], "x", [1, "2", "x"]]
    found = with_modules([replace(one, at=at) for at in (3, 6, 12)], spans)
    assert [operation.module for operation in found] == ["layers.0", "model", ""]


def test_what_not_every_rank_enqueues_has_no_number():
    closes = entry("nccl:coalesced", takes=(), gives=(), number=4)
    names = ("nccl:all_reduce", "nccl:send 0->1", "nccl:recv 0<-1")
    found = read_schedule({"entries": [*(entry(name, number=4) for name in names), closes]})
    assert [(one.operation, one.number) for one in found] == [
        ("all_reduce", 4), ("send", -1), ("recv", -1), ("coalesced", -1),
    ]  # fmt: skip


def test_entries_of_another_form_are_left_out():
    broken = [None, {}, {**entry(), "process_group": None}, {**entry(), "time_created_ns": "x"}]
    assert len(read_schedule({"entries": [*broken, entry()]})) == 1
    assert read_schedule(None) == read_schedule({"entries": 3}) == ()
