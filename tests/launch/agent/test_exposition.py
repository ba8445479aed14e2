"""A node's figures as Prometheus reads them: the text is taken apart by the rules of the format, and put together."""

import re
import urllib.request

import pytest

from distdbg.errors import UsageError
from distdbg.launch.agent.exporting import CONTENT_TYPE, LOOPBACK, Exporter, check_outlets, exposition
from distdbg.launch.agent.node import Node
from distdbg.rundir import RunDir

RECORD = {
    "t": 1_790_000_000.25,
    "event": "metrics",
    "ranks": [
        {"rank": 4, "pid": 7, "step": 412, "phase": "backward", "rate": 3.5, "step_ms": 285.5, "rss": 3 << 30,
         "anon": 1 << 30, "epochs": -1, "cpu": 12.25, "data_wait": 0.25, "late_ms": 21.5, "alive": True,
         "exit_code": None},
        {"rank": 5, "pid": 8, "step": None, "phase": None, "rate": None, "step_ms": None, "rss": None, "anon": None,
         "epochs": 2, "cpu": None, "alive": False, "exit_code": -9},
    ],
    "memory": {"oom_kill": 1, "limit": None, "current": 182734848, "available": 22159380480, "path": "/x"},
    "gpus": [
        {"index": 0, "utilisation": 97, "memory_used": 5, "memory_total": 10, "temperature": 61, "power": 650.5,
         "throttle": ["power cap", "hardware slowdown"], "ecc_uncorrected": 0, "ranks": [4]},
        {"index": 1, "because": "the GPU has fallen off the bus", "ranks": []},
        {"index": 2, "utilisation": 3, "ranks": [4, 5]},
    ],
    "xids": [
        {"index": 1, "uuid": "GPU-b", "xid": 79, "ranks": [5], "count": 1},
        {"index": 0, "uuid": "GPU-a", "xid": 63, "ranks": [4], "count": 3},
        {"index": -1, "uuid": "GPU-gone", "xid": 79, "ranks": [], "count": 1},
    ],
}  # fmt: skip
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HELP = re.compile(rf"# HELP ({_NAME}) ((?:[^\\\n]|\\\\|\\n)*)")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (counter|gauge|histogram|summary|untyped)")
_SAMPLE = re.compile(rf"({_NAME})\{{(.*)\}} (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|NaN|[+-]Inf)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')


def parsed(text):
    """{metric: (type, {labels: value})}; refuses all that the format does not allow."""
    assert text.endswith("\n")
    found, current = {}, None
    lines = iter(text[:-1].split("\n"))
    for line in lines:
        if line.startswith("# HELP"):
            helped = _HELP.fullmatch(line)
            typed = _TYPE.fullmatch(next(lines))
            assert helped and typed and helped[1] == typed[1], line
            assert helped[1] not in found, f"{helped[1]} stands in two places"
            current = helped[1]
            found[current] = (typed[2], {})
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample and sample[1] == current, line
        labels = _LABEL.findall(sample[2])
        assert ",".join(f'{name}="{value}"' for name, value in labels) == sample[2], line
        assert len({name for name, _ in labels}) == len(labels)
        plain = tuple((name, re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), value)) for name, value in labels)
        assert plain not in found[current][1], f"twice: {line}"
        found[current][1][plain] = float(sample[3])
    return found


def of(found, name, **labels):
    return {
        dict(key).get("rank"): value for key, value in found[name][1].items() if labels.items() <= dict(key).items()
    }


def test_every_figure_that_is_known_stands_in_it():
    found = parsed(exposition(RECORD, run="20260101T000000Z-train-beef", node=1, host="gpu-7"))
    where = {"run": "20260101T000000Z-train-beef", "node": "1", "host": "gpu-7"}
    assert all(where.items() <= dict(labels).items() for _, samples in found.values() for labels in samples)
    assert of(found, "distdbg_rank_steps_total") == {"4": 412}
    assert of(found, "distdbg_rank_data_wait_ratio") == {"4": 0.25}
    assert of(found, "distdbg_rank_late_seconds") == {"4": pytest.approx(0.0215)}
    assert of(found, "distdbg_gpu_xids_total", xid="79") == {"5": 1, None: 1}
    assert of(found, "distdbg_gpu_xids_total", gpu="0", uuid="GPU-a", xid="63") == {"4": 3}
    assert of(found, "distdbg_gpu_busy_ratio") == {"4": 0.97, None: 0.03}
    assert of(found, "distdbg_gpu_uncorrected_errors_total", gpu="0") == {"4": 0}
    assert len(found["distdbg_gpu_throttled"][1]) == 2
    assert of(found, "distdbg_rank_step_seconds") == {"4": pytest.approx(0.2855)}
    assert of(found, "distdbg_rank_resident_memory_bytes") == {"4": 3 << 30}
    assert of(found, "distdbg_rank_alive") == {"4": 1, "5": 0}
    assert of(found, "distdbg_rank_exit_code") == {"5": -9}
    assert of(found, "distdbg_rank_phase", phase="backward") == {"4": 1}
    assert of(found, "distdbg_node_memory_available_bytes") == {None: 22159380480}
    assert of(found, "distdbg_node_last_look_timestamp_seconds") == {None: 1_790_000_000.25}
    kinds = {name: kind for name, (kind, _) in found.items()}
    assert all((kind == "counter") == name.endswith("_total") for name, kind in kinds.items())


def test_what_is_not_known_is_left_out():
    found = parsed(exposition(RECORD, run="r", node=0, host="h"))
    assert of(found, "distdbg_rank_epochs_total") == {"5": 2}
    assert "distdbg_node_cgroup_limit_bytes" not in found
    nothing = parsed(exposition({"t": 1.0, "ranks": []}, run="r", node=0, host="h"))
    assert list(nothing) == ["distdbg_node_last_look_timestamp_seconds"]


def test_labels_may_hold_anything():
    host = 'a"b\\c\nd\\n\ud800'
    found = parsed(exposition(RECORD, run="r", node=0, host=host))
    ((labels, _),) = found["distdbg_node_last_look_timestamp_seconds"][1].items()
    assert dict(labels)["host"] == 'a"b\\c\nd\\n?'


class NoDisk:
    def append(self, *_args, **_options):
        return True


@pytest.fixture
def node(tmp_path):
    return Node(RunDir(tmp_path / "20260101T000000Z-train-beef"), 0, "here", tmp_path, 1, NoDisk())


def test_the_file_is_whole_and_goes_with_the_job(node, tmp_path):
    folder = tmp_path / "textfile"
    folder.mkdir()
    exporter = Exporter(node, folder, None)
    exporter.publish(RECORD)
    assert exporter._disk.flush(5.0)
    (path,) = folder.iterdir()
    assert path.name == "distdbg-20260101T000000Z-train-beef-0000.prom"
    assert "distdbg_rank_steps_total" in parsed(path.read_text())
    exporter.close()
    assert list(folder.iterdir()) == []


def test_the_port_serves_what_was_published_last(node):
    exporter = Exporter(node, None, 0)
    try:
        exporter.publish(RECORD)
        host, port = exporter._server.server_address
        assert host == LOOPBACK
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=60) as answer:
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            assert of(parsed(answer.read().decode()), "distdbg_rank_steps_total") == {"4": 412}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://{host}:{port}/", timeout=10)
        with pytest.raises(UsageError, match=f"port {port} on 127.0.0.1 cannot be served"):
            check_outlets(None, port, 1)
    finally:
        exporter.close()
    check_outlets(None, port, 1)


def test_a_folder_that_is_not_there_is_refused_and_never_made(node, tmp_path):
    with pytest.raises(UsageError, match="is no folder that can be written"):
        check_outlets(tmp_path / "none", None, 1)
    exporter = Exporter(node, tmp_path / "none", None)
    exporter.publish(RECORD)
    exporter.close()
    assert not (tmp_path / "none").exists()


TRAIN = """
import glob, pathlib, sys, time, urllib.request
import torch

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
folder, port = sys.argv[1:]
texts = {}
while len(texts) < 2:
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
    try:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    except OSError:
        continue
    if "distdbg_rank_step_seconds" in text:
        texts["port.txt"] = text
    for path in glob.glob(f"{folder}/*.prom"):
        if "distdbg_rank_step_seconds" in (text := pathlib.Path(path).read_text()):
            texts["file.txt"] = text
for name, text in texts.items():
    pathlib.Path(name).write_text(text)
"""


@pytest.mark.slow
def test_a_running_job_is_seen_from_outside(distdbg, tmp_path):
    import socket

    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "textfile").mkdir()
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
    done = distdbg("launch", "--nproc-per-node", "1", "--prom-dir", "textfile", "--metrics-port", port, "train.py",
                   tmp_path / "textfile", port, timeout=120)  # fmt: skip
    assert done.code == 0, done
    for name in ("port.txt", "file.txt"):
        found = parsed((tmp_path / name).read_text())
        assert of(found, "distdbg_rank_steps_total", run=done.run.id)["0"] > 0
        assert of(found, "distdbg_rank_alive") == {"0": 1}
    assert list((tmp_path / "textfile").iterdir()) == []
