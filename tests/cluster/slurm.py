"""Real Slurm on a bed: slurmctld on `head`, slurmd on each node, munged on all. Debian's slurm-wlm and munge."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cluster.bed import Bed
    from tests.cluster.host import Host

_IDLE_WITHIN_S = 60.0
#: The hosts share one machine, whose cores each of them claims; nothing is bound or confined, and cgroups are not ours.
_CONF = """
ClusterName=bed
SlurmctldHost=head({head})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation={folder}/slurm/state
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir={folder}/slurm/spool/%n
SlurmctldLogFile={folder}/slurm/slurmctld.log
SlurmdLogFile={folder}/slurm/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait={kill_wait}
EioTimeout=5
UnkillableStepTimeout=10
MailProg=/bin/true
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=2,bf_interval=2
NodeName=node[1-{nodes}] CPUs={cpus} RealMemory=4000 State=UNKNOWN {gres}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
{more}
"""
#: slurmctld has to listen before the first slurmd registers, or that one tries again a second later.
_MUNGED = (
    "munged --key-file=/etc/munge/munge.key --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/munged.pid "
    "--log-file=/run/munge/log --seed-file=/run/munge/seed --num-threads=2; "
)
_HEAD = "slurmctld && until scontrol ping >/dev/null 2>&1; do sleep 0.02; done"


@dataclass(frozen=True)
class Slurm:
    """`cpus` a node as Slurm counts them, `gpus` device nodes a node that are none, `more` lines for slurm.conf;
    `containers`: steps take the options of pyxis (container.c); `kill_wait`: seconds from SIGTERM to SIGKILL."""

    cpus: int = 4
    gpus: int = 0
    more: str = ""
    containers: bool = False
    kill_wait: int = 5

    def write_etc(self, bed: Bed, host: Host, etc: Path) -> None:
        (etc / "slurm").mkdir()
        gres = f"Gres=gpu:h100:{self.gpus}" if self.gpus else ""
        more = "\n".join(("GresTypes=gpu" if self.gpus else "", self.more))
        (etc / "slurm" / "slurm.conf").write_text(
            _CONF.format(
                head=bed["head"].address,
                folder=bed.folder,
                nodes=len(bed.nodes),
                cpus=self.cpus,
                gres=gres,
                more=more,
                kill_wait=self.kill_wait,
            )
        )
        if self.gpus:  # device nodes: plain files are refused
            files = f"/run/gpu/nvidia[0-{self.gpus - 1}]"
            (etc / "slurm" / "gres.conf").write_text(f"Name=gpu Type=h100 File={files}\n")
        if self.containers:
            (etc / "slurm" / "plugstack.conf").write_text(f"required {_container_plugin(bed.folder)}\n")
        (etc / "munge").mkdir(mode=0o700)
        key = etc / "munge" / "munge.key"
        key.write_bytes(b"a key for nobody's secrets".ljust(64, b"."))
        key.chmod(0o400)
        for folder in ("state", f"spool/{host.name}"):
            (bed.folder / "slurm" / folder).mkdir(parents=True, exist_ok=True)

    def start(self, bed: Bed) -> None:
        """Returns when every node is idle. Raises RuntimeError with what the daemons said."""
        self._stage([bed["head"]], _HEAD)
        self._stage(bed.nodes, "slurmd")
        deadline = time.monotonic() + _IDLE_WITHIN_S
        while time.monotonic() < deadline:
            states = bed.run("head", "sinfo", "-h", "-N", "-p", "main", "-o", "%t").stdout.split()
            if states.count("idle") == len(bed.nodes):
                return
            time.sleep(0.05)
        logs = "\n".join(path.read_text(errors="replace")[-1000:] for path in (bed.folder / "slurm").glob("*.log"))
        raise RuntimeError(f"Slurm's nodes did not become idle: {states}\n{logs}")

    @staticmethod
    def _stage(hosts: list[Host], command: str) -> None:
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started = [(host, host.popen("sh", "-c", _MUNGED + command, **output)) for host in hosts]
        for host, process in started:
            said = process.communicate(timeout=60)[0].strip()
            if process.returncode:
                raise RuntimeError(f"Slurm does not start on {host.name}: {said}")


def _container_plugin(folder: Path) -> Path:
    """Compiled against the headers of the Slurm that runs: others it refuses."""
    path = folder / "container.so"
    if not path.exists():
        flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
        subprocess.run(["gcc", *flags, "-o", path, Path(__file__).with_name("container.c")], check=True)
    return path


def missing() -> str | None:
    """What has to be installed before Slurm runs, or None."""
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    tools = {"slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "munged": "munge", "sbatch": "slurm-wlm"}
    lacking = [package for tool, package in tools.items() if shutil.which(tool, path=path) is None]
    lacking += [] if Path("/usr/include/slurm/spank.h").exists() else ["libslurm-dev"]
    return f"Debian's {lacking[0]} is missing: `make bed` installs it" if lacking else None
