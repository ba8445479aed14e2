"""Where in the model an operation of the flight recorder belongs, by the calls and the heartbeat page of its rank."""

import pytest

from distdbg.diagnosis.timeline.call_lines import ModelPlace, line_of, place_of
from distdbg.evidence.recorder.calls import Call
from tests.hang_cases import made
from tests.made_dump import TORCH, T

AT = int((T - 10) * 1e9)


def rank(*calls, **ages):
    return made(page={"heard": 7, **ages}, calls=calls)(0)


def unit(module, phase, t=AT - 1000, operation="all_gather_into_tensor"):
    return Call(
        t,
        operation,
        f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_collectives.py",
        9,
        "foreach_all_gather",
        module=module,
        phase=phase,
    )


def test_fsdp2_names_its_units():
    had = rank(unit("layers.2", "forward", AT - 5_000_000), unit("layers.3", "backward"), backward_t=T - 30.0)
    assert place_of(had, AT, "all_gather_into_tensor") == ModelPlace("layers.3", "backward")
    assert line_of(had, AT, "all_gather_into_tensor") is None  # torch's own line is none of the user's
    assert str(place_of(had, AT, "all_gather_into_tensor")) == " of module layers.3 in backward"


@pytest.mark.parametrize(
    ("ages", "phase"),
    [
        ({"forward_t": T - 12.0, "backward_t": T - 11.0, "optimizer_t": T - 9.0}, "backward"),  # the host ran ahead
        ({"forward_t": T - 12.0, "backward_t": T - 11.0, "optimizer_t": T - 20.0}, "backward"),
        ({"forward_t": T - 12.0, "backward_t": T - 9.0, "optimizer_t": T - 20.0}, "forward"),
        ({"forward_t": T - 30.0, "backward_t": T - 25.0, "optimizer_t": T - 20.0}, ""),
        ({"forward_t": T - 9.0, "backward_t": T - 8.0, "optimizer_t": T - 7.0}, ""),  # older than all of them
        ({}, ""),
    ],
)
def test_what_cpp_begins_is_of_the_phase_in_which_it_was_begun(ages, phase):
    """No call of Python's stands just before it."""
    had = rank(**ages)
    assert place_of(had, AT, "all_reduce") == ModelPlace(phase=phase)


def test_a_call_of_the_users_has_its_line_and_no_phase():
    """It may stand between backward and step."""
    call = Call(AT - 1000, "all_reduce", "/work/train.py", 30, "clip")
    assert place_of(rank(call, backward_t=T - 11.0), AT, "all_reduce") == ModelPlace()


def test_nothing_is_said_where_calls_were_lost():
    """The node's memory had no room for them: what C++ begins cannot be told from a call."""
    assert place_of(rank(calls=9, backward_t=T - 11.0), AT, "all_reduce") == ModelPlace()
