//! The control object of a software NIC.

use std::net::SocketAddr;
use std::sync::Arc;

use farwrite_wire::icrc::Flow;
use farwrite_wire::sealing::SEALING_BYTES;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use super::numbers::Numbers;
use super::port::PortState;
use super::queue_pairs::{QueuePairs, check_remote, check_route};
use super::regions::RegionsOwner;
use super::sealing::{self, OneWay};
use super::update::{RxUpdate, SendRoute, TxUpdate};
use super::window_sets::WindowSets;
use super::windows::{Epochs, Worker};
use super::{Carrier, Ends, MAX_SGE, NicRx, NicTx};
use crate::contract::{
    Capabilities, Capability, Counters, Fabric, FabricError, Lkey, Object, QpAttr, QpRoute,
    QpSealing, Qpn, Region, RegionPtr, RegionReader, RemotePlace, RemoteQp, Window, WindowKeys,
    WindowSet,
};

/// The software NIC over a carrier `C`.
pub struct NicFabric<C> {
    carrier: C,
    numbers: Numbers,
    regions: RegionsOwner,
    windows: WindowSets,
    queue_pairs: QueuePairs,
    epochs: Arc<Epochs>,
    ports: Vec<Arc<PortState>>,
}

impl<C: Carrier> NicFabric<C> {
    /// Creates a NIC without memory or queue pairs. All its keys and numbers follow from `seed`: 32
    /// bytes that nobody can guess, or 32 known bytes in tests.
    pub fn new(carrier: C, seed: [u8; 32]) -> Self {
        let epochs = Arc::new(Epochs::new(carrier.ports()));
        Self {
            ports: (0..carrier.ports()).map(|_| Arc::default()).collect(),
            carrier,
            numbers: Numbers::new(ChaCha20Rng::from_seed(seed)),
            regions: RegionsOwner::default(),
            windows: WindowSets::new(Arc::clone(&epochs)),
            queue_pairs: QueuePairs::default(),
            epochs,
        }
    }

    /// The carrier that moves the packets.
    pub fn carrier(&self) -> &C {
        &self.carrier
    }

    fn check_port(&self, port: u16) -> Result<&Arc<PortState>, FabricError> {
        self.ports
            .get(usize::from(port))
            .ok_or_else(|| FabricError::BadAttribute {
                name: "port",
                value: port.to_string(),
                want: format!("less than {}", self.ports.len()),
            })
    }

    /// The addresses of packets from a port to a peer's queue pair, and the addresses that their
    /// ICRC covers.
    fn send_route(&self, port: u16, qpn: Qpn, route: &QpRoute) -> Result<SendRoute, FabricError> {
        check_route(route)?;
        let flow = self.carrier.flow(port, route.local, route.destination)?;
        let sealed_as = match route.sealed_as {
            None => None,
            Some((src, dst)) => {
                let sealed_as = Flow::new(src, dst).map_err(|e| FabricError::BadAttribute {
                    name: "sealed addresses",
                    value: format!("{src}, {dst}"),
                    want: e.to_string(),
                })?;
                Some(Box::new(sealed_as))
            }
        };
        Ok(SendRoute {
            qpn,
            destination: route.destination,
            flow,
            sealed_as,
        })
    }

    /// Sets the route of a queue pair. The queue pair then sends and receives over this route.
    fn set_checked_route(
        &mut self,
        qpn: Qpn,
        peer: Qpn,
        route: &QpRoute,
    ) -> Result<(), FabricError> {
        let port = self.queue_pairs.get_mut(qpn)?.port;
        let remote = self.send_route(port, peer, route)?;
        // Join the new peer first: if it equals the old one, its socket is kept.
        let ends = Ends {
            local: remote.flow.src().ip(),
            peer: route.source,
        };
        self.carrier.join(port, ends);
        let queue_pair = self.queue_pairs.get_mut(qpn)?;
        queue_pair.remote = Some(peer);
        if let Some(old) = queue_pair.ends.replace(ends) {
            self.carrier.leave(port, old);
        }
        let port = &self.ports[usize::from(port)];
        port.tx.push(TxUpdate::Connect { qpn, remote });
        let source = Some(route.source);
        port.rx.push(RxUpdate::Permit { qpn, source });
        Ok(())
    }
}

impl<C: Carrier> Fabric for NicFabric<C> {
    type Tx = NicTx<C::Tx>;
    type Rx = NicRx<C::Rx>;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_mtu: self.carrier.max_mtu(),
            ports: self.carrier.ports(),
            null_key_completes: true,
            places_on_arrival: false,
            binds_windows: true,
            window_keys: WindowKeys::Table,
            ghosts: C::GHOSTS,
            max_sge: MAX_SGE,
            sealing: Some(sealing::fastest_cipher()),
        }
    }

    fn local_addr(&self, port: u16) -> SocketAddr {
        self.carrier.local_addr(port)
    }

    fn take_tx(&mut self, port: u16) -> Result<Self::Tx, FabricError> {
        let shared = Arc::clone(self.check_port(port)?);
        let carrier = self.carrier.take_tx(port);
        let carrier = carrier.ok_or(FabricError::InUse(Object::TxQueue))?;
        Ok(NicTx::new(carrier, shared, self.regions.reader()))
    }

    fn take_rx(&mut self, port: u16) -> Result<Self::Rx, FabricError> {
        let shared = Arc::clone(self.check_port(port)?);
        let carrier = self.carrier.take_rx(port);
        let carrier = carrier.ok_or(FabricError::InUse(Object::RxWorker))?;
        let worker = Worker::new(Arc::clone(&self.epochs), port);
        Ok(NicRx::new(carrier, shared, worker))
    }

    fn register(&mut self, region: Region) -> Result<Lkey, FabricError> {
        if region.is_ghost() && !C::GHOSTS {
            return Err(FabricError::Unsupported(Capability::GhostMemory));
        }
        let mut regions = self.regions.write();
        regions.register(&mut self.numbers, region)
    }

    fn deregister(&mut self, lkey: Lkey) -> Result<Region, FabricError> {
        self.regions.write().deregister(lkey)
    }

    fn region(&self, lkey: Lkey) -> Result<RegionPtr, FabricError> {
        Ok(self.regions.read().get(lkey)?.bytes())
    }

    fn memory(&self, lkey: Lkey) -> Result<&[u8], FabricError> {
        self.regions.memory(lkey)
    }

    fn copy_out(&self, lkey: Lkey, offset: u64, out: &mut [u8]) -> Result<(), FabricError> {
        self.regions.read().copy_out(lkey, offset, out)
    }

    fn reader(&self, lkey: Lkey) -> Result<RegionReader, FabricError> {
        self.regions.read().reader(lkey)
    }

    fn copy_in(&mut self, lkey: Lkey, offset: u64, bytes: &[u8]) -> Result<(), FabricError> {
        self.regions.write().copy_in(lkey, offset, bytes)
    }

    fn create_windows(
        &mut self,
        of: &[Qpn],
        slots: u32,
        slot_bytes: u64,
    ) -> Result<WindowSet, FabricError> {
        let serial = |&qpn| Ok(self.queue_pairs.get_mut(qpn)?.serial);
        let of = of.iter().map(serial).collect::<Result<_, FabricError>>()?;
        let made = self
            .windows
            .create(&mut self.numbers, of, slots, slot_bytes);
        let (set, slots) = made?;
        for port in &self.ports {
            port.rx.push(RxUpdate::AddWindows(set, Arc::clone(&slots)));
        }
        Ok(set)
    }

    fn destroy_windows(&mut self, set: WindowSet) -> Result<(), FabricError> {
        self.windows.destroy(set)?;
        for port in &self.ports {
            port.rx.push(RxUpdate::RemoveWindows(set));
        }
        Ok(())
    }

    fn open_window(
        &mut self,
        set: WindowSet,
        slot: u32,
        lkey: Lkey,
        offset: u64,
        length: u64,
    ) -> Result<(Window, RemotePlace), FabricError> {
        // The write lock ensures that no transmit queue has a reference to the region's bytes now.
        let regions = self.regions.write();
        let region = regions.get(lkey)?;
        self.windows.open(set, slot, region, offset, length)
    }

    fn close_window(&mut self, window: Window) -> Result<(), FabricError> {
        self.windows.close(window)
    }

    fn poll_closed(&mut self) -> Option<Window> {
        self.windows.poll_closed()
    }

    fn create_qp(&mut self, attr: QpAttr) -> Result<Qpn, FabricError> {
        let capabilities = self.capabilities();
        let (qpn, serial) = self
            .queue_pairs
            .create(&mut self.numbers, &capabilities, attr)?;
        let port = &self.ports[usize::from(attr.port)];
        port.tx.push(TxUpdate::Create {
            qpn,
            mtu: attr.mtu,
            context: attr.context,
            first_psn: self.numbers.draw_24(),
        });
        port.rx.push(RxUpdate::Create {
            qpn,
            serial,
            mtu: attr.mtu,
            takes_sends: attr.recv_buffers > 0,
            context: attr.context,
        });
        Ok(qpn)
    }

    fn seal_qp(&mut self, qpn: Qpn, sealing: Option<QpSealing>) -> Result<(), FabricError> {
        let max_mtu = self.carrier.max_mtu().saturating_sub(SEALING_BYTES);
        let queue_pair = self.queue_pairs.get_mut(qpn)?;
        if queue_pair.remote.is_some() {
            return Err(FabricError::InUse(Object::QueuePair));
        }
        if sealing.is_some() && queue_pair.mtu > max_mtu {
            return Err(FabricError::BadAttribute {
                name: "mtu of a sealed queue pair",
                value: queue_pair.mtu.to_string(),
                want: format!("at most {max_mtu}"),
            });
        }
        let port = &self.ports[usize::from(queue_pair.port)];
        let send = sealing.map(|with| OneWay::sending(&with));
        let receive = sealing.map(|with| OneWay::receiving(&with));
        port.tx.push(TxUpdate::Seal { qpn, with: send });
        port.rx.push(RxUpdate::Seal { qpn, with: receive });
        Ok(())
    }

    fn connect_qp(&mut self, qpn: Qpn, remote: RemoteQp) -> Result<(), FabricError> {
        if self.queue_pairs.get_mut(qpn)?.remote.is_some() {
            return Err(FabricError::InUse(Object::QueuePair));
        }
        check_remote(&remote)?;
        self.set_checked_route(qpn, remote.qpn, &QpRoute::to(remote.addr))
    }

    fn set_route(&mut self, qpn: Qpn, route: QpRoute) -> Result<(), FabricError> {
        let peer = self.queue_pairs.get_mut(qpn)?.remote;
        self.set_checked_route(qpn, peer.ok_or(FabricError::NotConnected(qpn.0))?, &route)
    }

    fn disconnect_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        let queue_pair = self.queue_pairs.get_mut(qpn)?;
        let remote = queue_pair.remote.take();
        remote.ok_or(FabricError::NotConnected(qpn.0))?;
        if let Some(ends) = queue_pair.ends.take() {
            self.carrier.leave(queue_pair.port, ends);
        }
        let port = &self.ports[usize::from(queue_pair.port)];
        port.tx.push(TxUpdate::Disconnect(qpn));
        port.rx.push(RxUpdate::Permit { qpn, source: None });
        Ok(())
    }

    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        let queue_pair = self.queue_pairs.destroy(qpn)?;
        if let Some(ends) = queue_pair.ends {
            self.carrier.leave(queue_pair.port, ends);
        }
        let port = &self.ports[usize::from(queue_pair.port)];
        port.tx.push(TxUpdate::Destroy(qpn));
        port.rx.push(RxUpdate::Destroy(qpn));
        Ok(())
    }

    fn counters(&self) -> Counters {
        let [socket_drops, stranger_drops] = self.carrier.socket_drops();
        let mut sum = Counters {
            socket_drops,
            stranger_drops,
            ..Counters::default()
        };
        for port in &self.ports {
            port.add_to(&mut sum);
        }
        sum
    }
}
