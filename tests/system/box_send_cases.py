"""`farwrite send` through `farwrite lowar`, over a long path with losses."""

import filecmp
import json
import os
import subprocess

from lib.chain import LongChain
from lib.rig import Rig
from lib.veth import until

#: Data packets of a class, which has one repair packet.
CLASS = 8
#: Transfers through each pair of boxes: enough losses for BAND.
TRANSFERS = 4
#: How far counts may be from the prediction, as a share of it. A class that loses two packets leaves both
#: missing. So about 150 missing packets are 75 independent events, whose standard deviation is an eighth.
BAND = 0.5
#: Room in front of the path, so that a process that stalls delays packets and loses none.
QUEUE = "1s"


def run(report, programs, directory):
    with report.case("boxes: farwrite send"):
        _repeats(report, Rig(programs, directory))


def _repeats(report, rig):
    """The datagrams leave at 100 Mbit/s, so most of them are single packets: box_ipv6_cases.py has trains."""
    bare, _ = _transfers(report, rig, "without repair packets", "--forward")
    coded, boxes = _transfers(report, rig, "with them", "--coding", f"{CLASS},1", "--ip-mtu", "1600")
    sending, receiving = boxes
    # Packets of SDR, which boxes protect. All frames of the control channel go around the boxes.
    data = sending["far_sent"] - sum(sending[name] for name in ("repairs_sent", "questions_sent", "near_around"))
    loss = 1 - receiving["far_received"] / sending["far_sent"]
    # A block ends after 1 ms at the latest, so on a busy machine its class may be shorter: on average this.
    shorter = sending["coded"] / sending["repairs_sent"]
    least, most = (_left(loss, sending["coded"] / data, size) for size in (min(shorter, CLASS), CLASS))
    least, most = (1 - BAND) * least, (1 + BAND) * most
    # The receiver counts, and not the box: where a process moves to another core, a repair packet can overtake a
    # packet of its class, and the box recovers a packet that still comes.
    left = _loss(coded) / _loss(bare)
    report.check("boxes leave as many packets missing as the code predicts", None if least < left < most
                 else f"{left:.3f} of the loss without boxes, not {least:.3f} to {most:.3f}: {boxes}, {coded}, {bare}")
    # A sender also repeats packets that are only late, when a process stalls: least in the best transfer.
    # crates/experiment/tests/experiment/boxes.rs compares repeats and completion times in virtual time.
    repeated = min(one["retransmitted_share"] for one in coded)
    report.check("so the sender repeats fewer packets than are lost",
                 None if repeated < _loss(bare) else f"{repeated:.4f} of the packets: {coded}, {bare}")


def _left(loss, protected, size):
    """Return the predicted share of losses that stay missing. A lost packet is recovered if all others of its class
    of `size` packets arrive, and their repair packet. The packets of the first round trip are not protected."""
    return 1 - protected * (1 - loss) ** size


def _loss(transfers):
    """Return the share of packets whose first sending did not arrive, as the receiver counts."""
    lost, judged = (sum(one["send_loss"][name] for one in transfers) for name in ("lost_chunks", "judged_chunks"))
    return lost / judged


def _transfers(report, rig, name, *options):
    """Send the file several times. Return the senders' results, and those of the boxes."""
    with LongChain(rig.program, "--rtt", "20ms", "--rate", "200Mbit", "--queue", QUEUE, "--loss", "4%", "--back",
                   "loss=0") as chain:
        with rig.boxes(chain, *options) as boxes:
            sent = [_send_file(chain, rig) for _ in range(TRANSFERS)]
    report.check(f"{name}, the files arrive", [wrong for _, wrong in sent if wrong])
    return [found for found, _ in sent if found], boxes


def _send_file(chain, rig):
    """Return the sender's result, and what is wrong with the file."""
    into = rig.directory / f"box-files-{os.urandom(4).hex()}"
    into.mkdir()
    receiver = chain.own(chain.b.popen(
        [rig.program, "--json", "--quiet", "recv", "--listen", f"{chain.b.v4}:4791", "--psk-file",
         str(rig.key), "--once", "--dir", str(into)], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE))
    until(lambda: f"{chain.b.v4}:4791" in chain.b.run("ss", "-lun"), 60, "the receiver listens")
    sender = chain.a.popen(
        [rig.program, "--json", "--quiet", "send", "--to", f"{chain.b.v4}:4791", "--psk-file",
         str(rig.key), "--rate", "100Mbit", str(rig.data)], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE)
    chain.own(sender)
    out, err = sender.communicate(timeout=120)
    if sender.returncode != 0:
        return None, err
    receiver.communicate(timeout=60)
    same = filecmp.cmp(rig.data, into / rig.data.name, shallow=False)
    return json.loads(out)["result"], None if same else "the bytes differ"
