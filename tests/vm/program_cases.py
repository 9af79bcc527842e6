"""Cases of the programs of users: `farwrite perf`, `send` and `recv`, over devices and sockets."""

import os
import pathlib
import sys

from case import case

#: A key that nothing else uses.
KEY = {"FARWRITE_PSK": "farwrite-psk-1:wvq4x2y4cma3bwppzzzcp3lipvjkwpfxddirslgwxb7yigp5j3vw76v7ay"}
LOSS = dict.fromkeys(["v0", "p0"], "loss 1% delay 2ms 1ms")
CABLE_LOSS = dict.fromkeys(["w0", "w1"], "loss 1% delay 2ms 1ms")

#: An end: its device, its address and its namespace.
DEVICE = ("rxe0", "10.1.0.1", None)
SOCKETS = (None, "10.1.0.9", "peer")
LEFT = ("rxe1", "10.2.0.1", None)
RIGHT = ("rxe2", "10.2.0.2", None)


def program_cases(programs):
    farwrite = programs["farwrite"]
    return [
        perf(farwrite, "perf-device-to-udp", DEVICE, SOCKETS, LOSS),
        perf(farwrite, "perf-udp-to-device", SOCKETS, DEVICE, LOSS, "--scheme ec-mds:32,8"),
        perf(farwrite, "perf-device-to-device", LEFT, RIGHT, CABLE_LOSS),
        perf(farwrite, "perf-read-device", DEVICE, SOCKETS, {}, test="read_bw"),
        perf(farwrite, "perf-latency-device", LEFT, RIGHT, {}, "-n 50 -s 64", test="write_lat"),
        send(farwrite, "send-device-to-udp", DEVICE, SOCKETS, LOSS),
        send(farwrite, "send-udp-to-device", SOCKETS, DEVICE, LOSS),
        send(farwrite, "send-device-to-device", LEFT, RIGHT, CABLE_LOSS),
        send_to_smaller_mtu(farwrite, "send-to-smaller-mtu"),
        send_without_name(farwrite, "send-without-name"),
        c_benchmark(programs["sdr_write_bw"], "c-device-to-device", ("FARWRITE_DEVICE=rxe1", LEFT), ("-d rxe2", RIGHT)),
        c_benchmark(programs["sdr_write_bw"], "c-two-channels", ("-d rxe1", LEFT), ("-d rxe2", RIGHT), "-q 2"),
        c_benchmark(programs["sdr_write_bw"], "c-udp-to-device", ("-d udp:10.1.0.9:4791", SOCKETS),
                    ("-d rxe0@10.1.0.1", DEVICE)),
        *bad_input(farwrite),
    ]


def device(end, option="--device"):
    return f"{option} {end[0]}" if end[0] else ""


def perf(farwrite, name, client, server, netem, options="", test="write_bw"):
    shape, least = (options, 50) if "-n" in options else (f"-s 65536 -n 40 -t 8 {options}", 1000)
    return shells(name, 60, netem, [
        (over_device(f"{farwrite} perf {test} --bind {server[1]} {device(server)}", server, least), server),
        (over_device(f"{farwrite} perf {test} {server[1]} {device(client)} {shape}", client, least), client),
    ])


def over_device(script, end, least=1000):
    """Return a script that fails if the device of its end has carried fewer packets: sockets might carry the data
    instead."""
    if not end[0]:
        return script
    counters = f"/sys/class/infiniband/{end[0]}/ports/1/hw_counters"
    carried = f"carried() {{ echo $(($(cat {counters}/sent_pkts) + $(cat {counters}/rcvd_pkts))); }}"
    return f"{carried}; before=$(carried); {script}; test $(carried) -ge $((before + {least}))"


def send(farwrite, name, sender, receiver, netem, size_kib=2000):
    """Send a file, and compare what has arrived. It has 500 packets of the largest MTU."""
    source, into = f"/tmp/{name}.bin", f"/tmp/{name}.d"
    receive = f"{farwrite} recv --once --listen {receiver[1]}:4792 --dir {into} {device(receiver)}"
    return shells(name, 60, netem, [
        (over_device(f"mkdir {into}; {receive}; cmp {source} {into}/{name}.bin", receiver, 500), receiver),
        (over_device(f"dd if=/dev/urandom of={source} bs=1024 count={size_kib} 2>/dev/null; "
                     f"{farwrite} send --no-path-cache --to {receiver[1]} {device(sender)} {source}", sender, 500), sender),
    ])


def send_to_smaller_mtu(farwrite, name):
    """The interface of the receiver carries smaller packets than that of the sender. An error says what to do."""
    receive = f"{farwrite} recv --once --listen {RIGHT[1]}:4792 --dir /tmp/{name} {device(RIGHT)}"
    send = f"{farwrite} send --no-path-cache --to {RIGHT[1]} {device(LEFT)} /etc/services"
    return shells(name, 60, {}, [
        (f"ip link set w1 mtu 1500; mkdir /tmp/{name}; {receive} || {receive}; ip link set w1 mtu 4500; "
         f"cmp /etc/services /tmp/{name}/services", RIGHT),
        (f"if {send} 2>/tmp/{name}.log; then exit 1; fi; cat /tmp/{name}.log; "
         f"grep --quiet 'give the sender --mtu 1024' /tmp/{name}.log; {send} --mtu 1024", LEFT),
    ])


def send_without_name(farwrite, name):
    """Packets of a device show the contents of a file, because a device does not seal them, but never its name."""
    source, into = "/tmp/only-the-ends-know-this", f"/tmp/{name}.d"
    receive = f"{farwrite} recv --once --listen {SOCKETS[1]}:4792 --dir {into}"
    send = f"{farwrite} send --no-path-cache --to {SOCKETS[1]} {device(DEVICE)} {source}"
    tap = f"{os.path.realpath(sys.executable)} {pathlib.Path(__file__).with_name('tap.py').resolve()} v0 {source}"
    return shells(name, 60, {}, [
        (f"mkdir {into}; {receive}; cmp {source} {into}/only-the-ends-know-this", SOCKETS),
        (f"yes 'what only this file says' | head -c 2048000 >{source}; {tap} {send}", DEVICE),
    ])


def c_benchmark(program, name, client, server, options=""):
    """Return a case of the benchmark of `examples/c`. Its server compares what has arrived. The ends meet over TCP."""
    def end(device, more=""):
        environment, flag = ("", device) if device.startswith("-d") else (device, "")
        return f"{environment} {program} -s 262144 -c 14 -n 24 -w 3 -r 50000 -t 3 {options} {flag} {more}"

    # The last column: messages that were lost, which the benchmark only counts.
    few_lost = "awk '$1 == 262144 && $5 < 6 { good = 1 } /wrong/ { bad = 1 } END { exit bad || !good }'"
    out = f"/tmp/{name}.out"
    return shells(name, 120, {}, [
        (f"{end(server[0])} | tee {out}; {few_lost} {out}", server[1]),
        (f"until grep -q listening {out}; do sleep 0.1; done; {end(client[0], server[1][1])}", client[1]),
    ], FARWRITE_VERBOSE="1")


def bad_input(farwrite):
    """What is wrong with a device, how a program ends then, and what it says."""
    nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups"
    perf, send = f"{farwrite} perf write_bw 10.1.0.9", f"{farwrite} send --to 10.1.0.9 /etc/passwd"
    down = "ip link set w1 down; sleep 0.5"
    return [
        refused("bad-device", f"{perf} --device none7", 2, "none7.*one of rxe0, rxe1, rxe2"),
        refused("bad-address", f"{send} --device rxe0@10.1.0.77", 2, "10.1.0.77: one of .*10.1.0.1"),
        refused("bad-port", f"{perf} --device rxe0/7", 1, "port 7 of RDMA device rxe0"),
        refused("bad-text", f"{send} --device rxe0/", 2, "names no RDMA device"),
        refused("bad-rate-control", f"{send} --device rxe0 --rate 1Gbit --rate-control dcqcn", 2, "congestion marks"),
        refused("bad-sealed", f"{send} --sealed --device rxe0", 2, "--sealed"),
        refused("bad-port-down", f"{send} --device rxe2", 5, "is down", before=down, after="ip link set w1 up"),
        refused("bad-permission", f"{nobody} {perf} --device rxe0", 1, "may this user open",
                before="chmod 600 /dev/infiniband/*", after="chmod 666 /dev/infiniband/*"),
    ]


def refused(name, command, code, text, before="true", after="true"):
    """Return a case with a command that must end with this code, and one line that matches `text`."""
    script = (
        f"{before}; code=0; {command} 2>/tmp/{name} || code=$?; {after}; cat /tmp/{name}; "
        f"[ $code = {code} ] && [ $(wc -l </tmp/{name}) = 1 ] && grep --quiet -- '{text}' /tmp/{name}"
    )
    return shells(name, 20, {}, [(script, DEVICE)])


def shells(name, limit_s, netem, programs, **environment):
    """Return a case whose programs are scripts, each at an end."""
    programs = [{"command": ["sh", "-ec", script], "namespace": end[2]} for script, end in programs]
    return case(name, limit_s, *programs, netem=netem, environment=KEY | environment)
