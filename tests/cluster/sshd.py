"""sshd on the hosts of a bed, with keys of its own; ssh from there needs no question answered."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster.bed import Bed
from tests.cluster.host import Host

_SSHD = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
PidFile /run/sshd.pid
{more}
"""
_SSH = """
IdentityFile {folder}/user_key
UserKnownHostsFile {folder}/known_hosts
StrictHostKeyChecking no
User root
LogLevel ERROR
"""
#: Again where it runs: the port is free a moment after the old one has gone.
_START = """
[ ! -f /run/sshd.pid ] || kill $(cat /run/sshd.pid)
mkdir -p /run/sshd
i=0
until /usr/sbin/sshd -f "$0"; do i=$((i+1)); [ $i -lt 100 ] || exit 1; sleep 0.05; done
"""
#: The bed may have opened root's folder: then it is the host's own already.
_AT_HOME = """
if mountpoint -q /root; then mkdir /root/.ssh; mount --bind "$0/.ssh" /root/.ssh
else mount -t overlay overlay -o "lowerdir=$0:/root" /root; fi
"""


def need_sshd() -> None:
    if not Path("/usr/sbin/sshd").exists() or shutil.which("ssh") is None:
        pytest.skip("Debian's openssh-server is missing: `make bed` installs it")


class Sshd:
    """`config` is the client's, for `ssh -F`; `more` are lines at its end."""

    def __init__(self, bed: Bed, more: str = "") -> None:
        self.folder = bed.shared / "ssh"
        self.folder.mkdir()
        for key in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key], check=True)
        self.config = self.folder / "config"
        self.config.write_text(_SSH.format(folder=self.folder) + more)
        for host in bed.nodes:
            self.start(host)

    def start(self, host: Host, more: str = "") -> None:
        """(Re)start it, with more lines of the server's configuration."""
        config = self.folder / f"sshd-{host.name}"
        config.write_text(_SSHD.format(folder=self.folder, more=more))
        done = host.run("sh", "-c", _START, str(config))
        assert done.returncode == 0, done.stderr


def at_home(bed: Bed, sshd: Sshd) -> None:
    """The client's configuration lies where root's would, over what is there, too."""
    home = bed.shared / "root" / ".ssh"
    home.mkdir(parents=True, mode=0o700)
    (home / "config").write_text(sshd.config.read_text())
    (home / "config").chmod(0o600)
    for host in bed.nodes:
        done = host.run("sh", "-euc", _AT_HOME, str(home.parent))
        assert done.returncode == 0, done.stderr
