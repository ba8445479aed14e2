"""NCCL's logs of several versions, and what is made of them when they are laid side by side."""

import pytest

from distdbg.evidence.logs.nccl import read_nccl_log
from tests.made_run import MadeRun

INFO = """node0:983:1261 [3] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>
NCCL version 2.21.5+cuda12.4
node0:983:1261 [3] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
node0:983:1261 [3] NCCL INFO Using network IB
node0:983:1261 [3] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'
node0:983:1261 [3] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_1'
"""
WATCHDOG = (
    "[rank0]:[E321 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqN=1)\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n  what(): x\n"
)
SOCKET = """node1:9:9 [0] NCCL INFO NET/IB : No device found.
node1:9:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.2<0> [1]docker0:172.17.0.1<0>
node1:9:9 [0] NCCL INFO Using network Socket
"""


def completion(host, peer, form="mid", status=12, hca="mlx5_2"):
    head = f"{host}:3468:3905 [4] transport/net_ib.cc:1909 NCCL WARN NET/IB"
    return {
        "old": f"{head} : Got completion from peer {peer}<54862> with error {status}, opcode 0, len 0, vendor err 129 "
        "(Recv) localGid fe80::1 remoteGid fe80::2\n",
        "mid": f"{head} : Got completion from peer {peer}<54862> with status={status} opcode=0 len=0 vendor err 129 "
        f"(Recv) localGid fe80::1 remoteGidsfe80::2 hca {hca}\n",
        "new": f"{head}: Got completion from peer {peer}<54862> with status=IBV_WC_RETRY_EXC_ERR({status}) "
        f"opcode=IBV_WC_SEND(0) vendor_err=129  localGid fe80::1 remoteGidsfe80::2 hca {hca}\n",
    }[form]


def test_version_network_devices_and_direct_rdma():
    log = read_nccl_log(INFO)
    assert (log.host, log.address, log.version, log.network) == ("node0", "10.0.0.1", "2.21.5", "IB")
    assert log.devices == ("mlx5_0:1/IB", "mlx5_1:1/RoCE")
    assert (log.direct, log.indirect) == (("mlx5_0",), ("mlx5_1",))
    assert read_nccl_log(SOCKET).devices == ("eth0", "docker0")


@pytest.mark.parametrize("form", ["old", "mid", "new"])
def test_a_completion_in_the_words_of_three_versions(form):
    (fault,) = read_nccl_log(f"{INFO}{completion('node0', '10.0.0.2', form)}").faults
    assert (fault.line, fault.peer, fault.status) == (7, "10.0.0.2", 12)
    assert fault.what.startswith("retries exceeded")
    assert "vendor error 129" in fault.what
    assert fault.hca == ("" if form == "old" else "mlx5_2")


def test_a_warning_that_begins_with_the_time_has_its_host():
    """NCCL 2.27 and later write it so, and nothing else at the level WARN."""
    said = "node7:1:2 [0] transport/net_ib.cc:1909 NCCL WARN NET/IB : mlx5_3:1 Got async fatal event: x\n"
    log = read_nccl_log(f"[2026-11-24 17:00:46] {said}")
    assert (log.host, [fault.hca for fault in log.faults]) == ("node7", ["mlx5_3"])


def test_what_only_follows_from_an_earlier_error_is_no_fault():
    assert read_nccl_log(completion("node0", "10.0.0.2", status=5)).faults == ()


def test_a_ports_event():
    (fault,) = read_nccl_log("n:1:2 [0] NCCL WARN NET/IB : mlx5_3:1 Got non-fatal async event: port error(10)\n").faults
    assert (fault.hca, fault.what, fault.peer) == ("mlx5_3", "port error(10)", "")


@pytest.mark.parametrize("text", ["", "loss 0.3\n", "\x00\xff NCCL\n" * 9])
def test_what_is_none(text):
    assert read_nccl_log(text) is None


@pytest.fixture
def run(tmp_path):
    return MadeRun(tmp_path)


def verdict(report):
    return [(f.id, f.ranks, f.nodes, f.confidence) for f in report.findings if f.id in ("nic-fault", "slow-link")]


def finish(run, logs):
    for rank, text in logs.items():
        run.files(rank).nccl.write_text(text)
        run.prints(rank, WATCHDOG)
        run.exits(rank, -6, t=9.0 + rank)
    run.rest(-15, t=12.0, asked=10.5)
    return run.closes().report()


def test_the_host_at_one_end_of_every_report_is_it(run):
    report = finish(run, {0: completion("a", "10.0.0.9"), 1: completion("b", "10.0.0.9")})
    assert verdict(report) == [("nic-fault", (0, 1), ("10.0.0.9",), "likely")]
    assert report.findings[0].id == "nic-fault"
    assert "retries exceeded" in report.findings[0].summary


def test_two_ends_that_complain_of_one_another_are_both_suspected(run):
    address = "{}:1:1 [0] NCCL INFO Bootstrap: Using eth0:{}<0>\n".format
    report = finish(
        run,
        {
            0: address("a", "10.0.0.1") + completion("a", "10.0.0.2"),
            1: address("b", "10.0.0.2") + completion("b", "10.0.0.1"),
        },
    )
    ((finding, ranks, _, sure),) = verdict(report)
    assert (finding, ranks, sure) == ("nic-fault", (0, 1), "possible")
    assert "cannot be told" in next(f for f in report.findings if f.id == "nic-fault").cause


def test_who_fell_back_to_sockets_is_a_slow_link(run):
    report = finish(run, {0: INFO, 1: SOCKET})
    assert ("slow-link", (1,)) in [found[:2] for found in verdict(report)]
    run.files(1).nccl.write_text(INFO)
    assert verdict(run.report()) == []


def test_a_card_without_gpu_direct_is_a_slow_link(run):
    whole = INFO.replace("Disabled", "Enabled")
    report = finish(run, {0: whole, 1: INFO.replace("node0", "node1"), 2: whole, 3: whole})
    (finding,) = [found for found in report.findings if found.id == "slow-link"]
    assert (finding.ranks, finding.nodes) == ((1,), ("node0",))
    assert "work without GPU Direct RDMA on all of their cards, " in finding.summary
    run.files(1).nccl.write_text(whole)
    assert verdict(run.report()) == []


def test_versions_that_do_not_connect(run):
    said = "a:1:1 [0] NCCL WARN Mismatched NCCL version detected : rank 0 version 22105 rank 1 version 21903\n"
    report = finish(run, {0: said, 1: ""})
    assert any("NCCL 2.21.5" in f.summary and "NCCL 2.19.3" in f.summary for f in report.findings)
