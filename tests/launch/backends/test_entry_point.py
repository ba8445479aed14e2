"""A backend of another package: found by its entry point, chosen by --on; a job runs through it to its report."""

from __future__ import annotations

import json
import os

import pytest

#: Two boxes on this machine. A plain shell carries each agent, as `docker exec` or `kubectl exec` would.
BOXES = """
import os
import socket

from distdbg.errors import UsageError
from distdbg.launch.backends.carriers import Carrier
from distdbg.launch.backends.carriers import agent_command, environment_along
from distdbg.launch.backends.remote_nodes import RemoteNodes
from distdbg.launch.backends.interface import Backend, Placed
from distdbg.launch.plan.place import Location


class Boxes(Backend):
    name = "boxes"
    where = "in boxes"

    def place(self, settings, environ, host):
        names = tuple(f"box{number}" for number in range(settings.nodes))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        return Placed(Location(self.name, names, port), settings, [f"{len(names)} boxes"])

    def nodes(self, start):
        carriers = [
            Carrier(["sh", "-c", 'exec "$@"', "sh", *agent_command(start.run, node)], (node,), (box,), os.environ,
                    start.run.carrier_log(box))
            for node, box in enumerate(start.plan.place.hosts)
        ]
        return RemoteNodes(start, carriers, environment_along())
"""
TRAIN = """
import os
import torch.distributed as dist
dist.init_process_group("gloo")
print("rank", dist.get_rank(), "of", dist.get_world_size(), flush=True)
dist.barrier()
dist.destroy_process_group()
raise SystemExit(3 if os.environ.get("FAILS") == os.environ["RANK"] else 0)
"""


def package(folder, name, module, value, entry):
    """As pip would install it: a module, and its metadata beside it."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(module)
    info = folder / f"distdbg_{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: distdbg-{name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[distdbg.backends]\n{entry} = {value}\n")


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    package(folder, "boxes", BOXES, "boxes:Boxes", "boxes")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ['PYTHONPATH']}")
    (tmp_path / "train.py").write_text(TRAIN)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["", "1"])
def test_a_job_runs_through_it(distdbg, site, fails):
    words = ["launch", "--on", "boxes", "--nodes", "2", "--nproc-per-node", "1", "--show-ranks", "all", "train.py"]
    done = distdbg(*words, env={"FAILS": fails})
    assert done.code == (3 if fails else 0), done
    assert all(f"rank {rank} of 2" in done.out for rank in range(2)), done
    topology = done.run.read_job()["topology"]
    assert (topology["on"], topology["hosts"], topology["world_size"]) == ("boxes", ["box0", "box1"], 2)
    report = json.loads(done.run.report_json.read_text())
    assert report["outcome"] == ("failed" if fails else "succeeded")
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1]


def test_it_is_one_of_those_that_on_takes(distdbg, site):
    shown = distdbg("launch", "--help").out
    assert "[auto|boxes|local|slurm|ssh]" in shown
    done = distdbg("launch", "--on", "crates", "train.py")
    assert done.code == 2 and "'crates' is not one of 'auto', 'boxes', 'local', 'slurm', 'ssh'" in done.err


def test_a_job_file_may_name_it(distdbg, site, tmp_path):
    (tmp_path / "job.yaml").write_text("script: train.py\non: boxes\nhosts: [a]\n")
    done = distdbg("launch", "--dry-run", "--config", "job.yaml")
    assert done.code == 2 and "the job runs --on boxes" in done.err
    (tmp_path / "job.yaml").write_text("script: train.py\non: crates\n")
    done = distdbg("launch", "--dry-run", "--config", "job.yaml")
    assert done.code == 2 and "job.yaml:2" in done.err and "'boxes', 'local', 'slurm' or 'ssh'" in done.err


def test_what_it_does_not_offer_is_refused(distdbg, site):
    done = distdbg("launch", "--dry-run", "--on", "boxes", "train.py")
    assert done.code == 2 and "the backend boxes does not print its jobs as shell" in done.err
    done = distdbg("preflight", "--on", "boxes")
    assert done.code == 2 and "the backend boxes has no preflight" in done.err


def test_one_that_does_not_load_is_reported_and_the_others_work(distdbg, site):
    package(site, "broken", "import no_such_module\n", "broken:Broken", "broken")
    done = distdbg("launch", "--dry-run", "train.py")
    assert done.code == 0
    said = "the backend 'broken' of the package distdbg-broken cannot be loaded: ModuleNotFoundError: "
    assert done.err.count(said) == 1
    done = distdbg("launch", "--dry-run", "--on", "broken", "train.py")
    assert done.code == 2 and done.err.count(said) == 1


@pytest.mark.parametrize(
    ("module", "value"), [("X = dict\n", "odd:X"), (BOXES, "odd:Boxes")], ids=["no backend", "another's name"]
)
def test_what_is_no_backend_of_that_name(distdbg, site, module, value):
    package(site, "odd", module, value, "odd")
    done = distdbg("launch", "--dry-run", "--on", "odd", "train.py")
    assert done.code == 2 and f"{value} is no Backend of that name" in done.err


def test_nobody_replaces_ours(distdbg, site):
    package(site, "local", BOXES, "local:Boxes", "local")
    done = distdbg("launch", "--dry-run", "--on", "local", "train.py")
    assert done.code == 0 and "torch.distributed.run" in done.out


def test_a_copy_without_metadata_has_distdbgs_own(monkeypatch):
    """As on PYTHONPATH in an image, or in a checkout that an older version was installed from."""
    from importlib import metadata

    from distdbg import backend_names

    monkeypatch.setattr(metadata, "distributions", lambda: ())
    found = backend_names.entry_points.__wrapped__()
    assert found.keys() >= {"local", "slurm", "ssh"}
    assert [entry.load().name for entry in found.values()] == list(found)


def test_package_whose_entry_points_cannot_be_read_hides_no_backend(distdbg, tmp_path):
    package(tmp_path / "site", "broken", "", "broken:Broken", "broken")
    (tmp_path / "site" / "distdbg_broken-1.0.dist-info" / "entry_points.txt").write_bytes(b"\xff\xfe[distdbg.backends]")
    done = distdbg("launch", "--help", env={"PYTHONPATH": str(tmp_path / "site")})
    assert done.code == 0 and "slurm" in done.out and "broken" not in done.out, done
