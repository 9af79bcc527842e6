"""An ssh server in a namespace, and the command that reaches it."""

import shutil
import subprocess

from lib.veth import sh, until

PORT = 8722


class Sshd:
    """An ssh server at `host`, which takes one key of `directory`. It ends with the network."""

    def __init__(self, network, host, directory):
        directory.mkdir(exist_ok=True, mode=0o700)
        for key in ("host", "user"):
            if not (directory / key).exists():
                sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / key))
        config = directory / "sshd_config"
        config.write_text(
            f"Port {PORT}\nListenAddress {host.v4}\nHostKey {directory}/host\nPidFile none\nUsePAM no\n"
            f"StrictModes no\nPermitRootLogin prohibit-password\nAuthorizedKeysFile {directory}/user.pub\n"
            "Subsystem sftp internal-sftp\n")
        # sshd wants its absolute name, and its directory for privilege separation.
        subprocess.run(["mkdir", "-p", "/run/sshd"], check=True)
        self.process = network.own(host.popen([shutil.which("sshd"), "-D", "-e", "-f", str(config)],
                                              stderr=subprocess.DEVNULL))
        until(lambda: f":{PORT}" in host.run("ss", "-tln"), 10, "sshd listens")
        #: The command that reaches the server, up to the name of the host.
        self.shell = (f"ssh -p {PORT} -i {directory}/user -F none -o StrictHostKeyChecking=no "
                      "-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR")

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=10)
