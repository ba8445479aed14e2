import os
import re
import shlex
import subprocess

import pytest

from distdbg.errors import UsageError
from distdbg.launch.io.ports import ReservedPort
from distdbg.launch.plan.dry_run import render_dry_run
from distdbg.launch.plan.job import BOOT, make_plan
from distdbg.launch.plan.shell_words import argument_words, quote
from distdbg.launch.plan.topology import Gpu, MachineFacts
from distdbg.settings import JobSettings


def plan(environ=None, gpus=(), **settings):
    settings = JobSettings(**({"script": "t.py"} | settings))
    machine = MachineFacts(8, tuple(Gpu(i) for i in range(gpus)) if gpus else (), "2.13.0")
    return make_plan(settings, environ or {}, machine, port=1234, run_id="job", origins={"env.A": "job file j.yaml"})


def flags(node):
    """torchrun's arguments up to the program, by name."""
    words = list(node.torchrun)
    stop = words.index(str(BOOT)) if str(BOOT) in words else words.index("--")
    found, name = {}, ""
    for word in words[:stop]:
        if word.startswith("--"):
            name, _, found[name] = word.partition("=")
            found[name] = found.pop(name)
        else:
            found[name] = word
    return found


def test_one_node():
    (node,) = plan(args=["--lr", "1"]).nodes
    assert flags(node) == {
        "--nnodes": "1",
        "--rdzv-backend": "c10d",
        "--rdzv-endpoint": "127.0.0.1:1234",
        "--rdzv-id": "job",
        "--local-addr": "127.0.0.1",
        "--rdzv-conf": "is_host=1",
        "--nproc-per-node": "1",
        "--logs-specs": "distdbg",
    }
    assert node.torchrun[-4:] == (str(BOOT), "t.py", "--lr", "1")
    assert os.path.isabs(BOOT) and os.path.exists(BOOT)


def test_two_local_nodes_share_one_store_and_keep_their_order():
    made = plan(nodes=2, nproc_per_node=2, gpus=4, torchrun={"rdzv-conf": "timeout=99"})
    first, second = map(flags, made.nodes)
    assert first["--rdzv-endpoint"] == second["--rdzv-endpoint"] == "127.0.0.1:1234"
    assert (first["--rdzv-conf"], second["--rdzv-conf"]) == ("is_host=1,timeout=99", "is_host=0,timeout=99")
    assert first["--local-addr"] < second["--local-addr"]
    dealt = [{v.name: v.value for v in n.environment}["CUDA_VISIBLE_DEVICES"] for n in made.nodes]
    assert dealt == ["0,1", "2,3"]
    assert made.topology["world_size"] == 4
    assert not made.inherit_stdin


@pytest.mark.parametrize(
    ("torchrun", "world"),
    [
        ({"rdzv-endpoint": "host0:29400", "nnodes": "2", "rdzv-backend": "c10d"}, None),
        ({"node-rank": "1", "master-addr": "host0", "master-port": "29500", "nnodes": "2"}, None),
        ({"nnodes": "1:4", "rdzv-backend": "etcd-v2", "rdzv-endpoint": "e:2379"}, None),
        ({"rdzv-endpoint": "localhost:0", "rdzv-backend": "c10d"}, 2),
    ],
)
def test_one_node_of_n_is_passed_through_untouched(torchrun, world):
    nodes = int(torchrun["nnodes"]) if torchrun.get("nnodes", ":").isdecimal() else 1
    made = plan(
        nodes=nodes, nproc_per_node=2, torchrun={k: v for k, v in torchrun.items() if k != "nnodes" or ":" in v}
    )
    (node,) = made.nodes
    found = flags(node)
    assert {f"--{k}": v for k, v in torchrun.items()}.items() <= found.items()
    assert not {"--local-addr", "--rdzv-conf", "--rdzv-id"} & set(found)
    assert made.topology["world_size"] == world
    assert made.topology["one_of_many"] is (world is None)


def test_torchruns_other_ways_to_meet():
    first, second = map(flags, plan(nodes=2, torchrun={"rdzv-backend": "static"}).nodes)
    assert (first["--node-rank"], second["--node-rank"]) == ("0", "1")
    assert first["--master-port"] == "1234"
    assert "--rdzv-endpoint" not in first
    (node,) = plan(torchrun={"standalone": ""}).nodes
    assert "--standalone" in flags(node) and "--rdzv-endpoint" not in flags(node)
    asked = flags(plan(torchrun={"master-port": "777"}).nodes[0])
    assert (asked["--rdzv-backend"], asked["--master-port"]) == ("static", "777"), "the ranks' MASTER_PORT, as there"
    assert len(plan(torchrun={"nnodes": "2:2"}).nodes) == 2


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"nodes": 2, "torchrun": {"standalone": ""}}, "--standalone is one node"),
        ({"torchrun": {"max-restarts": "x"}}, "'x' is not a number of restarts"),
        ({"torchrun": {"max-restarts": "-1"}}, "below 0"),
        ({"torchrun": {"monitor-interval": "often"}}, "'often' is not a number of seconds"),
        ({"nodes": 2, "torchrun": {"node-rank": "2", "master-addr": "host0"}}, "--node-rank 2 is none of 2 nodes"),
        ({"torchrun": {"node-rank": "x"}}, "--node-rank 'x'"),
        ({"torchrun": {"nnodes": "4:1"}}, "'4:1' is neither"),
        ({"torchrun": {"nnodes": "0:1"}}, "'0:1' is neither"),
        ({"torchrun": {"tee": "9"}}, "--tee '9'"),
        ({"torchrun": {"local-ranks-filter": "a"}}, "--local-ranks-filter 'a'"),
        ({"presets": ["debgu"]}, "'debug'"),
    ],
)
def test_what_cannot_be(settings, says):
    with pytest.raises(UsageError) as error:
        plan(**settings)
    assert says in str(error.value)


def test_restarts_over_local_nodes_get_a_store_of_their_own():
    def shared(environ=None, **settings):
        (node, *_) = plan(environ, nproc_per_node=1, **settings).nodes
        return {v.name: v.value for v in node.environment}.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE")

    assert shared(nodes=2, torchrun={"max-restarts": "1"}) == "1"
    assert shared(nodes=2) is None
    assert shared(torchrun={"max-restarts": "1"}) is None
    assert shared({"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"}, nodes=2, torchrun={"max-restarts": "1"}) == "0"


def test_torchrun_waits_as_long_as_the_grace_period():
    def torchs_timeout(environ=None, **settings):
        (node,) = plan(environ, **settings).nodes
        return {v.name: v.value for v in node.environment}.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")

    assert torchs_timeout(grace=30.5) == "31"
    assert torchs_timeout() is None, "its own 30 s are enough"
    assert torchs_timeout(grace=300, torchrun={"shutdown-timeout": "5"}) is None
    assert torchs_timeout({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "5"}, grace=300) in (None, "5")
    assert torchs_timeout(grace=300, env={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "5"}) == "5"


def test_programs():
    assert plan(script=None, module="m", args=["a"]).program == (str(BOOT), "-m", "m", "a")
    assert plan(script=None, command="sh", args=["-c", "x"]).program == ("--no-python", "--", "sh", "-c", "x")
    off = plan(worker_side="off", args=["--", "a"])
    assert (off.program, off.worker_side) == (("--", "t.py", "--", "a"), "off")
    assert plan(script=None, module="m", worker_side="off").program == ("--module", "--", "m")
    in_torchrun = plan(torchrun={"run-path": ""})
    assert (in_torchrun.program, in_torchrun.worker_side) == (("--", "t.py"), "off")


def test_switches_in_variables_are_reported_once():
    """torchrun would take boot.py for a module."""
    (node,) = plan({"PET_MODULE": "1", "PET_NNODES": "1"}).nodes
    assert node.unset == ("PET_MODULE",)


def test_whoever_names_torchruns_logs_gets_them():
    for asked in ({"logs-specs": "mine"}, {"duplicate-stdout-filters": "loss"}, {"run-path": ""}):
        made = plan(torchrun={**asked, "tee": "3"})
        assert not made.capture
        assert "distdbg" not in flags(made.nodes[0]).values()
        assert flags(made.nodes[0])["--tee"] == "3", "and with them the flags that go with them"
        assert "torchrun keeps the logs" in made.notes[-1]
    assert "--tee" not in flags(plan(torchrun={"tee": "3"}).nodes[0])
    assert flags(plan(capture=False, torchrun={"tee": "3"}).nodes[0])["--tee"] == "3"


@pytest.mark.parametrize(
    ("torchrun", "shown"),
    [
        ({}, "0"),
        ({"tee": "3"}, "all"),
        ({"redirects": "3"}, "none"),
        ({"redirects": "3", "tee": "0:3"}, "0,2"),
        ({"redirects": "1:3"}, "0,2"),
        ({"redirects": "1"}, "all"),
        ({"local-ranks-filter": "1"}, "1,3"),
        ({"tee": "3", "local-ranks-filter": "0,1"}, "all"),
        ({"local-ranks-filter": "7"}, "none"),
    ],
)
def test_torchruns_flags_say_whose_output_is_shown(torchrun, shown):
    assert plan(nodes=2, nproc_per_node=2, torchrun=torchrun).show_ranks == shown
    assert plan(nodes=2, nproc_per_node=2, torchrun=torchrun, show_ranks="3").show_ranks == "3"


@pytest.mark.parametrize("option", ["show_ranks", "profile_ranks"])
def test_ranks_that_are_not_there_are_no_choice(option):
    more = {"profile": "3:4"} if option == "profile_ranks" else {}
    with pytest.raises(UsageError, match=r"ranks 4-7: the job has ranks 0 to 3"):
        plan(nodes=2, nproc_per_node=2, **{option: "4-7"}, **more)
    plan(nodes=2, nproc_per_node=2, **{option: "3-7"}, **more)  # a job file may be for other sizes, too


def test_origins_and_values_for_each_rank():
    made = plan({"NCCL_DEBUG": "INFO"}, env={"A": "{rank}"}, presets=["network"])
    origins = {v.name: (v.value, v.origin) for v in made.nodes[0].environment}
    assert origins["A"] == ("{rank}", "job file j.yaml"), "the user's own is taken as it stands"
    assert origins["NCCL_DEBUG"] == ("INFO", "inherited")
    assert "NCCL_DEBUG_FILE" not in origins | made.rank_env
    assert made.rank_env["NCCL_TOPO_DUMP_FILE"] == "{rank_dir}/topology.xml"
    assert {v.origin for v in made.nodes[0].environment} >= {"preset default", "preset network"}


@pytest.mark.parametrize(
    "text", ["plain", "a b", "it's", "x\ny", "tab\t", os.fsdecode(b"caf\xe9 'x'\\"), "$(id)`id`", ""]
)
def test_quoted_words_come_through_a_shell(text):
    done = subprocess.run(["bash", "-c", f"printf %s {quote(text)}"], capture_output=True, check=True)
    assert done.stdout == os.fsencode(text)


def test_a_dry_run_is_shell(tmp_path):
    """bash reads it without complaint, whatever stands in values, origins and notes."""
    made = plan({"NCCL_DEBUGG": "\n$(touch x)"}, nodes=2, env={"A-B": "x", "C": "a'b\nc", "PET": os.fsdecode(b"\xff")})
    done = subprocess.run(["bash", "-n"], input=os.fsencode(render_dry_run(made)), capture_output=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b""), render_dry_run(made)
    assert "# job file" not in render_dry_run(made)
    assert "env A-B=x " in render_dry_run(made)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "environment", "args"),
    [
        (["--run-path"], {}, []),
        ([], {"PET_MODULE": "1"}, ["--", "-q"]),
        (["--virtual-local-rank", "--role", "r", "--shutdown-timeout", "9", "--master_port", "{port}"], {}, ["port"]),
        (["--worker-side", "off"], {}, ["a", "--", "-m"]),
    ],
)
def test_flags_that_torchrun_acts_on_do_the_same_here(distdbg, torchrun, tmp_path, options, environment, args):
    text = "import os, sys\nnames = ['LOCAL_RANK', 'WORLD_SIZE', 'ROLE_NAME']\n"
    text += "port = os.environ['MASTER_PORT'] if 'port' in sys.argv[1:] else ''\n"
    (tmp_path / "who.py").write_text(text + "print(__name__, sys.argv[1:], *(os.environ[n] for n in names), port)\n")
    program = "who" if "PET_MODULE" in environment else str(tmp_path / "who.py")
    port = str(ReservedPort().number)
    options = [port if option == "{port}" else option for option in options]
    plain = torchrun(*(o for o in options if o not in ("--worker-side", "off")), program, *args, env=environment)
    ours = distdbg("launch", *options, program, *args, env=environment)
    assert plain.code == 0, plain
    assert (ours.code, ours.out) == (plain.code, plain.out), ours


def test_a_dry_run_shows_no_secret_and_says_what_is_missing():
    words = ("--api-key", "k3y word", "--lr", "3", "hf_abcdefghijklm")
    made = plan(env={"DB_PASSWORD": "pa ss", "LR": "1", "A-TOKEN": "t0ken"}, args=words)
    text = render_dry_run(made)
    assert not [value for value in ("k3y", "pa ss", "t0ken", "hf_abc") if value in text], text
    head = next(line for line in text.splitlines() if "secrets are not shown" in line)
    names = ["DB_PASSWORD", "DISTDBG_SECRET_API_KEY", "DISTDBG_SECRET_A_TOKEN"]
    assert all(name in head for name in names) and "export LR=1 " in text
    values = {"DB_PASSWORD": "pa ss", "DISTDBG_SECRET_API_KEY": "k3y word", "DISTDBG_SECRET_A_TOKEN": "t0ken"}
    values["DISTDBG_SECRET_1"] = words[-1]
    shell = re.sub(r"\S+ (-P )?-m torch.distributed.run", r"printf '%s\\n'", text)
    done = subprocess.run(["bash"], input=shell, capture_output=True, text=True, env=values)
    assert done.stdout.splitlines()[-5:] == list(words), done


@pytest.mark.slow
def test_a_dry_run_that_is_pasted_runs_the_job(distdbg, tmp_path):
    script = tmp_path / "it's me.py"
    script.write_text("import os, sys\nopen(f'{sys.argv[1]}-{os.environ[\"RANK\"]}', 'w').write(os.environ['ODD'])\n")
    options = ["--nodes", "2", "--nproc-per-node", "2", "--env", "ODD=a 'b'\nc", "--dry-run"]
    shown = distdbg("launch", *options, script.name, "out put")
    assert shown.code == 0, shown
    assert not list(tmp_path.glob("out*")), "a dry run runs nothing"
    done = subprocess.run(["bash"], input=shown.out, text=True, cwd=tmp_path, capture_output=True, timeout=100)
    written = {path.name: path.read_text() for path in tmp_path.glob("out*")}
    assert written == {f"out put-{rank}": "a 'b'\nc" for rank in range(4)}, done
    assert shlex.split(shown.out, comments=True)


def test_repeated_secret_options_have_variables_of_their_own():
    words = list(argument_words(["--api-key", "Zq81kdm2", "--api-key=Yw72pqn4", "--api-key", "Zq81kdm2"]))
    values = {name: value for word in words for name, value in word.secrets.items()}
    assert sorted(values.values()) == ["Yw72pqn4", "Zq81kdm2"] and len(values) == 2, words
