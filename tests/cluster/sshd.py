"""sshd on every host of a bed, with keys of its own; ssh from there needs no question answered."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster.bed import Bed

_SSHD = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
PidFile /run/sshd.pid
"""
_SSH = """
IdentityFile {folder}/user_key
UserKnownHostsFile {folder}/known_hosts
StrictHostKeyChecking no
User root
LogLevel ERROR
"""


def need_sshd() -> None:
    if not Path("/usr/sbin/sshd").exists() or shutil.which("ssh") is None:
        pytest.skip("Debian's openssh-server is missing: `make bed` installs it")


def serve_ssh(bed: Bed) -> None:
    """The client's configuration lies where root's would, over what is there."""
    folder = bed.shared / "ssh"
    home = bed.shared / "root"
    folder.mkdir()
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    (folder / "sshd_config").write_text(_SSHD.format(folder=folder))
    config = home / ".ssh" / "config"
    config.write_text(_SSH.format(folder=folder))
    config.chmod(0o600)
    for host in bed.nodes:
        own_home = f"mount -t overlay overlay -o lowerdir={home}:/root /root"
        done = host.run("sh", "-c", f"mkdir -p /run/sshd && {own_home} && /usr/sbin/sshd -f {folder}/sshd_config")
        assert done.returncode == 0, done.stderr
