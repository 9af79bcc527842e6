"""RoCEv2 over IPv6 through `farwrite lowar` and `farwrite netrt`: single packets, with and without a
VLAN tag, and trains."""

import filecmp
import os
import subprocess

from lib.chain import Chain
from lib.rig import KINDS, LOSS, REPEATED_SHARE, SENDS, Rig
from lib.veth import until

VLAN = 5


def run(report, programs, directory):
    for title, case in _CASES.items():
        with report.case(f"boxes, IPv6: {title}"):
            case(report, Rig(programs, directory))


def _repair(report, rig):
    with Chain() as chain:
        chain.lose(LOSS)
        with rig.boxes(chain, "--forward"):
            wrong, (bare, _) = rig.repeats(chain, ipv6=True)
        report.check("without repair, all arrives by repeats",
                     wrong or (None if bare["repeated"] else f"{bare}"))
        for kind, vlan in (("lowar", None), ("lowar", VLAN), ("netrt", None), ("netrt", VLAN)):
            with rig.boxes(chain, *KINDS[kind], kind=kind) as boxes:
                wrong, nics = rig.repeats(chain, ipv6=True, vlan=vlan)
            name = f"{kind}{', in a VLAN' if vlan else ''}"
            report.check(f"{name}: the bytes arrive", wrong)
            report.check(f"{name}: losses are recovered",
                         None if boxes[1]["recovered"] > 10 * SENDS else f"{boxes}")
            # The NICs check UDP checksums, which IPv6 requires and boxes compute.
            report.check(f"{name}: no packet is damaged",
                         None if [nic["damaged"] for nic in nics] == [0, 0] else f"{nics}")
            report.check(f"{name}: so the NIC repeats less",
                         None if nics[0]["repeated"] < REPEATED_SHARE * bare["repeated"]
                         else f"{nics} beside {bare}, {boxes}")


def _trains(report, rig):
    """`farwrite send` passes datagrams to the kernel in trains. Boxes get them in one piece."""
    with Chain() as chain:
        chain.lose(LOSS)
        for host in (chain.a, chain.b):
            host.run("sysctl", "-qw", "net.ipv6.conf.veth0.disable_ipv6=0")
            host.add_v6()
        with rig.boxes(chain, *KINDS["lowar"], "--ip-mtu", str(chain.mtu)) as boxes:
            wrong = _send_file(chain, rig)
        sending, receiving = boxes
        report.check("the file arrives", wrong)
        # A train counts as one received frame.
        report.check("the box codes the packets of trains",
                     None if sending["coded"] > sending["near_received"] else f"{sending}")
        report.check("losses are recovered, and no packet is damaged",
                     None if receiving["recovered"] > 10
                     and sending["damaged"] == receiving["damaged"] == 0 else f"{boxes}")


def _send_file(chain, rig):
    """Send the data with `farwrite send` to port 4791 of `b`, so fast that packets leave in trains.
    Return what is wrong."""
    into = rig.directory / f"box-files-{os.urandom(4).hex()}"
    into.mkdir()
    to = f"[{chain.b.v6}]:4791"
    common = ["--psk-file", str(rig.key)]
    receiver = chain.own(chain.b.popen(
        [rig.program, "--quiet", "recv", "--listen", to, *common, "--once", "--dir", str(into)],
        stdout=subprocess.DEVNULL))
    until(lambda: to in chain.b.run("ss", "-lun"), 60, "the receiver listens")
    sender = chain.own(chain.a.popen(
        [rig.program, "--quiet", "send", "--to", to, *common, "--rate", "10Gbit", str(rig.data)],
        text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
    _, err = sender.communicate(timeout=120)
    if sender.returncode != 0:
        return err
    receiver.wait(timeout=60)
    same = filecmp.cmp(rig.data, into / rig.data.name, shallow=False)
    return None if same else "the bytes differ"


_CASES = {
    "losses between boxes": _repair,
    "trains of packets": _trains,
}
