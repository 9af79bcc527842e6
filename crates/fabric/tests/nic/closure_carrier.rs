//! A carrier without a network: a closure takes what is sent, and nothing arrives.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use farwrite_fabric::contract::FabricError;
use farwrite_fabric::nic::{Arrival, Burst, Carrier, CarrierRx, CarrierTx};
use farwrite_wire::icrc::Flow;

/// Takes a burst, and returns how many of its packets it accepts.
type Send = dyn FnMut(&Burst<'_>) -> usize;

/// A clone is the same carrier.
#[derive(Clone)]
pub(crate) struct ClosureCarrier {
    /// The address of its port.
    pub(crate) local: Rc<Cell<SocketAddr>>,
    send: Rc<RefCell<Send>>,
}

impl ClosureCarrier {
    pub(crate) fn new(send: impl FnMut(&Burst<'_>) -> usize + 'static) -> Self {
        Self {
            local: Rc::new(Cell::new(([10, 0, 0, 1], 5000).into())),
            send: Rc::new(RefCell::new(send)),
        }
    }
}

impl Carrier for ClosureCarrier {
    type Tx = Self;
    type Rx = Self;
    const GHOSTS: bool = false;

    fn ports(&self) -> u16 {
        1
    }
    fn max_mtu(&self) -> u32 {
        1024
    }
    fn local_addr(&self, _port: u16) -> SocketAddr {
        self.local.get()
    }
    fn take_tx(&mut self, _port: u16) -> Option<Self> {
        Some(self.clone())
    }
    fn take_rx(&mut self, _port: u16) -> Option<Self> {
        Some(self.clone())
    }
    fn flow(&self, _port: u16, _: Option<IpAddr>, remote: SocketAddr) -> Result<Flow, FabricError> {
        Ok(Flow::new(self.local.get(), remote).unwrap())
    }
    fn socket_drops(&self) -> [u64; 2] {
        [0, 0]
    }
}

impl CarrierTx for ClosureCarrier {
    fn send(&mut self, burst: &Burst<'_>) -> Result<usize, FabricError> {
        Ok((self.send.borrow_mut())(burst))
    }
}

impl CarrierRx for ClosureCarrier {
    fn recv(&mut self, _each: impl FnMut(&mut Arrival<'_>)) -> Result<bool, FabricError> {
        Ok(false)
    }
}
