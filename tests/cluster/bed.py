"""Hosts on one wire. `with Bed(folder, nodes=2) as bed: bed.run("node1", "hostname")`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.cluster import host as hosts
from tests.cluster.host import Host
from tests.cluster.slurm import Slurm

_NETWORK = "10.213.7"
#: a user of all hosts who is not root
USER = 4711
_RECORD = "bed.json"
#: The checkout and its interpreter, which may lie below /tmp, too.
_PROGRAM = (Path(__file__).resolve().parents[2], Path(sys.prefix), Path(sys.base_prefix))
#: Inside a host: an /etc over the machine's own, and /run, /dev/shm and /tmp that no other host sees. What is shared
#: and lies below /tmp is put back there.
_FURNISH = """
mount --make-rprivate /
hostname "$1"
mount -t overlay overlay -o "lowerdir=$2/etc-$1:/etc" /etc
mount -t tmpfs -o mode=755,size=64m tmpfs /run
mount -t tmpfs -o mode=1777,size=1g tmpfs /dev/shm
mkdir -m 755 /run/munge /run/slurm /run/gpu
mkdir /run/tmp
mount -t tmpfs -o mode=1777,size=2g tmpfs /run/tmp
shift 2
gpus=$1; shift
for shared in "$@"; do
  case "$shared" in
    /tmp/*) mkdir -p "/run/tmp/${shared#/tmp/}"; mount --bind "$shared" "/run/tmp/${shared#/tmp/}";;
  esac
done
mount --move /run/tmp /tmp
rmdir /run/tmp
i=0; while [ $i -lt "$gpus" ]; do mknod "/run/gpu/nvidia$i" c 1 3; i=$((i+1)); done
"""
#: A folder that root alone may enter, as it were without it but for what of the program lies in it: hosts have users.
_OPEN = """
closed=$1; shift
mkdir /run/program
for path in "$@"; do mkdir -p "/run/program$path"; mount --bind "$path" "/run/program$path"; done
mount -t tmpfs -o mode=755,size=1m tmpfs "$closed"
for path in "$@"; do mkdir -p "$path"; mount --move "/run/program$path" "$path"; done
"""


class Bed:
    """`node1`, `node2`, … and with Slurm `head`, which no job runs on.

    folder  everything of the bed, made here and seen by all hosts; `folder/shared` is for tests
    shared  more folders below /tmp that all hosts see; the rest of /tmp is each host's own
    slurm   daemons as well (see slurm.py); None for none
    tcp_retries  of the hosts' kernels: 15 is Linux's own, under which a cut wire shows after 16 minutes
    kept    False: it outlives its maker, for a person at a terminal
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 2,
        slurm: Slurm | None = None,
        shared: Sequence[Path] = (),
        tcp_retries: int = 15,
        kept: bool = True,
    ) -> None:
        self.folder = folder
        self.shared = folder / "shared"
        self.hosts: dict[str, Host] = {}
        self.seconds: dict[str, float] = {}
        self._names = [*(["head"] if slurm else []), *(f"node{n}" for n in range(1, nodes + 1))]
        self._slurm = slurm
        self._seen = [folder, *_PROGRAM, *shared]
        self._tcp_retries = tcp_retries
        self._kept = kept
        self._keeper: subprocess.Popen[bytes] | None = None
        self._hub: Host | None = None

    @property
    def nodes(self) -> list[Host]:
        return [host for name, host in self.hosts.items() if name.startswith("node")]

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    # -- up and down ----------------------------------------------------------------------------------------

    def __enter__(self) -> Bed:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.down()

    def up(self) -> None:
        begun = time.monotonic()
        self.folder.mkdir(parents=True)
        self.shared.mkdir(mode=0o1777)
        self.shared.chmod(0o1777)
        if self._kept:
            keeper = Path(__file__).with_name("keeper.py")
            self._keeper = subprocess.Popen(
                [sys.executable, str(keeper), str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
            )
        self._hub = hosts.hold("hub", "", apart=["--net"])
        self._remember()
        for number, name in enumerate(self._names):
            self.hosts[name] = hosts.hold(name, f"{_NETWORK}.{10 + number}")
            self._remember()
        for host in self.hosts.values():
            self._write_etc(host)
        self._wire()
        self.seconds["hosts"] = time.monotonic() - begun
        if self._slurm:
            self._slurm.start(self)
        self.seconds["all"] = time.monotonic() - begun

    def down(self) -> None:
        if self._keeper is not None and self._keeper.stdin is not None:
            self._keeper.stdin.close()
            self._keeper.wait()
            for host in self.hosts.values():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(host.holder, 0)
        take_down(self.folder)

    def _remember(self) -> None:
        """For whoever takes the bed down, and for `load`."""
        record = {
            "hub": self._hub and self._hub.__dict__,
            "hosts": {name: host.__dict__ for name, host in self.hosts.items()},
        }
        temporary = self.folder / f".{_RECORD}"
        temporary.write_text(json.dumps(record))
        temporary.replace(self.folder / _RECORD)

    @classmethod
    def load(cls, folder: Path) -> Bed:
        """One that another process made. Raises OSError where there is none."""
        record = json.loads((folder / _RECORD).read_text())
        bed = cls(folder, kept=False)
        bed.hosts = {name: Host(**host) for name, host in record["hosts"].items()}
        bed._hub = Host(**record["hub"])
        return bed

    def _write_etc(self, host: Host) -> None:
        etc = self.folder / f"etc-{host.name}"
        etc.mkdir()
        known = "".join(f"{other.address} {other.name}\n" for other in self.hosts.values())
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{known}")
        (etc / "hostname").write_text(f"{host.name}\n")
        (etc / "passwd").write_text(Path("/etc/passwd").read_text() + f"trainer:x:{USER}:{USER}::/tmp:/bin/sh\n")
        (etc / "group").write_text(Path("/etc/group").read_text() + f"trainer:x:{USER}:\n")
        (etc / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        if self._slurm:
            self._slurm.write_etc(self, host, etc)

    def _wire(self) -> None:
        assert self._hub is not None
        lines = ["ip link add br0 type bridge", "ip link set br0 up"]
        for host in self.hosts.values():
            lines.append(f"ip link add v-{host.name} type veth peer name eth0 netns {host.init}")
            lines.append(f"ip link set v-{host.name} master br0 up")
        self._in_hub("\n".join(lines))
        gpus = str(self._slurm.gpus if self._slurm else 0)
        for host in self.hosts.values():
            up = f"ip addr add {host.address}/24 dev eth0; ip link set eth0 up; ip link set lo up"
            if self._tcp_retries != 15:
                up += f"; sysctl -qw net.ipv4.tcp_retries2={self._tcp_retries}"
            _check(host.enter("sh", "-euc", up))
            shared = [str(path) for path in self._seen]
            _check(host.enter("sh", "-euc", _FURNISH, "sh", host.name, str(self.folder), gpus, *shared))
            for closed, within in _closed().items():
                _check(host.enter("sh", "-euc", _OPEN, "sh", closed, *within))

    def _in_hub(self, script: str) -> None:
        assert self._hub is not None
        _check(["nsenter", "-t", str(self._hub.init), "-n", "--", "sh", "-euc", script])

    # -- commands -------------------------------------------------------------------------------------------

    def run(self, name: str, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.hosts[name].run(*command, **options)

    def popen(self, name: str, *command: str, **options: Any) -> subprocess.Popen[Any]:
        return self.hosts[name].popen(*command, **options)

    # -- faults ---------------------------------------------------------------------------------------------

    def cut(self, name: str) -> None:
        """The cable is pulled: both ends see the carrier go."""
        self._in_hub(f"ip link set v-{name} down")

    def blackhole(self, name: str) -> None:
        """The link stays up, packets are dropped: no side gets an error."""
        self._in_hub(f"ip link set v-{name} nomaster")

    def heal(self, name: str) -> None:
        """After a cut or a blackhole."""
        self._in_hub(f"ip link set v-{name} master br0 up")

    def kill(self, name: str) -> None:
        """The host loses power: all of it is gone, and its address answers no more."""
        host = self.hosts[name]
        hosts.end(host.init, host.holder)


def _closed() -> dict[str, list[str]]:
    """Folders above the program that only root may enter, each with the parts of the program in it."""
    found: dict[str, list[str]] = {}
    for path in dict.fromkeys(_PROGRAM):
        above = [folder for folder in path.parents if folder.stat().st_mode & 0o005 != 0o005]
        if above and not path.is_relative_to("/tmp"):
            found.setdefault(str(above[-1]), []).append(str(path))
    return found


def take_down(folder: Path) -> None:
    """End every process of a bed and remove its folder; a bed that is half up, or gone, is no error."""
    try:
        record = json.loads((folder / _RECORD).read_text())
    except (OSError, ValueError):
        record = {}
    for host in (*record.get("hosts", {}).values(), record.get("hub")):
        if host:
            hosts.end(host["init"], host["holder"])
    shutil.rmtree(folder, ignore_errors=True)


def _check(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"the bed could not be made: {(done.stderr or done.stdout).strip()}")
