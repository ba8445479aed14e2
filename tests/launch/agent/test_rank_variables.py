"""Which of torchrun's variables a program of --no-python gets."""

import pytest

from distdbg.launch.agent.torchrun_process import RankVariables

GIVEN = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "4000", "TORCHELASTIC_USE_AGENT_STORE": "True"}


def test_mpirun_gets_none_of_them():
    changes = RankVariables(["--nnodes", "1", "--no-python", "--", "/usr/bin/mpirun", "-n", "2", "x"]).changes(GIVEN)
    assert changes == dict.fromkeys(GIVEN)


@pytest.mark.parametrize("program", [["python", "driver.py"], ["/venv/bin/accelerate", "launch", "train.py"]])
def test_another_program_gets_a_port_where_torchrun_serves_no_store(program):
    variables = RankVariables(["--no-python", "--", *program])
    changes = variables.changes(GIVEN)
    assert changes.pop("MASTER_PORT") not in (None, "4000")
    assert changes == {"TORCHELASTIC_USE_AGENT_STORE": None}
    assert variables.changes(GIVEN | {"TORCHELASTIC_USE_AGENT_STORE": "False"}) == {}, "the port is the user's"


def test_a_script_of_ours_and_one_rank_of_several_keep_what_torchrun_gives():
    assert RankVariables(["--nnodes", "1", "/distdbg/worker/boot.py", "accelerate"]).changes(GIVEN) == {}
    several = GIVEN | {"WORLD_SIZE": "2"}
    assert RankVariables(["--no-python", "--", "accelerate", "launch", "t.py"]).changes(several) == {}
