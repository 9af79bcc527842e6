//! An end: a plain UDP socket, with packets made and checked by `farwrite-wire`.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_emulator::udp::{PortPair, Side, UdpEmulator, UdpEmulatorConfig};
use farwrite_wire::icrc::{self, Flow, Icrc, IdRange};
use farwrite_wire::packet::Packet;
use farwrite_wire::request::{SendOnly, pad_bytes};

/// Longer than any successful wait takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct End {
    pub(crate) socket: UdpSocket,
}

/// A received packet.
pub(crate) struct Arrival {
    pub(crate) src: SocketAddr,
    pub(crate) bytes: Vec<u8>,
    /// Whether its ICRC is valid for the addresses with which it arrived.
    pub(crate) is_sealed: bool,
}

impl Arrival {
    /// Returns the number that [`packet`] stored as PSN.
    pub(crate) fn number(&self) -> u32 {
        Packet::parse(&self.bytes)
            .expect("a RoCEv2 packet")
            .bth()
            .psn
    }
}

impl End {
    pub(crate) fn new(bind: &str) -> Self {
        let socket = UdpSocket::bind(bind).expect("a loopback socket");
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// Sends packet `number` with `payload_bytes` of payload.
    pub(crate) fn send(&self, to: SocketAddr, number: u32, payload_bytes: u32) {
        self.send_raw(to, &packet(self.addr(), to, 0, number, payload_bytes));
    }

    pub(crate) fn send_raw(&self, to: SocketAddr, bytes: &[u8]) {
        assert_eq!(self.socket.send_to(bytes, to).unwrap(), bytes.len());
    }

    pub(crate) fn receive(&self) -> Arrival {
        self.try_receive(PATIENCE).expect("a packet")
    }

    pub(crate) fn try_receive(&self, patience: Duration) -> Option<Arrival> {
        let mut buffer = vec![0; 65_536];
        self.socket.set_read_timeout(Some(patience)).unwrap();
        let (len, src) = self.socket.recv_from(&mut buffer).ok()?;
        buffer.truncate(len);
        let flow = Flow::new(src, self.addr()).unwrap();
        Some(Arrival {
            src,
            is_sealed: icrc::verify(&flow, &buffer, 0, IdRange::SOFTWARE).is_ok(),
            bytes: buffer,
        })
    }
}

/// Returns a genuine packet: UC SEND Only, with `number` as PSN, sealed for its addresses.
pub(crate) fn packet(
    src: SocketAddr,
    dst: SocketAddr,
    id: u16,
    number: u32,
    payload_bytes: u32,
) -> Vec<u8> {
    let header = SendOnly {
        dest_qp: 0x11,
        psn: number,
        payload_bytes,
    };
    let mut bytes = header.header().to_vec();
    bytes.extend((0..payload_bytes).map(|i| (i + number).to_le_bytes()[0]));
    bytes.extend(vec![0; pad_bytes(payload_bytes).into()]);
    let flow = Flow::new(src, dst).unwrap();
    let icrc = Icrc::new(&flow, id, bytes.len() + 4)
        .update(&bytes)
        .finish();
    bytes.extend(icrc.to_le_bytes());
    bytes
}

/// Returns a packet without its ICRC.
pub(crate) fn body(packet: &[u8]) -> &[u8] {
    &packet[..packet.len() - 4]
}

/// Two ends, and an emulator between them that knows both addresses.
pub(crate) struct Setup {
    pub(crate) a: End,
    pub(crate) b: End,
    /// The address to which A sends, and the source of A's packets as B sees it.
    pub(crate) a_side: SocketAddr,
    pub(crate) b_side: SocketAddr,
    pub(crate) emulator: UdpEmulator,
}

/// Starts an emulator with `config`, whose channels are replaced.
pub(crate) fn set_up(bind: &str, config: UdpEmulatorConfig) -> Setup {
    let (a, b) = (End::new(bind), End::new(bind));
    let emulator = UdpEmulator::start(&UdpEmulatorConfig {
        channels: vec![PortPair {
            a: Side::facing(a.addr()),
            b: Side::facing(b.addr()),
        }],
        ..config
    })
    .expect("an emulator");
    let [a_side, b_side] = emulator.addresses()[0];
    Setup {
        a,
        b,
        a_side,
        b_side,
        emulator,
    }
}

/// Waits until `is_so` returns true.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "still waiting until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
