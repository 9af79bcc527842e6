"""Traffic of the operating system's own protocols: `traffic.py COMMAND OPTIONS`. Each process is
one end.

A receiving end prints `ready` first. The last line of each command is one JSON object, with the processor time of the
command.
"""

import argparse
import json
import selectors
import socket
import struct
import time

# Constants that Python does not define.
SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33
SOL_UDP = 17
UDP_SEGMENT = 103
UDP_GRO = 104
MIB = 1 << 20


def main():
    """Run one end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument("--at", default="0.0.0.0", help="own address")
    parser.add_argument("--to", help="the other end's address")
    parser.add_argument("--port", type=int, default=7000)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--bytes", type=int, default=0, help="of a message; 0: --seconds count")
    parser.add_argument("--messages", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0, help="seconds between two messages")
    parser.add_argument("--cold", action="store_true", help="a connection for each message")
    parser.add_argument("--cc", default="cubic", help="TCP's congestion control")
    parser.add_argument("--flows", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1e8, help="bits a second of IP packets")
    parser.add_argument("--payload", type=int, default=1400)
    parser.add_argument("--segments", type=int, default=1, help="datagrams in one piece")
    parser.add_argument("--tos", type=int, default=0)
    args = parser.parse_args()
    # The start of the interpreter does not count.
    before = time.process_time()
    result = _COMMANDS[args.command](args)
    print(json.dumps(result | {"processor_seconds": time.process_time() - before}), flush=True)


def _family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _tcp_sink(args):
    """Accept `flows` connections. Report when each began and how many bytes it carried in each
    tenth of a second since the first byte of all connections."""
    listener = socket.create_server((args.at, args.port), family=_family(args.at))
    print("ready", flush=True)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    room = bytearray(4 * MIB)
    flows, open_flows, started = [], 0, None
    while len(flows) < args.flows or open_flows:
        for key, _ in selector.select():
            if key.fileobj is listener:
                connection, _ = listener.accept()
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ, len(flows))
                flows.append([])
                open_flows += 1
                continue
            # The kernel discards the bytes and counts them (tcp(7), MSG_TRUNC).
            taken = key.fileobj.recv_into(room, 0, socket.MSG_TRUNC)
            if taken == 0:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                open_flows -= 1
                continue
            now = time.monotonic()
            started = started or now
            tenths = flows[key.data]
            tenths.extend([0] * (int((now - started) * 10) + 1 - len(tenths)))
            tenths[-1] += taken
    return {"flows": flows}


def _connect(args):
    connection = socket.socket(_family(args.to), socket.SOCK_STREAM)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, args.cc.encode())
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.connect((args.to, args.port))
    return connection


def _tcp_source(args):
    """Send for some seconds on one connection."""
    piece = bytes(MIB)
    with _connect(args) as connection:
        end = time.monotonic() + args.seconds
        sent = 0
        while time.monotonic() < end:
            sent += connection.send(piece)
        used = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return {"bytes": sent, "cc": used.rstrip(b"\0").decode()}


def _tcp_answer(args):
    """Answer each message of `bytes` with one byte, until the last of `messages`."""
    listener = socket.create_server((args.at, args.port), family=_family(args.at))
    print("ready", flush=True)
    room = bytearray(4 * MIB)
    answered = 0
    while answered < args.messages:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        missing = args.bytes
        while taken := connection.recv_into(room, min(missing, len(room)), socket.MSG_TRUNC):
            missing -= taken
            if missing == 0:
                connection.send(b"!")
                answered += 1
                missing = args.bytes
        connection.close()
    return {"answered": answered}


def _tcp_ask(args):
    """Send messages one after the other. Measure the seconds from the first byte, or from the
    call that connects, to the answer."""
    message = memoryview(bytes(args.bytes))
    connection = None if args.cold else _connect(args)
    seconds = []
    for number in range(args.messages):
        if number > 0:
            time.sleep(args.pause)
        start = time.monotonic()
        if args.cold:
            connection = _connect(args)
        connection.sendall(message)
        if connection.recv(1) != b"!":
            raise ConnectionError("the other end closed the connection")
        seconds.append(time.monotonic() - start)
        if args.cold:
            connection.close()
    return {"seconds": seconds}


def _udp_echo(args):
    """Send every datagram back until an empty one arrives."""
    echo = socket.socket(_family(args.at), socket.SOCK_DGRAM)
    echo.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 * MIB)
    echo.bind((args.at, args.port))
    print("ready", flush=True)
    count = 0
    while True:
        datagram, source = echo.recvfrom(65536)
        if not datagram:
            return {"echoed": count}
        echo.sendto(datagram, source)
        count += 1


def _udp_ping(args):
    """Send numbered datagrams at the rate and receive the echoes. Report the number and the
    round trip in seconds of each echo, in the order of arrival. End when all echoes have arrived,
    or when none has arrived for some time."""
    ping = socket.socket(_family(args.to), socket.SOCK_DGRAM)
    ping.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 * MIB)
    ping.connect((args.to, args.port))
    ping.setblocking(False)
    interval = (args.payload + 28) * 8 / args.rate
    start = time.monotonic()
    sent, echoes, looks = 0, [], 0
    # The limit counts receive attempts, which together take at least a second. A limit on time
    # would also count the time for which this machine stalls.
    while sent * interval < args.seconds or len(echoes) < sent and looks < 5000:
        if time.monotonic() >= start + sent * interval and sent * interval < args.seconds:
            stamp = struct.pack("!Id", sent, time.monotonic())
            ping.send(stamp + bytes(max(0, args.payload - len(stamp))))
            sent += 1
            looks = 0
        try:
            number, then = struct.unpack("!Id", ping.recv(65536)[:12])
            echoes.append([number, time.monotonic() - then])
            looks = 0
        except BlockingIOError:
            looks += 1
            time.sleep(0.0002)
    _finish(ping)
    return {"sent": sent, "echoes": echoes}


def _udp_sink(args):
    """Count datagrams and their ECN fields until an empty datagram arrives."""
    sink = socket.socket(_family(args.at), socket.SOCK_DGRAM)
    sink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 * MIB)
    sink.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    sink.setsockopt(SOL_UDP, UDP_GRO, 1)
    sink.bind((args.at, args.port))
    print("ready", flush=True)
    count = got = 0
    ecn = [0, 0, 0, 0]
    first = last = None
    while True:
        train, controls, _, _ = sink.recvmsg(65536, 256)
        if not train:
            break
        last = time.monotonic()
        # The measured time begins after the first read, so the bytes of this read do not count.
        if first is None:
            first = last
        else:
            got += len(train)
        segment, field = len(train), 0
        for level, kind, value in controls:
            if (level, kind) == (SOL_UDP, UDP_GRO):
                segment = struct.unpack("i", value[:4])[0]
            elif (level, kind) == (socket.IPPROTO_IP, socket.IP_TOS):
                field = value[0] & 3
        datagrams = -(-len(train) // segment)
        count += datagrams
        ecn[field] += datagrams
    return {"datagrams": count, "ecn": ecn, "bytes": got, "seconds": (last or 0) - (first or 0)}


def _udp_blast(args):
    """Send datagrams at the rate, `segments` datagrams per system call."""
    blast = socket.socket(_family(args.to), socket.SOCK_DGRAM)
    blast.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 16 * MIB)
    blast.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, args.tos)
    if args.segments > 1:
        blast.setsockopt(SOL_UDP, UDP_SEGMENT, args.payload)
    blast.connect((args.to, args.port))
    train = bytes(args.payload * args.segments)
    interval = (args.payload + 28) * args.segments * 8 / args.rate
    start, trains = time.monotonic(), 0
    while (now := time.monotonic()) < start + args.seconds:
        if now < start + trains * interval:
            time.sleep(interval / 4)
            continue
        blast.send(train)
        trains += 1
    time.sleep(1)
    _finish(blast)
    return {"datagrams": trains * args.segments}


def _finish(sender):
    """Send empty datagrams until the receiver has ended. Several are needed, because the path may
    lose some."""
    try:
        for _ in range(50):
            sender.send(b"")
            time.sleep(0.02)
    except ConnectionRefusedError:
        pass


_COMMANDS = {
    "tcp-sink": _tcp_sink,
    "tcp-source": _tcp_source,
    "tcp-answer": _tcp_answer,
    "tcp-ask": _tcp_ask,
    "udp-echo": _udp_echo,
    "udp-ping": _udp_ping,
    "udp-sink": _udp_sink,
    "udp-blast": _udp_blast,
}

if __name__ == "__main__":
    main()
