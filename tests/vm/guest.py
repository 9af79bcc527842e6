"""Runs in the guest: makes RDMA devices, runs the cases of `job.json`, and writes `results.json`.

The folder for results is the only argument. These networks exist for all cases:

- `rxe0` is on `v0`, whose peer `p0` is in the namespace `peer`: ordinary UDP sockets talk to a device.
- `rxe1` and `rxe2` are on `w0` and `w1`, the two ends of one cable in this namespace: devices talk to devices. Rules
  of routing make packets to an address of this machine take the cable.
- `rxe3` and `rxe4` are on `e0` and `e1`, which are network cards of the guest. Between them are the boxes of `boxes.py`,
  outside of the guest, and between the boxes the cards `f0` and `f1` in the namespace `path`. All that exists if a
  case has a `path`: the settings of the boxes.
"""

import json
import pathlib
import subprocess
import sys
import time

MODULES = ["crc32_generic", "veth", "virtio_net", "bridge", "sch_netem", "rdma_rxe", "ib_uverbs", "rdma_ucm"]
#: Of an interface: its MTU. RDMA packets have 4096 bytes at most, and headers.
MTU = 4500
#: The MTU of the path between boxes.
PATH_MTU = 1600
#: The namespaces of interfaces that are not in the initial one.
NAMESPACES = {"p0": "peer", "f0": "path", "f1": "path"}
#: The last part of each address of `v0`, and of the one of `p0`.
OWN, PEER = (1, 2, 3), 9


def sh(command):
    done = subprocess.run(["sh", "-ec", command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def make_network_with_sockets():
    addresses = [f"10.1.0.{last}/24 dev v0" for last in OWN] + [f"fd01::{last}/64 dev v0 nodad" for last in OWN]
    return [
        "ip netns add peer",
        f"ip link add v0 mtu {MTU} type veth peer name p0 mtu {MTU} netns peer",
        *[f"ip addr add {address}" for address in addresses],
        f"ip -n peer addr add 10.1.0.{PEER}/24 dev p0",
        f"ip -n peer addr add fd01::{PEER}/64 dev p0 nodad",
        "ip link set v0 up",
        "ip -n peer link set p0 up",
        "ip -n peer link set lo up",
        "rdma link add rxe0 type rxe netdev v0",
    ]


def make_network_of_devices():
    return [
        f"ip link add w0 mtu {MTU} type veth peer name w1 mtu {MTU}",
        *connect("w0", "w1", "10.2.0", "fd02:", 1),
    ]


def make_network_with_boxes():
    """Make the network if the guest has network cards. The last part of their addresses says which they are."""
    links = {(link / "address").read_text().strip(): link.name for link in pathlib.Path("/sys/class/net").iterdir()}
    cards = {name: links.get(f"52:54:00:00:00:0{number}") for number, name in enumerate(("e0", "e1", "f0", "f1"), 1)}
    if None in cards.values():
        return []
    names = [f"ip link set {card} name {name}" for name, card in cards.items()]
    path = ["ip netns add path", f"ip -n path link add path mtu {PATH_MTU} type bridge mcast_snooping 0"]
    for end in ("f0", "f1"):
        path += [f"ip link set {end} netns path", f"ip -n path link set {end} mtu {PATH_MTU} master path up"]
    return [*names, *path, "ip -n path link set path up", *connect("e0", "e1", "10.3.0", "fd03:", 3)]


def connect(left, right, ipv4, ipv6, first_device):
    """Return the commands for a device on each of two interfaces. Packets to their addresses leave this machine."""
    commands = []
    for number, end in enumerate((left, right)):
        commands += [
            f"sysctl -qw net.ipv4.conf.{end}.accept_local=1 net.ipv4.conf.{end}.rp_filter=0",
            f"ip addr add {ipv4}.{number + 1}/32 dev {end}",
            f"ip addr add {ipv6}:{number + 1}/128 dev {end} nodad",
            f"ip link set {end} up",
            # What arrives is for this machine, whatever the table of the cable says.
            f"ip rule add preference 1 iif {end} lookup local",
            f"ip -6 rule add preference 1 iif {end} lookup local",
            f"rdma link add rxe{first_device + number} type rxe netdev {end}",
        ]
    for end, other, last in ((left, right, 2), (right, left, 1)):
        for address in (f"{ipv4}.{last}", f"{ipv6}:{last}"):
            commands += [
                f"ip neigh add {address} lladdr $(cat /sys/class/net/{other}/address) dev {end} nud permanent",
                f"ip route add {address} dev {end} table 10",
            ]
    return commands


def leave_machine():
    """Return commands for rules that look into the table of the cables before that of this machine's addresses."""
    rules = ["add preference 2 lookup 10", "add preference 3 lookup local", "del preference 0"]
    families = [f"ip {ip} rule {rule}" for ip in ("-4", "-6") for rule in rules]
    return ["sysctl -qw net.ipv4.conf.all.rp_filter=0", *families]


def tc(device, command):
    inside = f"ip netns exec {NAMESPACES[device]} " if device in NAMESPACES else ""
    return sh(f"{inside}tc {command}")


def begin_netem(netem):
    for device, settings in netem.items():
        tc(device, f"qdisc add dev {device} root netem {settings}")


def end_netem(netem):
    """Return how many packets each interface has lost."""
    dropped = {}
    for device in netem:
        (queue,) = json.loads(tc(device, f"-json -statistics qdisc show dev {device}"))
        dropped[device] = queue["drops"]
        tc(device, f"qdisc del dev {device} root")
    return dropped


def ask(case, results):
    """Wait until the host has made the network of a case."""
    (results / "asked.new").write_text(case["name"])
    (results / "asked.new").rename(results / "asked")
    answered = results / "answered"
    while not (answered.exists() and answered.read_text() == case["name"]):
        time.sleep(0.05)


def run(case, results):
    """Run the programs of a case at the same time. All must succeed."""
    ask(case, results)
    netem = case.get("netem", {})
    begin_netem(netem)
    start = time.monotonic()
    running = []
    for number, program in enumerate(case["programs"]):
        inside = ["ip", "netns", "exec", "peer"] if program.get("namespace") == "peer" else []
        log = open(results / f"{case['name']}-{number}.log", "w")
        environment = [f"{name}={value}" for name, value in case.get("environment", {}).items()]
        running.append(subprocess.Popen(
            [*inside, "env", *environment, *program["command"]], stdout=log, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, cwd="/tmp",
        ))
    codes = []
    for program in running:
        left = case["limit_s"] - (time.monotonic() - start)
        try:
            codes.append(program.wait(max(left, 0)))
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
            codes.append("time")
    outcome = {"name": case["name"], "codes": codes, "seconds": round(time.monotonic() - start, 2)}
    return outcome | {"dropped": end_netem(netem)}


def main(results):
    job = json.loads((results / "job.json").read_text())
    # Few scripts, because each process costs the emulated machine a part of a second.
    commands = [f"modprobe --all --dirname {job['modules']} {' '.join(MODULES)}", "ip link set lo up"]
    sh("\n".join(commands))
    networks = make_network_with_sockets() + make_network_of_devices() + make_network_with_boxes()
    sh("\n".join(networks + leave_machine()))
    uptime = float(pathlib.Path("/proc/uptime").read_text().split()[0])
    done = {"ready_s": uptime, "cases": []}
    for case in job["cases"]:
        done["cases"].append(run(case, results))
        (results / "results.json").write_text(json.dumps(done))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
