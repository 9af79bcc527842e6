"""The network between two interfaces of the guest: boxes, and a path between them that loses packets.

    near0 -- box -- far0 ==== left -- bridge -- right ==== far1 -- box -- near1

`near0` and `near1` are taps, which are interfaces of the guest. All others are in one namespace of this machine, so
boxes run at its full speed. A bridge takes the place of a box that is missing. Packets of RDMA are dropped at random
where they arrive at the bridge between the boxes. The guest delays packets: many kernels have no netem.
"""

import json
import os
import subprocess
import time

#: Repair packets of LoWAR are 44 bytes longer than the longest packet of a NIC.
NEAR_MTU, FAR_MTU = 1500, 1600
#: Counters of boxes that are not 0 if they have repaired something.
REPAIRS = {"lowar": "recovered", "netrt": "repeated"}
START_S = 20


def sh(command):
    done = subprocess.run(["sh", "-ec", command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


class Boxes:
    """A network. `taps` are the options that give its ends to qemu, which must run in `namespace`."""

    def __init__(self, farwrite, results):
        self.farwrite, self.results = farwrite, results
        self.namespace = f"farwrite-vm-{os.getpid()}"
        self.running, self.path = [], None
        self.key = results / "boxes.key"
        subprocess.run([farwrite, "keygen", self.key], check=True, capture_output=True)
        sh("\n".join([f"ip netns add {self.namespace}", *map(self.inside, self.interfaces())]))

    def inside(self, command):
        return f"ip netns exec {self.namespace} {command}"

    @staticmethod
    def interfaces():
        quiet = [f"net.ipv6.conf.{name}.disable_ipv6=1" for name in ("all", "default")]
        commands = [f"sysctl -qw {' '.join(quiet)}"]
        for end, inner in ((0, "left"), (1, "right")):
            commands += [
                f"ip tuntap add near{end} mode tap",
                f"ip link set near{end} mtu {NEAR_MTU} up",
                f"ip link add far{end} mtu {FAR_MTU} type veth peer name {inner} mtu {FAR_MTU}",
                f"ip link set far{end} up",
                f"ip link set {inner} up",
            ]
        return commands + bridge("middle", "left", "right")

    @property
    def taps(self):
        # Without offloads, so that each packet crosses the network as the device has made it.
        plain = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,host_tso4=off,host_tso6=off"
        return [
            option
            for end in (0, 1)
            for option in (
                "-netdev", f"tap,id=n{end},ifname=near{end},script=no,downscript=no",
                "-device", f"virtio-net-pci,netdev=n{end},mac=52:54:00:00:00:0{end + 1},{plain}",
            )
        ]

    def set(self, path):
        """Starts the boxes of a path, `{"box": lowar, netrt or None, "options": [...], "loss": 0.005}`."""
        self.path = path
        self.drop(path["loss"])
        if not path["box"]:
            commands = [command for end in (0, 1) for command in bridge(f"box{end}", f"near{end}", f"far{end}")]
            sh("\n".join(map(self.inside, commands)))
            return
        for end in (0, 1):
            command = [
                self.farwrite, "--json", path["box"], "--near", f"near{end}", "--far", f"far{end}", "--every", "0s",
                "--psk-file", self.key, "--no-backpressure", *path["options"],
            ]
            output, errors = (open(self.results / f"box{end}.{name}", "w+") for name in ("json", "log"))
            program = subprocess.Popen([*self.inside("").split(), *command], stdout=output, stderr=errors)
            self.running.append((program, output, errors))
        start = time.monotonic()
        while not all(os.fstat(errors.fileno()).st_size for _, _, errors in self.running):
            if time.monotonic() > start + START_S:
                raise SystemExit(f"the boxes of {path} did not start")
            time.sleep(0.02)

    def drop(self, loss):
        """Drops a packet of RDMA, or of a box, with a probability, in each direction."""
        rules = ["add table netdev path", "delete table netdev path", "add table netdev path"]
        for name in ("left", "right") if loss else ():
            lost = f"udp dport 4791 numgen random mod {round(1 / loss)} == 0"
            hook = f"type filter hook ingress device {name} priority 0;"
            rules += [f"add chain netdev path {name} {{ {hook} }}", f"add rule netdev path {name} {lost} counter drop"]
        subprocess.run(self.inside("nft -f -").split(), input="\n".join(rules), text=True, check=True)

    def clear(self):
        """Ends the boxes. Returns what they and the path have counted, and what is wrong with that."""
        path, self.path = self.path, None
        if path is None:
            return {}
        counted = {"dropped": self.dropped()} if path["loss"] else {}
        problems = []
        if not path["box"]:
            sh("\n".join(self.inside(f"ip link del box{end}") for end in (0, 1)))
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
        needed = ["dropped", *([REPAIRS[path["box"]]] if path["box"] else [])] if path["loss"] else []
        problems += [f"nothing was counted as {name}" for name in needed if not counted.get(name)]
        return {"counted": counted, "problems": problems}

    def dropped(self):
        rules = json.loads(sh(self.inside("nft --json list table netdev path")))["nftables"]
        expressions = [part for rule in rules if "rule" in rule for part in rule["rule"]["expr"]]
        return sum(part["counter"]["packets"] for part in expressions if "counter" in part)

    def close(self):
        for program, _, _ in self.running:
            program.kill()
            program.wait()
        subprocess.run(["ip", "netns", "del", self.namespace], check=True)


def bridge(name, *interfaces):
    """The commands for a bridge that forwards all frames between interfaces."""
    members = [f"ip link set {interface} master {name}" for interface in interfaces]
    return [f"ip link add {name} mtu {NEAR_MTU} type bridge mcast_snooping 0", *members, f"ip link set {name} up"]
