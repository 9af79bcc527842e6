"""Cases in which a device goes away while a program uses it."""

from case import case

#: A device of this case alone, on an interface whose peer is in the namespace `peer`. `moved` waits until it has
#: carried a thousand packets.
OWN_DEVICE = """
ip link add g0 mtu 4500 type veth peer name g1 mtu 4500 netns peer
ip addr add 10.4.0.1/24 dev g0
ip -n peer addr add 10.4.0.9/24 dev g1
ip link set g0 up
ip -n peer link set g1 up
rdma link add rxe9 type rxe netdev g0
counters=/sys/class/infiniband/rxe9/ports/1/hw_counters
moved() { while [ $(($(cat $counters/sent_pkts) + $(cat $counters/rcvd_pkts))) -lt 1000 ]; do sleep 0.1; done; }
"""


def gone_cases(programs):
    move = f"{programs['move']} recv --meet 10.1.0.1:7000 --device rxe9 --messages 1 --bytes"
    peer = f"ip netns exec peer {programs['move']} send --meet 10.1.0.1:7000 --udp 10.4.0.9:4791 --messages 1 --bytes"
    # The kernel removes neither the interface nor the device while a program has the device open. The program sees
    # that its interface is gone, and ends. Its peer does not know that, and is ended.
    interface = f"""
        {peer} 50000000 & peer=$!
        {move} 50000000 2>/tmp/gone & program=$!
        moved
        ip link delete g0
        code=0
        wait $program || code=$?
        kill $peer
        cat /tmp/gone
        [ $code = 1 ] && [ $(wc -l </tmp/gone) = 1 ] && grep --quiet 'failed.*interface removed' /tmp/gone
    """
    # A device that is only removed from the list works until the program is done.
    device = f"""
        {peer} 6000000 & peer=$!
        {move} 6000000 & program=$!
        moved
        rdma link delete rxe9 & deletion=$!
        until ! rdma link show rxe9/1; do sleep 0.1; done
        if {move} 1 2>/tmp/gone; then exit 1; fi
        cat /tmp/gone
        grep --quiet 'rxe9: one of rxe0' /tmp/gone
        kill -0 $program
        wait $program
        wait $peer
        wait $deletion
        ip link delete g0
    """
    return [
        case("gone-interface", 60, ["sh", "-ec", OWN_DEVICE + interface]),
        case("gone-device", 60, ["sh", "-ec", OWN_DEVICE + device]),
    ]
