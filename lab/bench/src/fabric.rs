//! The UDP fabric alone over loopback: one end posts writes, the other polls completions.

use std::thread;

use farwrite_fabric::contract::{
    Completion, Fabric, FabricError, Lkey, QpAttr, Qpn, RealTimeRx, Region, RemotePlace, RemoteQp,
    RxWorker, Sge, TxQueue, WriteWr,
};
use farwrite_fabric::nic::{NicRx, NicTx};
use farwrite_fabric::udp::{SocketConfig, UdpConfig, UdpFabric, UdpRx, UdpTx};

use crate::blast::BlastConfig;
use crate::meter::{Meter, Moved};
use crate::window::{STALL, Window};

/// Packets per post.
const POST: usize = 240;

/// Two ends on loopback with a connected queue pair each, a source at one and a destination at the
/// other. Repeated runs need no set-up.
pub(crate) struct FabricPair {
    tx: NicTx<UdpTx>,
    rx: NicRx<UdpRx>,
    /// The control object of the receiver, for its counters. The sender's control object has no
    /// work.
    receiver: UdpFabric,
    tx_qp: Qpn,
    source: Lkey,
    destination: RemotePlace,
    bytes: usize,
    mtu: usize,
}

impl FabricPair {
    /// Registers two buffers of equal length, and connects the ends.
    ///
    /// # Errors
    /// The fabric's.
    pub(crate) fn new(
        mtu: usize,
        source: Vec<u8>,
        destination: Vec<u8>,
    ) -> Result<Self, FabricError> {
        let config = UdpConfig {
            socket: SocketConfig::new(([127, 0, 0, 1], 0).into()),
            ports: 1,
        };
        let (mut sender, mut receiver) = (UdpFabric::bind(&config)?, UdpFabric::bind(&config)?);
        let attr = QpAttr {
            mtu: u32::try_from(mtu).unwrap_or(u32::MAX),
            port: 0,
            context: 0,
            recv_buffers: 0,
        };
        let (tx_qp, rx_qp) = (sender.create_qp(attr)?, receiver.create_qp(attr)?);
        let remote = |addr, qpn| RemoteQp { addr, qpn };
        sender.connect_qp(tx_qp, remote(receiver.local_addr(0), rx_qp))?;
        receiver.connect_qp(rx_qp, remote(sender.local_addr(0), tx_qp))?;
        let bytes = source.len();
        let source = sender.register(Region::owned(source))?;
        let destination = receiver.register(Region::owned(destination))?;
        let set = receiver.create_windows(&[rx_qp], 1, bytes as u64)?;
        let (_, destination) = receiver.open_window(set, 0, destination, 0, bytes as u64)?;
        Ok(Self {
            tx: sender.take_tx(0)?,
            rx: receiver.take_rx(0)?,
            receiver,
            tx_qp,
            source,
            destination,
            bytes,
            mtu,
        })
    }

    /// Moves the whole source once.
    ///
    /// # Errors
    /// The fabric's.
    pub(crate) fn run(&mut self, config: BlastConfig) -> Result<Moved, FabricError> {
        let window = Window::new(config.window_bytes, STALL);
        let before = self.receiver.counters();
        let (bytes, mtu) = (self.bytes, self.mtu);
        let (tx, tx_qp, source, place) = (&mut self.tx, self.tx_qp, self.source, self.destination);
        let rx = &mut self.rx;
        let meter = Meter::start();
        thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(rx, bytes as u64, &window));
            let packet = |i: usize| Sge {
                lkey: source,
                offset: (i * mtu) as u64,
                length: u32::try_from(mtu.min(bytes - i * mtu)).unwrap_or(u32::MAX),
            };
            let sent = send(tx, tx_qp, place, bytes.div_ceil(mtu), packet, |at| {
                window.wait((at * mtu) as u64);
            });
            window.end();
            receiver.join().expect("the receiver does not panic")?;
            sent
        })?;
        let usage = meter.read();
        let after = self.receiver.counters();
        Ok(Moved {
            bytes: window.arrived(),
            sent: bytes.div_ceil(mtu) as u64,
            received: after.received_packets - before.received_packets,
            usage,
        })
    }
}

fn send(
    tx: &mut NicTx<UdpTx>,
    qpn: Qpn,
    place: RemotePlace,
    packets: usize,
    packet: impl Fn(usize) -> Sge,
    wait: impl Fn(usize),
) -> Result<(), FabricError> {
    let mut at = 0;
    while at < packets {
        wait(at);
        let entries: Vec<_> = (at..packets.min(at + POST)).map(|i| [packet(i)]).collect();
        let writes: Vec<_> = entries
            .iter()
            .map(|entry| WriteWr {
                wr_id: 0,
                signaled: false,
                local: entry,
                remote_addr: place.addr + entry[0].offset,
                rkey: place.rkey,
                imm: 0,
            })
            .collect();
        at += tx.post_writes(qpn, &writes)?;
    }
    Ok(())
}

fn receive(rx: &mut NicRx<UdpRx>, bytes: u64, window: &Window) -> Result<(), FabricError> {
    let mut completions = Vec::new();
    let mut got = 0;
    // Whether the sender had finished before the last wait.
    let mut is_last_wait = false;
    while got < bytes {
        let more = rx.poll(&mut completions)?;
        let idle = completions.is_empty();
        for completion in completions.drain(..) {
            if let Completion::Write { bytes, .. } = completion {
                got += u64::from(bytes);
            }
        }
        window.arrive(got);
        if idle && !more {
            if is_last_wait {
                break;
            }
            is_last_wait = window.has_ended();
            rx.wait(STALL)?;
        } else {
            is_last_wait = false;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_lands_in_its_place() {
        let source: Vec<u8> = (0..3_000_001_u32)
            .map(|i| (i % 251).to_le_bytes()[0])
            .collect();
        let destination = vec![0; source.len()];
        let mut pair = FabricPair::new(4096, source, destination).unwrap();
        let config = BlastConfig {
            mtu: 4096,
            window_bytes: 1 << 20,
            pace_bps: None,
        };
        for _ in 0..2 {
            let result = pair.run(config).unwrap();
            assert_eq!((result.sent, result.received), (733, 733));
            assert_eq!(result.bytes, 3_000_001);
        }
    }
}
