//! The control object.

mod connecting;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use farwrite_fabric::contract::{
    Capabilities, Counters, Fabric, FabricError, Lkey, MAX_OBJECTS, Object, QpAttr, QpRoute, Qpn,
    Region, RegionPtr, RegionReader, RemotePlace, RemoteQp, Table, Waker, Window, WindowSet,
};
use farwrite_fabric::nic::ROCE_PORT;
use farwrite_fabric::udp::WakeEvent;

use self::connecting::{check_addr, path_mtu};
use crate::buffers::Buffers;
use crate::config::VerbsConfig;
use crate::device::{
    Access, CompletionQueue, Depths, Device, DeviceQp, Limits, PortAddress, ProtectionDomain,
};
use crate::epochs::{Epochs, Worker};
use crate::keys::Keys;
use crate::port::{Counts, Port, QueuePair, ReceiveBuffers};
use crate::receiving::Receiving;
use crate::regions::Regions;
use crate::rx::VerbsRx;
use crate::sending::Sending;
use crate::tx::VerbsTx;
use crate::windows::Windows;

/// Completions of one queue, if the device allows as many.
const COMPLETIONS: u32 = 1 << 18;
/// Scatter entries of a write, as software NICs have.
const MAX_SGE: u32 = 8;
/// Bytes of a write that are copied into its request.
const INLINE_BYTES: u32 = 64;

/// UC queue pairs of one RDMA device.
pub struct VerbsFabric {
    device: Arc<Device>,
    domain: Arc<ProtectionDomain>,
    config: VerbsConfig,
    limits: Limits,
    mtu: u32,
    /// Where devices place SENDs that nobody wants.
    unwanted: Arc<Buffers>,
    regions: Regions,
    windows: Windows,
    epochs: Arc<Epochs>,
    queue_pairs: HashMap<u32, Controlled>,
    ports: Vec<ControlledPort>,
    next_connection: u64,
    wake_event: Arc<WakeEvent>,
}

/// A port, and which of its halves were handed out.
struct ControlledPort {
    shared: Arc<Port>,
    has_tx: bool,
    has_rx: bool,
}

/// A queue pair at the control object.
struct Controlled {
    qp: Arc<QueuePair>,
    attr: QpAttr,
    connected: Option<Connected>,
}

#[derive(Clone, Copy)]
struct Connected {
    id: u64,
    remote: RemoteQp,
}

impl VerbsFabric {
    /// Opens a device. Keys and numbers of queue pairs come from the device.
    ///
    /// # Errors
    /// [`FabricError::BadAttribute`] for a device or an address that does not exist.
    /// [`FabricError::Io`] if libibverbs or the device cannot be opened, if the device has no UC queue
    /// pairs, or if its port is down or not RoCE.
    pub fn open(config: &VerbsConfig) -> Result<Self, FabricError> {
        let device = Device::open(config.device.as_deref())?;
        let state = device.port(config.device_port)?;
        let addresses = config.choose(device.name(), &device.addresses(config.device_port)?)?;
        if !state.is_active || !state.is_ethernet {
            let wrong = if state.is_active {
                "is not RoCE"
            } else {
                "is down"
            };
            return Err(FabricError::Io {
                what: format!(
                    "port {} of RDMA device {}",
                    config.device_port,
                    device.name()
                ),
                source: std::io::Error::new(std::io::ErrorKind::NetworkDown, wrong),
            });
        }
        let limits = device.limits()?;
        let domain = ProtectionDomain::new(&device)?;
        let epochs = Arc::new(Epochs::new(addresses.len()));
        let keys = Keys::new(
            &domain,
            config.memory_windows,
            limits,
            addresses[0],
            config.device_port,
        )?;
        let ports = addresses.into_iter().map(|address| {
            let shared = port(&device, &domain, limits, state.mtu, address)?;
            Ok(ControlledPort {
                shared: Arc::new(shared),
                has_tx: true,
                has_rx: true,
            })
        });
        let ports = ports.collect::<Result<_, FabricError>>()?;
        let unwanted = Buffers::new(&domain, 1, state.mtu, Access::Receive)?;
        let mut fabric = Self {
            unwanted: Arc::new(unwanted),
            windows: Windows::new(keys, &epochs),
            device,
            domain,
            config: config.clone(),
            limits,
            mtu: state.mtu,
            regions: Regions::default(),
            epochs,
            queue_pairs: HashMap::new(),
            ports,
            next_connection: 1,
            wake_event: WakeEvent::new()?,
        };
        fabric.check_uc()?;
        Ok(fabric)
    }

    /// The name of the device.
    #[must_use]
    pub fn device(&self) -> &str {
        self.device.name()
    }

    /// Checks that the device has UC queue pairs, so that a device without them is refused at once.
    fn check_uc(&mut self) -> Result<(), FabricError> {
        let qpn = self.create_qp(QpAttr {
            mtu: 256,
            port: 0,
            context: 0,
            recv_buffers: 0,
        })?;
        self.destroy_qp(qpn)
    }

    pub(crate) fn parts(&self) -> (&Arc<Device>, &WakeEvent) {
        (&self.device, &self.wake_event)
    }

    pub(crate) fn device_port(&self) -> u8 {
        self.config.device_port
    }

    pub(crate) fn shared_ports(&self) -> impl Iterator<Item = &Arc<Port>> {
        self.ports.iter().map(|port| &port.shared)
    }

    pub(crate) fn own_waker(&self) -> Waker {
        self.wake_event.waker()
    }

    fn port(&mut self, port: u16) -> Result<&mut ControlledPort, FabricError> {
        let count = self.ports.len();
        let found = self.ports.get_mut(usize::from(port));
        found.ok_or_else(|| FabricError::BadAttribute {
            name: "port",
            value: port.to_string(),
            want: format!("less than {count}"),
        })
    }

    fn queue_pair(&self, qpn: Qpn) -> Result<&Controlled, FabricError> {
        let found = self.queue_pairs.get(&qpn.0);
        found.ok_or(FabricError::UnknownQp(qpn.0))
    }

    fn port_of(&self, queue_pair: &Controlled) -> &Arc<Port> {
        &self.ports[usize::from(queue_pair.attr.port)].shared
    }
}

impl Fabric for VerbsFabric {
    type Tx = VerbsTx;
    type Rx = VerbsRx;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_mtu: self.mtu,
            // At most 256 addresses in a table.
            #[allow(clippy::cast_possible_truncation)]
            ports: self.ports.len() as u16,
            null_key_completes: false,
            places_on_arrival: true,
            binds_windows: false,
            window_keys: self.windows.keys(),
            ghosts: false,
            max_sge: max_sge(self.limits) as usize,
            sealing: None,
        }
    }

    fn local_addr(&self, port: u16) -> SocketAddr {
        let port = &self.ports[usize::from(port)].shared;
        SocketAddr::new(port.address.ip, ROCE_PORT)
    }

    fn take_tx(&mut self, port: u16) -> Result<Self::Tx, FabricError> {
        let regions = self.regions.clone();
        let port = self.port(port)?;
        if !std::mem::take(&mut port.has_tx) {
            return Err(FabricError::InUse(Object::TxQueue));
        }
        Ok(VerbsTx::new(Arc::clone(&port.shared), regions))
    }

    fn take_rx(&mut self, port: u16) -> Result<Self::Rx, FabricError> {
        let found = self.port(port)?;
        if !std::mem::take(&mut found.has_rx) {
            return Err(FabricError::InUse(Object::RxWorker));
        }
        let shared = Arc::clone(&found.shared);
        Ok(VerbsRx::new(shared, Worker::new(&self.epochs, port.into())))
    }

    fn register(&mut self, region: Region) -> Result<Lkey, FabricError> {
        self.regions.register(&self.domain, region)
    }

    fn deregister(&mut self, lkey: Lkey) -> Result<Region, FabricError> {
        // Requests that have left let go of their regions.
        for port in self.shared_ports() {
            port.sending.drain()?;
        }
        self.regions.deregister(lkey)
    }

    fn region(&self, lkey: Lkey) -> Result<RegionPtr, FabricError> {
        self.regions.bytes(lkey)
    }

    fn memory(&self, lkey: Lkey) -> Result<&[u8], FabricError> {
        self.regions.memory(lkey)
    }

    fn copy_out(&self, lkey: Lkey, offset: u64, out: &mut [u8]) -> Result<(), FabricError> {
        self.regions.copy_out(lkey, offset, out)
    }

    fn reader(&self, lkey: Lkey) -> Result<RegionReader, FabricError> {
        self.regions.reader(lkey)
    }

    fn copy_in(&mut self, lkey: Lkey, offset: u64, bytes: &[u8]) -> Result<(), FabricError> {
        self.regions.copy_in(lkey, offset, bytes)
    }

    fn create_windows(
        &mut self,
        of: &[Qpn],
        slots: u32,
        slot_bytes: u64,
    ) -> Result<WindowSet, FabricError> {
        // All queue pairs are in one protection domain, so a key is valid at all of them.
        for &qpn in of {
            self.queue_pair(qpn)?;
        }
        self.windows.create(slots, slot_bytes)
    }

    fn destroy_windows(&mut self, set: WindowSet) -> Result<(), FabricError> {
        self.windows.destroy(set)
    }

    fn open_window(
        &mut self,
        set: WindowSet,
        slot: u32,
        lkey: Lkey,
        offset: u64,
        length: u64,
    ) -> Result<(Window, RemotePlace), FabricError> {
        let regions = &mut self.regions;
        self.windows.open(regions, set, slot, lkey, offset, length)
    }

    fn close_window(&mut self, window: Window) -> Result<(), FabricError> {
        self.windows.close(window)
    }

    fn poll_closed(&mut self) -> Option<Window> {
        self.windows.poll_closed()
    }

    fn create_qp(&mut self, attr: QpAttr) -> Result<Qpn, FabricError> {
        attr.check_mtu(self.mtu)?;
        let port = Arc::clone(&self.port(attr.port)?.shared);
        if self.queue_pairs.len() >= MAX_OBJECTS {
            return Err(FabricError::OutOfResources(Table::QueuePair));
        }
        let deepest = self.limits.queue_depth;
        let depths = Depths {
            send: self.config.send_depth.min(deepest),
            receive: match attr.recv_buffers {
                0 => self.config.receive_depth.min(deepest),
                buffers => buffers,
            },
            send_entries: max_sge(self.limits),
            inline_bytes: INLINE_BYTES,
        };
        let queues = (port.sending.queue(), &port.receiving.queue);
        let device = DeviceQp::new(&self.domain, queues.0, queues.1, depths)?;
        let buffers = match attr.recv_buffers {
            0 => ReceiveBuffers::Shared(Arc::clone(&self.unwanted)),
            count => {
                let each = path_mtu(attr.mtu);
                ReceiveBuffers::Own(Buffers::new(&self.domain, count, each, Access::Receive)?)
            }
        };
        let qpn = Qpn(device.number());
        let qp = Arc::new(QueuePair { device, buffers });
        port.sending.create(qpn, &qp, attr.mtu, attr.context);
        let controlled = Controlled {
            qp,
            attr,
            connected: None,
        };
        self.queue_pairs.insert(qpn.0, controlled);
        Ok(qpn)
    }

    fn connect_qp(&mut self, qpn: Qpn, remote: RemoteQp) -> Result<(), FabricError> {
        if self.queue_pair(qpn)?.connected.is_some() {
            return Err(FabricError::InUse(Object::QueuePair));
        }
        remote.check_number()?;
        self.connect(qpn, remote)
    }

    fn set_route(&mut self, qpn: Qpn, route: QpRoute) -> Result<(), FabricError> {
        let queue_pair = self.queue_pair(qpn)?;
        let connected = queue_pair
            .connected
            .ok_or(FabricError::NotConnected(qpn.0))?;
        let own = self.port_of(queue_pair).address.ip;
        check_addr(route.destination, own)?;
        if route.source != route.destination || route.sealed_as.is_some() {
            return Err(FabricError::BadAttribute {
                name: "route",
                value: format!("{route:?}"),
                want: "one address for both directions: RDMA devices use no other".into(),
            });
        }
        let old = self.disconnect(qpn, true)?;
        let new = RemoteQp {
            addr: route.destination,
            qpn: connected.remote.qpn,
        };
        self.connect(qpn, new).inspect_err(|_| {
            // The route stays as it was, if it still works.
            let _ = self.connect(qpn, old);
        })
    }

    fn disconnect_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        self.disconnect(qpn, false).map(drop)
    }

    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        match self.disconnect(qpn, false) {
            Ok(_) | Err(FabricError::NotConnected(_)) => {}
            Err(error) => return Err(error),
        }
        if let Some(gone) = self.queue_pairs.remove(&qpn.0) {
            self.port_of(&gone).sending.destroy(qpn);
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.shared_ports()
            .for_each(|port| port.counts.add_to(&mut sum));
        sum
    }
}

fn port(
    device: &Arc<Device>,
    domain: &Arc<ProtectionDomain>,
    limits: Limits,
    mtu: u32,
    address: PortAddress,
) -> Result<Port, FabricError> {
    let completions = limits.completions.min(COMPLETIONS);
    let queue = || CompletionQueue::new(device, completions);
    let max_sge = max_sge(limits) as usize;
    let receiving = Receiving::new(queue()?, completions)?;
    let worker = receiving.wake_event.waker();
    Ok(Port {
        address,
        sending: Sending::new(domain, queue()?, completions, mtu, max_sge, worker)?,
        receiving,
        counts: Counts::default(),
        device: Arc::clone(device),
    })
}

fn max_sge(limits: Limits) -> u32 {
    limits.scatter_entries.min(MAX_SGE)
}
