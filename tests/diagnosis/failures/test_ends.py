"""How a rank left, by its own record: the line of sys.exit and os._exit, and the exception behind it."""

import pytest

from tests.made_run import GLOO_LOST, MadeRun, traceback_text

LEFT = ["/home/me/train.py", 17, "main"]


@pytest.fixture
def run(tmp_path):
    return MadeRun(tmp_path, ranks=2, nodes=1)


def verdict(report):
    return [(f.id, f.ranks) for f in report.findings if f.explained_by is None]


@pytest.mark.parametrize(("how", "call"), [("SystemExit", "sys.exit(7)"), ("os._exit", "os._exit(7)")])
def test_the_line_that_ended_the_process_is_named(run, how, call):
    run.script_end(1, how, code=7, where=LEFT)
    run.exits(1, 7)
    run.raises(0, "RuntimeError", GLOO_LOST, t=9.95)
    report = run.closes().report()
    assert verdict(report) == [("rank-exception", (1,))]
    assert call in report.findings[0].summary
    assert report.findings[0].evidence[0].where == "train.py:17 in main"
    assert (report.exit_code, report.ranks[1].top_frame) == (7, "train.py:17 in main")


def test_an_exception_that_was_turned_into_sys_exit_is_the_cause(run):
    """As Hydra does; the other rank does the same with the error that followed."""
    run.raises(1, "ValueError", "bad row", t=9.0, code=1)
    run.script_end(1, "SystemExit", t=9.1, code=1, where=LEFT)
    run.raises(0, "RuntimeError", GLOO_LOST, t=9.4, code=1)
    run.script_end(0, "SystemExit", t=9.5, code=1, where=LEFT)
    report = run.closes().report()
    assert verdict(report) == [("rank-exception", (1,))]
    root = report.findings[0]
    assert root.evidence[0].where == "train.py:88 in step" and "sys.exit(1) at train.py:17 in main" in root.cause


@pytest.mark.parametrize("killed", [-15, -9])
def test_a_rank_that_cleans_up_when_it_is_ended_has_left_by_itself(run, killed):
    """Its exit code is the signal's: its own record tells that it had called sys.exit before."""
    run.script_end(1, "SystemExit", t=8.0, code=3, where=LEFT)
    run.exits(1, killed, t=10.0, asked=9.5)
    run.raises(0, "RuntimeError", GLOO_LOST, t=9.0)
    report = run.closes().report()
    assert verdict(report) == [("rank-exception", (1,))]
    assert (report.exit_code, report.exit_code_of) == (3, "rank 1")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("how", ["returned", "SystemExit", "os._exit"])
def test_a_rank_that_has_left_early_is_found_without_its_exit_code(run, how, known):
    """torchrun collected the process first, or ended it while the interpreter still shut down."""
    run.script_end(1, how, t=8.0, where=LEFT if how != "returned" else None)
    ends = {"code": -15, "t": 10.0, "asked": 9.5} if known else {"code": None, "t": 8.1}
    run.exits(1, **ends)
    run.raises(0, "RuntimeError", GLOO_LOST, t=9.0)
    assert verdict(run.closes().report()) == [("rank-exited-early", (1,))]


def test_a_rank_that_was_asked_first_has_not_left_by_itself(run):
    run.raises(0, "ValueError", "bad row", t=9.0)
    run.script_end(1, "SystemExit", t=9.6, code=1, where=LEFT)
    run.exits(1, 1, t=10.0, asked=9.5)
    assert verdict(run.closes().report()) == [("rank-exception", (0,))]


def test_the_line_in_the_data_set_is_the_place_of_a_workers_error(run):
    inner = traceback_text("KeyError", "'label'", "/home/me/rows.py", 8, "__getitem__").replace(
        "Trace", "Original Trace"
    )
    run.raises(1, "KeyError", f"Caught KeyError in DataLoader worker process 0.\n{inner}")
    run.exits(0, -15, asked=9.5)
    root = run.closes().report().findings[0]
    assert (root.id, root.ranks, root.evidence[0].where) == ("rank-exception", (1,), "rows.py:8 in __getitem__")
    assert "DataLoader worker process 0, for train.py:88 in step" in root.cause


@pytest.mark.parametrize(
    ("file", "finding"), [("torch/utils/data/dataloader.py", "loader-worker-died"), ("pool.py", "rank-exception")]
)
def test_a_killed_worker_is_known_by_where_its_connection_was_lost(run, file, finding):
    """torch names no worker where the connection to it breaks first."""
    message = "[Errno 104] Connection reset by peer"
    text = traceback_text("ConnectionResetError", message)
    last = "ConnectionResetError"
    below = (
        f'  File "/venv/lib/python3.11/site-packages/{file}", line 1291, in _try_get_data\n'
        '  File "/usr/lib/python3.11/multiprocessing/connection.py", line 395, in _recv\n'
    )
    run.fact(1, op="exception", uncaught=True, type=last, message=message, t=9.0, thread="MainThread",
             traceback=text.replace(f"{last}:", f"{below}{last}:"), where=LEFT)  # fmt: skip
    run.exits(1, 1)
    run.exits(0, -15, asked=9.5)
    assert verdict(run.closes().report()) == [(finding, (1,))]


COUNTS = "DDP expects same model across all ranks, but Rank {} has {} params, while rank {} has inconsistent {} params."
SIZES = "[{}]: params[0] in this process with sizes [{}, 4] appears not to match sizes of the same param in process 0."


@pytest.mark.parametrize(("sizes", "odd"), [((4, 4, 6), (2,)), ((6, 4, 4), (0,)), ((4, 6), (0, 1))])
def test_the_rank_with_another_number_of_parameters_is_named(tmp_path, sizes, odd):
    """Every rank raises; each names the first rank that differs from itself. Two ranks decide nothing."""
    run = MadeRun(tmp_path, ranks=len(sizes), nodes=1)
    for rank, own in enumerate(sizes):
        other = next(r for r, size in enumerate(sizes) if size != own)
        run.raises(rank, "RuntimeError", COUNTS.format(rank, own, other, sizes[other]))
    assert verdict(run.closes().report()) == [("collective-shape-mismatch", odd)]


@pytest.mark.parametrize(("raising", "odd"), [({2: 8}, (2,)), ({1: 8, 2: 8}, (0,)), ({1: 8, 2: 9}, (0, 1, 2))])
def test_where_most_ranks_differ_from_process_0_it_is_process_0(tmp_path, raising, odd):
    run = MadeRun(tmp_path, ranks=3, nodes=1)
    for rank in range(3):
        message = SIZES.format(rank, raising[rank]) if rank in raising else GLOO_LOST
        run.raises(rank, "RuntimeError", message)
    assert verdict(run.closes().report()) == [("collective-shape-mismatch", odd)]


SAVED = """CheckpointException ranks:dict_keys([1])
Traceback (most recent call last): (RANK 1)
  File "/venv/lib/python3.11/site-packages/torch/distributed/checkpoint/utils.py", line 241, in all_reduce
    local_data = map_fun()
  File "/home/me/state.py", line 8, in __reduce__
    raise ValueError("this object is not saved")
ValueError: this object is not saved"""
STATES = """FSDP currently requires each rank to have at least the optimizer states needed by rank 0's optimizer but \
some ranks are missing some of those states
Rank 2 is missing states for the parameters: [('0.bias',), ('0.weight',)]"""
ORDER = (
    "Forward order differs across ranks: rank 0 is all-gathering parameters for [['a.weight']] "
    "while rank {} is all-gathering parameters for [['b.weight']]"
)


@pytest.mark.parametrize(
    ("message", "ranks", "says"),
    [
        (SAVED, (1,), "ValueError: this object is not saved at state.py:8 in __reduce__"),
        (SAVED.replace("1]", "7]").replace("RANK 1", "RANK 7"), (0, 1, 2), "CheckpointException"),
        (STATES, (2,), "[('0.bias',), ('0.weight',)]"),
        (ORDER.format(2), (2,), "where ranks 0-1 gather parameters for [['a.weight']]"),
        (ORDER.format(1), (0, 1), "where rank 0 gathers parameters for [['a.weight']]"),
    ],
)
def test_the_rank_that_torch_names_is_the_root_of_an_error_that_all_ranks_raise(tmp_path, message, ranks, says):
    run = MadeRun(tmp_path, ranks=3, nodes=1)
    for rank in range(3):
        run.raises(rank, "torch.distributed.checkpoint.api.CheckpointException", message)
    report = run.closes().report()
    assert verdict(report) == [("rank-exception", ranks)]
    assert says in report.findings[0].summary
    assert ranks != (1,) or "state.py:8" in report.findings[0].cause, "what that rank raised is the cause"


HYDRA = ("hydra.errors.ConfigCompositionException", "Could not override 'lrr'.\nTo append to your config use +lrr=3",
         "omegaconf.errors.ConfigAttributeError", "Key 'lrr' is not in struct")  # fmt: skip
CLICK = ("click.exceptions.NoSuchOption", "No such option '--lrr'.", "KeyError", "'--lrr'")
ARGPARSE = ("argparse.ArgumentError", "argument --lr: invalid float value: 'x'", "ValueError", "no float: 'x'")


@pytest.mark.parametrize("refused", [HYDRA, CLICK, ARGPARSE], ids=lambda refused: refused[0].partition(".")[0])
def test_an_argument_that_a_library_refuses_is_said_of_the_line_that_called_it(run, refused):
    kind, message, first, reason = refused
    library = "/venv/lib/python3.11/site-packages/click/parser.py"
    link = "\nThe above exception was the direct cause of the following exception:\n\n"
    text = link.join(traceback_text(*one, file=library, function="parse") for one in ((first, reason), (kind, message)))
    for rank in range(2):
        run.fact(rank, op="exception", uncaught=True, type=kind, message=message, t=1.0, thread="MainThread",
                 traceback=text, where=[library, 88, "parse"])  # fmt: skip
        run.script_end(rank, "SystemExit", t=1.1, code=2, where=LEFT)
        run.exits(rank, 2)
    root = run.closes().report().findings[0]
    assert (root.id, root.ranks, root.evidence[0].where) == ("launch-failed", (0, 1), "train.py:17 in main")
    assert message.split("\n")[0] in root.summary and "It was raised at module.py:1776" in root.cause


@pytest.mark.parametrize(
    "said",
    ["ERROR: Could not consume arg: --lrr=3\nUsage: train.py -\n", "usage: t\nt.py: error: argument --lr: invalid"],
)
def test_an_argument_that_was_refused_without_an_exception(run, said):
    """As fire and argparse do."""
    for rank in range(2):
        run.prints(rank, said)
        run.script_end(rank, "SystemExit", t=1.1, code=2, where=LEFT)
        run.exits(rank, 2)
    root = run.closes().report().findings[0]
    assert (root.id, root.ranks, root.evidence[0].where) == ("launch-failed", (0, 1), "train.py:17 in main")
    assert "--lr" in root.summary


def test_a_key_that_the_script_reads_and_the_configuration_lacks(run):
    for rank in range(2):
        run.raises(rank, "omegaconf.errors.ConfigAttributeError", "Key 'nme' is not in struct", t=1.0)
    root = run.closes().report().findings[0]
    assert (root.id, root.evidence[0].where) == ("rank-exception", "train.py:88 in step")
