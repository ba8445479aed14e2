import os

from distdbg.launch.plan.environment import load_preset, preset_names, resolve


def values(presets=(), own=None, inherited=None, torch="2.13.0"):
    found, notes = resolve(presets, own or {}, {}, inherited or {}, torch)
    return {v.name: (v.value, v.origin) for v in found}, notes


def test_every_preset_explains_every_variable():
    assert preset_names() == ["debug", "default", "deterministic", "hang", "network", "sync-crash"]
    for name in preset_names():
        preset = load_preset(name)
        assert preset.summary
        for variable in preset.variables:
            assert variable.value
            assert variable.reason
            assert variable.cost
            assert variable.since
            assert variable.source.startswith("https://"), variable.name


def test_the_users_own_always_win_and_are_shown():
    found, notes = values(["debug"], inherited={"NCCL_DEBUG": "VERSION"})
    assert found["NCCL_DEBUG"] == ("VERSION", "inherited")
    assert any("NCCL_DEBUG=VERSION is yours" in note for note in notes)
    assert "NCCL_DEBUG_FILE" not in found, "who asks NCCL to talk reads it on the terminal"
    found, _ = values(own={"TORCH_FR_BUFFER_SIZE": "5"}, inherited={"TORCH_FR_BUFFER_SIZE": "6"})
    assert found["TORCH_FR_BUFFER_SIZE"] == ("5", "command line")


def test_what_is_inherited_and_matters_is_shown():
    found, notes = values(inherited={"NCCL_IB_HCA": "mlx5_0", "OMP_NUM_THREADS": "4", "HOME": "/root", "HF_TOKEN": "x"})
    assert (found["NCCL_IB_HCA"], found["OMP_NUM_THREADS"]) == (("mlx5_0", "inherited"), ("4", "inherited"))
    assert not {"HOME", "HF_TOKEN"} & set(found)
    assert notes == []


def test_an_old_name_of_the_users_keeps_out_the_new_one():
    """torch reads the new name first: a preset must not override what was set under the old one."""
    found, notes = values(inherited={"NCCL_ASYNC_ERROR_HANDLING": "1"})
    assert "TORCH_NCCL_ASYNC_ERROR_HANDLING" not in found
    assert any("NCCL_ASYNC_ERROR_HANDLING=1 is yours" in note for note in notes)
    found, _ = values(own={"TORCH_NCCL_TRACE_BUFFER_SIZE": "7"})
    assert "TORCH_FR_BUFFER_SIZE" not in found
    assert found["TORCH_NCCL_TRACE_BUFFER_SIZE"] == ("7", "command line")


def test_a_later_preset_goes_over_an_earlier_one():
    found, notes = values(["hang"])
    assert found["TORCH_FR_BUFFER_SIZE"] == ("20000", "preset hang")
    assert found["NCCL_DEBUG"] == ("WARN", "preset default")
    assert notes == []


def test_old_names_are_set_for_old_torch_only():
    """torch 2.13 prints a warning for them: a byte on standard error that the script did not write."""
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" not in values()[0]
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" in values(torch="2.8.0+cu128")[0]
    assert "TORCH_NCCL_DEBUG_INFO_TEMP_FILE" in values(torch="2.8.0")[0]


def test_an_environment_that_is_no_utf8_survives():
    odd = os.fsdecode(b"caf\xe9")
    assert values(own={"ODD": odd})[0]["ODD"] == (odd, "command line")
