"""Boxes between network cards of the guest.

    e0 -- near0 | box | far0 -- f0 ==== f1 -- far1 | box | near1 -- e1

`e0` and `e1` are the network cards of devices. `f0` and `f1` are the ends of the path between the boxes: the guest
forwards between them, and its netem delays and loses packets, because not every kernel has netem. The others are taps
in a namespace of this machine, so boxes run at its full speed. A bridge takes the place of a box that is missing.
"""

import json
import os
import subprocess
import time

#: Repair packets of LoWAR are 44 bytes longer than the longest packet of a NIC.
NEAR_MTU, FAR_MTU = 1500, 1600
#: Taps with their MTU. The network card of a tap has its place in the list, from 1 on, at the end of its address.
TAPS = [("near0", NEAR_MTU), ("near1", NEAR_MTU), ("far0", FAR_MTU), ("far1", FAR_MTU)]
#: Counters of boxes that are not 0 if they have repaired something.
REPAIRS = {"lowar": "recovered", "netrt": "repeated"}
START_S = 20


def sh(commands):
    done = subprocess.run(["sh", "-ec", "\n".join(commands)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{commands}: {done.stdout}{done.stderr}")


class Boxes:
    """A pair of boxes. `taps` are the options that give network cards to qemu, which must run in `namespace`."""

    def __init__(self, farwrite, results):
        self.farwrite, self.results = farwrite, results
        self.namespace = f"farwrite-vm-{os.getpid()}"
        self.running, self.path = [], None
        self.key = results / "boxes.key"
        subprocess.run([farwrite, "keygen", self.key], check=True, capture_output=True)
        quiet = [f"net.ipv6.conf.{name}.disable_ipv6=1" for name in ("all", "default")]
        commands = [f"sysctl -qw {' '.join(quiet)}"]
        for name, mtu in TAPS:
            commands += [f"ip tuntap add {name} mode tap", f"ip link set {name} mtu {mtu} up"]
        sh([f"ip netns add {self.namespace}", *map(self.inside, commands)])

    def inside(self, command):
        return f"ip netns exec {self.namespace} {command}"

    @property
    def taps(self):
        # Without offloads, so that each packet crosses the network as the device has made it.
        plain = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,host_tso4=off,host_tso6=off"
        return [
            option
            for number, (name, _) in enumerate(TAPS, 1)
            for option in (
                "-netdev", f"tap,id={name},ifname={name},script=no,downscript=no",
                "-device", f"virtio-net-pci,netdev={name},mac=52:54:00:00:00:0{number},{plain}",
            )
        ]

    def set(self, path):
        """Start boxes: those of a path, `{"box": lowar, netrt or None, "options": [...], "repairs": whether they must
        repair something}`."""
        self.path = path
        if not path["box"]:
            sh([self.inside(command) for end in (0, 1) for command in bridge(f"box{end}", f"near{end}", f"far{end}")])
            return
        for end in (0, 1):
            command = [
                self.farwrite, "--json", path["box"], "--near", f"near{end}", "--far", f"far{end}", "--every", "0s",
                "--psk-file", self.key, "--no-backpressure", *path["options"],
            ]
            output, errors = (open(self.results / f"box{end}.{name}", "w+") for name in ("json", "log"))
            program = subprocess.Popen([*self.inside("").split(), *command], stdout=output, stderr=errors)
            self.running.append((program, output, errors))
        # A box says at once that it carries frames, or why not.
        start = time.monotonic()
        while not all(os.fstat(errors.fileno()).st_size for _, _, errors in self.running):
            if time.monotonic() > start + START_S:
                raise SystemExit(f"the boxes of {path} did not start")
            time.sleep(0.02)

    def clear(self):
        """End the boxes. Return what they have counted, both together, and what is wrong with that."""
        path, self.path = self.path, None
        if path is None:
            return {}
        counted, problems = {}, []
        if not path["box"]:
            sh([self.inside(f"ip link del box{end}") for end in (0, 1)])
        for program, output, errors in self.running:
            program.terminate()
            code = program.wait(START_S)
            output.seek(0)
            errors.seek(0)
            if code:
                problems.append(f"a box ended with {code}: {errors.read()}")
                continue
            for name, value in json.loads(output.read())["result"].items():
                counted[name] = counted.get(name, 0) + value
        self.running = []
        if path["box"] and path["repairs"] and not counted.get(REPAIRS[path["box"]]):
            problems.append(f"the boxes have repaired nothing: {REPAIRS[path['box']]} is 0")
        return {"counted": counted, "problems": problems}

    def close(self):
        for program, _, _ in self.running:
            program.kill()
            program.wait()
        subprocess.run(["ip", "netns", "del", self.namespace], check=True)


def bridge(name, *interfaces):
    """Return the commands for a bridge that forwards all frames between interfaces."""
    members = [f"ip link set {interface} master {name}" for interface in interfaces]
    return [f"ip link add {name} mtu {NEAR_MTU} type bridge mcast_snooping 0", *members, f"ip link set {name} up"]
