"""Each finding of a preflight from made probes, and the healthy look-alike in which there must be none."""

import copy

import jsonschema
import pytest

from distdbg.evidence.host.preflight import read_preflight
from distdbg.report.json_form import as_json
from distdbg.report.preflight_report import preflight_report
from distdbg.report.text.preflight_text import render_preflight, states
from distdbg.report.text.screen import Screen

GB = 10**9


def gpu(index, **more):
    healthy = {
        "index": index, "name": "NVIDIA H200", "bus_id": f"00000000:{index + 1:02X}:00.0", "instances": [],
        "memory_total": 150 * GB, "memory_used": GB // 2, "temperature": 30, "throttle": [], "ecc_uncorrected": 0,
        "processes": [], "nvlinks": 18, "unknown": {},
    }  # fmt: skip
    return healthy | more


def look(n, gpus=0):
    place = {"because": "", "free": 500 * GB, "total": 900 * GB, "inodes_free": 10**8, "inodes": 10**9}
    return {
        "port": {"wanted": 0, "got": 29500, "because": ""},
        "names": {"hostname": f"node{n}", "identity": f"node{n} boot net:[{n}]", "ranks": {}, "allocation": "",
                  "addresses": [f"10.0.0.{n}"], "because": ""},
        "interfaces": {"told": {}, "interfaces": [
            {"name": "lo", "up": True, "loopback": True, "mtu": 65536, "addresses": ["127.0.0.1"]},
            {"name": "eth0", "up": True, "loopback": False, "mtu": 1500, "addresses": [f"10.0.0.{n}"]},
            {"name": "ib0", "up": False, "loopback": False, "mtu": 4092, "addresses": []}]},
        "disk": {"sees_token": True, "places": [{"of": "runs", "path": "/data", **place},
                 {"of": "shared memory", "path": "/dev/shm", **place},
                 {"of": "temporary files", "path": "/tmp", **place}]},
        "limits": {"root": False, "rdma": [], "limits": {
            "nofile": [1024, 4096], "memlock": [8 << 20, 8 << 20], "nproc": [4096, 4096], "core": [0, -1]}},
        "ptrace": {"pyspy": True, "ptrace": True, "because": ""},
        "software": {"versions": {"python": "3.11.7", "torch": "2.13.0"}, "python": "/p",
                     "git": {"commit": "a" * 40, "branch": "main", "dirty": False}, "environment": {}},
        "gpus": {"gpus": [gpu(i) for i in range(gpus)], "absent": "" if gpus else "no NVIDIA driver is loaded",
                 "xids": [], "xids_because": ""},
    }  # fmt: skip


def attempt(**more):
    return {"ok": True, "address": "10.0.0.1", "because": "", "source": "", "rtt": 2e-4, "offset": 1e-3} | more


def made(count=3, gpus=0):
    """A healthy cluster; names node1, …; the raw form, to be broken."""
    nodes = {}
    for n in range(1, count + 1):
        way = attempt(source=f"10.0.0.{n}", resolved=["10.0.0.1"])
        met = [{"to": "node1", "by_name": way, "by_address": way}]
        if n == 1:
            met = [
                {"to": f"node{k}", "by_name": None, "by_address": attempt(address=f"10.0.0.{k}", source="10.0.0.1")}
                for k in range(2, count + 1)
            ]
        pairs = {str(k): [9e8, 1e9, 1.1e9] for k in range(n, count)}
        reduced = {"ok": True, "all_reduce_s": 0.01, "bytes": 1 << 20, "pairs": pairs, "backend": "gloo"}
        nodes[f"node{n}"] = {"looked": look(n, gpus), "met": {"met": met}, "reduced": reduced, "because": ""}
    return {"schema": "distdbg.preflight/1", "on": "ssh", "master": "node1", "port": 0, "expected": count,
            "all_reduce_skipped": "", "seconds": 2.0, "said": [], "nodes": nodes}  # fmt: skip


@pytest.fixture
def raw():
    return made()


def report(raw):
    return preflight_report(read_preflight(copy.deepcopy(raw)))


def found(raw):
    return [(f.id, f.severity, f.nodes) for f in report(raw).findings]


def summaries(raw):
    return " / ".join(f.summary for f in report(raw).findings)


@pytest.mark.parametrize(("count", "gpus"), [(1, 0), (2, 0), (3, 0), (16, 8)])
def test_a_healthy_cluster(count, gpus):
    healthy = made(count, gpus)
    assert found(healthy) == []
    assert report(healthy).unknown == ()
    assert set(states(report(healthy)).values()) == {"pass"}
    text = render_preflight(report(healthy), read_preflight(healthy), Screen.of(color=False, width=100))
    assert "fail" not in text and "unknown" not in text and "exit code" not in text


# -- unreachable --------------------------------------------------------------------------------------------------


def test_a_node_that_does_not_answer_is_named(raw):
    raw["nodes"]["node3"] = {"because": "ssh said: connect to host node3 port 22: No route to host"}
    raw["all_reduce_skipped"] = "node3 did not answer"
    assert found(raw) == [("unreachable", "error", ("node3",))]
    assert "No route to host" in summaries(raw)
    results = states(report(raw))
    assert (results["nodes"], results["disk"], results["all-reduce"]) == ("fail", "unknown", "unknown")
    text = render_preflight(report(raw), read_preflight(raw), Screen.of(color=False, width=100))
    assert "disk of node3" not in text and "all-reduce, because node3 did not answer" in text


@pytest.mark.parametrize("seen", ["nothing", "looked"])
def test_interrupted_preflight_calls_no_node_unreachable(raw, seen):
    raw |= {"incomplete": "the preflight was interrupted", "all_reduce_skipped": "the preflight was interrupted"}
    for name, node in raw["nodes"].items():
        del node["reduced"], node["met"]
        if name != "node1" and seen == "nothing":
            del node["looked"]
            node["because"] = raw["incomplete"]
    report = preflight_report(read_preflight(raw))
    assert report.findings == () and report.undecided
    assert {u.because for u in report.unknown} == {raw["incomplete"]}
    assert states(report)["nodes"] == states(report)["all-reduce"] == states(report)["clocks"] == "unknown"
    assert states(report)["disk"] == ("pass" if seen == "looked" else "unknown")


def test_nodes_that_nobody_names(raw):
    raw["expected"] = 4
    raw["said"] = ["srun: error: Unable to confirm allocation"]
    assert summaries(raw) == "1 of 4 nodes did not answer; which ones is not known"


def test_a_port_that_is_taken_on_the_first_node(raw):
    raw["port"] = 29500
    raw["nodes"]["node1"]["looked"]["port"] = {"wanted": 29500, "got": 40001, "because": "Address already in use"}
    assert all(word in summaries(raw) for word in ("29500", "node1", "Address already in use"))
    raw["nodes"]["node2"]["looked"]["port"] = raw["nodes"]["node1"]["looked"].pop("port")
    assert found(raw) == []  # nobody listens there


def test_two_that_do_not_meet(raw):
    way = attempt(ok=False, address="10.0.0.3", because="Connection refused")
    raw["nodes"]["node1"]["met"]["met"][1]["by_address"] = way
    assert found(raw) == [("unreachable", "error", ("node1", "node3"))]
    assert all(word in summaries(raw) for word in ("node1", "node3 at 10.0.0.3", "Connection refused"))


def test_a_name_that_leads_elsewhere_and_one_that_is_not_known(raw):
    direct = attempt(source="10.0.0.2")
    named = attempt(ok=False, address="127.0.1.1", because="node2 answers there", resolved=["127.0.1.1"])
    raw["nodes"]["node2"]["met"]["met"] = [{"to": "node1", "by_name": named, "by_address": direct}]
    assert found(raw) == [("unreachable", "error", ("node2",))]
    assert summaries(raw) == "node1 is 127.0.1.1 on node2, where node2 answers there; at 10.0.0.1 node1 does answer"
    named.update(resolved=[], because="Name or service not known")
    assert found(raw) == [("unreachable", "warning", ("node2",))]
    assert all(word in summaries(raw) for word in ("node2", "node1 (Name or service not known)"))


def test_an_own_name_that_is_loopback(raw):
    names = raw["nodes"]["node2"]["looked"]["names"]
    names["addresses"] = ["127.0.1.1"]
    assert found(raw) == [("unreachable", "error", ("node2",))]
    variables = raw["nodes"]["node2"]["looked"]["interfaces"]["told"]
    variables["GLOO_SOCKET_IFNAME"] = "eth0"
    assert found(raw) == []  # then gloo asks for no name


def test_an_own_name_that_is_loopback_on_a_machine_alone_is_debians_way():
    alone = made(1)
    alone["nodes"]["node1"]["looked"]["names"]["addresses"] = ["127.0.1.1"]
    assert found(alone) == []


# -- duplicate-node-rank ------------------------------------------------------------------------------------------


def test_one_machine_under_two_names(raw):
    names = [raw["nodes"][n]["looked"]["names"] for n in ("node1", "node3")]
    names[1]["identity"] = names[0]["identity"]
    assert found(raw) == [("duplicate-node-rank", "error", ("node1", "node3"))]
    raw["on"] = "local"
    assert found(raw) == []  # that was asked for


def test_one_rank_for_two(raw):
    for n, rank in (("node1", "0"), ("node2", "1"), ("node3", "1")):
        raw["nodes"][n]["looked"]["names"]["ranks"] = {"PET_NODE_RANK": rank}
    assert found(raw) == [("duplicate-node-rank", "error", ("node2", "node3"))]
    raw["nodes"]["node3"]["looked"]["names"]["ranks"] = {"PET_NODE_RANK": "2"}
    assert found(raw) == []


# -- interface-wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("GLOO_SOCKET_IFNAME", "eth9", "names no interface"),
        ("GLOO_SOCKET_IFNAME", "^lo", "NCCL's way"),
        ("GLOO_SOCKET_IFNAME", "eth0,eth9", "names no interface ('eth9')"),
        ("GLOO_SOCKET_IFNAME", "ib0", "names ib0, which has no address"),
        ("GLOO_SOCKET_IFNAME", "eth", "names no interface"),
        ("NCCL_SOCKET_IFNAME", "ens", "fits no interface that is up"),
        ("NCCL_SOCKET_IFNAME", "ib", "fits no interface that is up"),
        ("NCCL_SOCKET_IFNAME", "=eth", "fits no interface that is up"),
        ("NCCL_SOCKET_IFNAME", "^lo,eth", "leaves no interface over"),
    ],
)
def test_an_interface_that_is_not_there(raw, variable, value, words):
    for node in raw["nodes"].values():
        node["looked"]["interfaces"]["told"] = {variable: value}
    assert found(raw) == [("interface-wrong", "error", ("node1", "node2", "node3"))]
    assert words in summaries(raw) and value in summaries(raw)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("GLOO_SOCKET_IFNAME", "eth0"), ("GLOO_SOCKET_IFNAME", "eth0,lo"), ("NCCL_SOCKET_IFNAME", "eth"),
     ("NCCL_SOCKET_IFNAME", "^lo,docker"), ("NCCL_SOCKET_IFNAME", "=eth0"), ("NCCL_SOCKET_IFNAME", "ens,eth"),
     ("NCCL_SOCKET_IFNAME", "^=eth")],
)  # fmt: skip
def test_an_interface_that_is_there(raw, variable, value):
    for node in raw["nodes"].values():
        node["looked"]["interfaces"]["told"] = {variable: value}
    assert found(raw) == []


def test_interfaces_of_different_size(raw):
    raw["nodes"]["node3"]["looked"]["interfaces"]["interfaces"][1]["mtu"] = 9000
    assert found(raw) == [("interface-wrong", "warning", ("node3",))]
    assert "1500 on node1 and node2; 9000 on node3" in summaries(raw)


def test_interfaces_that_nobody_uses_may_differ(raw):
    raw["nodes"]["node3"]["looked"]["interfaces"]["interfaces"][2]["mtu"] = 2044
    assert found(raw) == []


# -- clock-skew ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "rtt", "wrong"), [(3.0, 0.001, True), (-3.0, 0.001, True), (0.4, 0.001, False),
                                                      (0.9, 1.0, False)])  # fmt: skip
def test_clocks(raw, offset, rtt, wrong):
    way = attempt(source="10.0.0.2", offset=offset, rtt=rtt, resolved=["10.0.0.1"])
    raw["nodes"]["node2"]["met"]["met"] = [{"to": "node1", "by_name": way, "by_address": way}]
    assert found(raw) == ([("clock-skew", "warning", ("node2",))] if wrong else [])
    if wrong:
        words = "3.00 s behind node1's" if offset > 0 else "3.00 s ahead of node1's"
        assert f"the clock of node2 is {words} (± 0.5 ms)" in summaries(raw)


# -- disk-low, limits-low, ptrace-denied --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "change", "severity", "words"),
    [
        (0, {"free": 0}, "error", "/data on node2 has 0 bytes left of 900 GB (runs)"),
        (0, {"free": 600 * 10**6}, "warning", "600 MB left"),
        (0, {"inodes_free": 3}, "error", "3 inodes left"),
        (0, {"because": "No such file or directory"}, "error", "cannot be used: No such file"),
        (1, {"free": 64 << 20, "total": 64 << 20}, "warning", "/dev/shm on node2 has 67.1 MB left"),
        (2, {"free": 10**6}, "error", "/tmp on node2 has 1.0 MB left"),
    ],
)
def test_disks(raw, place, change, severity, words):
    raw["nodes"]["node2"]["looked"]["disk"]["places"][place].update(change)
    assert found(raw) == [("disk-low", severity, ("node2",))]
    assert words in summaries(raw)


def test_a_file_system_that_counts_no_inodes_has_enough(raw):
    raw["nodes"]["node2"]["looked"]["disk"]["places"][0].update(inodes=0, inodes_free=0)
    assert found(raw) == []


def test_a_folder_that_one_does_not_see(raw):
    raw["nodes"]["node2"]["looked"]["disk"]["sees_token"] = False
    assert found(raw) == [("folder-not-shared", "warning", ("node2",))]
    assert summaries(raw) == "node2 does not see the folder that runs go to"
    raw["nodes"]["node2"]["looked"]["disk"]["sees_token"] = None
    assert found(raw) == []


def test_limits(raw):
    limits = raw["nodes"]["node2"]["looked"]["limits"]
    limits["rdma"] = ["mlx5_0"]
    assert found(raw) == [("limits-low", "warning", ("node2",))]
    limits["limits"]["memlock"] = [-1, -1]
    assert found(raw) == []
    limits["limits"]["nofile"] = [256, 4096]
    assert "256 files" in summaries(raw)


def test_ptrace(raw):
    raw["nodes"]["node2"]["looked"]["ptrace"].update(ptrace=False, because="Yama forbids ptrace to everybody")
    assert found(raw) == [("ptrace-denied", "warning", ("node2",))]


# -- versions-differ ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "severity", "words"),
    [
        ({"versions": {"python": "3.11.7", "torch": "2.12.0"}}, "error", "torch is not the same on all nodes: "
         "2.13.0 on node1 and node3; 2.12.0 on node2"),
        ({"versions": {"python": "3.12.1", "torch": "2.13.0"}}, "error", "python"),
        ({"versions": {"python": "3.11.9", "torch": "2.13.0"}}, "warning", "3.11.9 on node2"),
        ({"versions": {"python": "3.11.7", "torch": "2.13.0", "numpy": "2.1"}}, "warning", "numpy is not"),
        ({"git": {"commit": "b" * 40, "dirty": False}}, "warning", "the commit is not the same"),
        ({"git": {"commit": "a" * 40, "dirty": True}}, "warning", "aaaaaaaaaaaa, changed on node2"),
        ({"environment": {"NCCL_ALGO": "Ring"}}, "warning", "$NCCL_ALGO is not the same"),
    ],
)  # fmt: skip
def test_versions(raw, change, severity, words):
    raw["nodes"]["node2"]["looked"]["software"].update(change)
    assert found(raw) == [("versions-differ", severity, ("node2",))]
    assert words in summaries(raw)


def test_a_node_without_a_checkout_is_unknown_and_not_different(raw):
    raw["nodes"]["node2"]["looked"]["software"]["git"] = {"unknown": "not in a git repository"}
    assert found(raw) == []
    assert [(u.what, u.because) for u in report(raw).unknown] == [
        ("versions (commit) of node2", "not in a git repository")
    ]


# -- GPUs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"ecc_uncorrected": 2}, ("gpu-fault", "error", "GPU 1 of node2: 2 memory errors")),
        ({"unknown": {"device": "the GPU has fallen off the bus"}}, ("gpu-fault", "error", "fallen off the bus")),
        ({"unknown": {"uuid": "the GPU needs a reset"}}, ("gpu-fault", "error", "needs a reset")),
        ({"throttle": ["hardware thermal slowdown"], "temperature": 91}, ("gpu-throttled", "warning", "at 91 °C")),
        ({"processes": [{"pid": 7, "memory_used": 80 * GB, "user": "ann", "command": "python"}],
          "memory_used": 81 * GB}, ("gpu-memory-taken", "warning", "pid 7 (python of ann) with 80.0 GB")),
        ({"memory_used": 81 * GB}, ("gpu-memory-taken", "warning", "nobody that NVML shows")),
        ({"nvlinks": 17}, ("slow-link", "warning", "17 NVLinks up, others there have 18")),
    ],
)  # fmt: skip
def test_gpus(change, finding):
    raw = made(3, 2)
    raw["nodes"]["node2"]["looked"]["gpus"]["gpus"][1].update(change)
    name, severity, words = finding
    assert found(raw) == [(name, severity, ("node2",))]
    assert words in summaries(raw)


@pytest.mark.parametrize(
    "change",
    [{"throttle": ["power cap"]}, {"ecc_uncorrected": None, "unknown": {"ecc_uncorrected": "not supported"}},
     {"memory_used": 10**9}, {"nvlinks": None}],
)  # fmt: skip
def test_gpus_that_look_sick_and_are_not(change):
    raw = made(3, 2)
    raw["nodes"]["node2"]["looked"]["gpus"]["gpus"][1].update(change)
    assert found(raw) == []


def test_a_gpu_too_few():
    raw = made(3, 8)
    raw["nodes"]["node2"]["looked"]["gpus"]["gpus"].pop()
    assert found(raw) == [("gpu-fault", "error", ("node2",))]
    assert all(word in summaries(raw) for word in ("node2", "7 GPUs (0-6)", "8"))


def test_two_nodes_of_different_size_are_no_fault():
    raw = made(2, 8)
    raw["nodes"]["node2"]["looked"]["gpus"]["gpus"].pop()
    assert found(raw) == []


def test_xids():
    raw = made(2, 2)
    gpus = raw["nodes"]["node2"]["looked"]["gpus"]
    gpus["xids"] = [["0000:02:00", 79, "NVRM: Xid (PCI:0000:02:00): 79, pid=1, GPU has fallen off the bus"]]
    assert found(raw) == [("gpu-fault", "warning", ("node2",))]
    assert "GPU 1 of node2: Xid 79 (off the bus)" in summaries(raw)
    gpus["xids"] = [["0000:02:00", 31, "NVRM: Xid (PCI:0000:02:00): 31, MMU fault of somebody's script"]]
    assert found(raw) == []


def test_a_driver_that_does_not_answer_is_unknown():
    raw = made(2, 2)
    raw["nodes"]["node2"]["looked"]["gpus"] = {"unknown": "no answer within 8 s"}
    assert found(raw) == []
    assert states(report(raw))["GPUs"] == "unknown"


# -- slow-link, all-reduce-failed ---------------------------------------------------------------------------------


def rates(raw, **changes):
    for pair, times in changes.items():
        first, second = map(int, pair.removeprefix("p").split("_"))
        raw["nodes"][f"node{first}"]["reduced"]["pairs"][str(second - 1)] = times


def test_a_slow_node_is_named(raw):
    rates(raw, p1_3=[1e8, 1.1e8], p2_3=[0.9e8, 1.2e8])
    assert found(raw) == [("slow-link", "warning", ("node3",))]
    assert all(word in summaries(raw) for word in ("node3", "120 MB/s", "1.1 GB/s"))


def test_a_slow_pair_is_named_where_others_show_whose_it_is():
    raw = made(5)
    rates(raw, p2_4=[1e8, 1.1e8])
    assert found(raw) == [("slow-link", "warning", ("node2", "node4"))]


@pytest.mark.parametrize(
    "changes",
    [
        {"p1_3": [5e8], "p2_3": [5e8]},  # half is no proof
        {"p1_3": [1e8, 1e9], "p2_3": [1e8, 1e8]},  # it can be quick
        {"p1_2": [1e8, 1e9], "p1_3": [2e8, 2e8], "p2_3": [2e8, 2e8]},  # and the others can be as slow
        {"p1_2": [1e8], "p1_3": [1e8], "p2_3": [1e8]},
    ],
)
def test_noise_names_nobody(raw, changes):
    rates(raw, **changes)
    assert found(raw) == []


def test_of_two_nodes_none_is_the_slow_one():
    raw = made(2)
    rates(raw, p1_2=[1e3])
    assert found(raw) == []


@pytest.mark.parametrize(
    ("reduced", "words"),
    [(None, "did not come to its end"), ({"unknown": "RuntimeError: x"}, "RuntimeError: x"),
     ({"ok": False, "pairs": {}, "all_reduce_s": 1.0, "bytes": 1, "backend": "gloo"}, "the sum is wrong")],
)  # fmt: skip
def test_an_all_reduce_that_fails(raw, reduced, words):
    raw["nodes"]["node2"]["reduced"] = reduced
    assert found(raw) == [("all-reduce-failed", "error", ("node2",))]
    assert words in summaries(raw)
    raw["all_reduce_skipped"] = "it was not asked for"
    assert states(report(raw))["all-reduce"] == "unknown"
    assert found(raw) == []


def test_every_look_may_be_unknown(raw):
    for name in ("names", "interfaces", "disk", "limits", "ptrace", "software", "gpus"):
        raw["nodes"]["node2"]["looked"][name] = {"unknown": "no answer within 8 s"}
    assert found(raw) == []
    results = states(report(raw))
    assert set(results.values()) == {"pass", "unknown"} and results["clocks"] == results["all-reduce"] == "pass"
    assert render_preflight(report(raw), read_preflight(raw), Screen.of(color=True, width=80))


def test_a_row_that_no_node_reported_is_printed_as_such(raw):
    """Found by the fuzz job: a probe that lists no nodes."""
    raw["nodes"] = {}
    text = render_preflight(report(raw), read_preflight(raw), Screen.of(color=False, width=100))
    assert text.count("not reported by any node") == 2


def test_it_is_a_report(raw):
    import json
    from pathlib import Path

    schema = json.loads(Path(__file__).parents[3].joinpath("configs/report.schema.json").read_text())
    raw["nodes"]["node3"] = {"because": "no answer"}
    jsonschema.validate(as_json(report(raw)), schema)


def test_a_node_that_met_nobody_has_an_unknown_clock(raw):
    lost = attempt(ok=False, address="10.0.0.1", because="No route to host")
    raw["nodes"]["node2"]["met"]["met"] = [{"to": "node1", "by_name": None, "by_address": lost}]
    assert ("clocks of node2", "there was no way to node1") in [(u.what, u.because) for u in report(raw).unknown]
    assert found(raw) == [("unreachable", "error", ("node2", "node1"))]
