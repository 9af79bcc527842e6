//! Hosts with endpoints.

use farwrite::fabric::net::{HostOptions, NetFabric, NetHost, Program, host};
use farwrite::{
    Endpoint, Error, MemoryRegion, Outcome, QpOptions, QueuePair, RateControl, RecvHandle, Region,
    SchemeName, SendHandle, SendOptions,
};
use farwrite_net::NodeId;

use super::plan::PRIORITY;
use super::{Bytes, GUARD};
use crate::plan::MS;

/// An endpoint, with the sends and receives of each flow.
pub(super) struct Worker {
    endpoint: Endpoint<NetFabric>,
    pub(super) sends: Vec<(usize, SendHandle)>,
    pub(super) receives: Vec<(usize, RecvHandle, MemoryRegion)>,
    /// The first error of a poll.
    pub(super) error: Option<Error>,
}

impl Program for Worker {
    fn poll(&mut self, now_ns: u64) -> Option<u64> {
        match self.endpoint.poll(now_ns) {
            Ok(next_ns) => next_ns,
            Err(error) => {
                self.error = Some(error);
                None
            }
        }
    }
}

/// A host with an endpoint. Its keys derive from the seed.
pub(super) fn new(node: NodeId, seed: u64) -> NetHost<Worker> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..12].copy_from_slice(&node.0.to_le_bytes());
    let options = HostOptions {
        priority: PRIORITY,
        ..HostOptions::default()
    };
    let (fabric, ports) = host(node, options, bytes).expect("few nodes have addresses");
    let worker = Worker {
        endpoint: Endpoint::new(fabric, bytes),
        sends: Vec::new(),
        receives: Vec::new(),
        error: None,
    };
    NetHost::new(ports, worker)
}

/// Connects two endpoints for a flow. Round trips of 1 ms and more are those of a wide area.
pub(super) fn connect(
    ends: [&mut Worker; 2],
    rate_control: RateControl,
    rtt_ns: u64,
) -> Result<[QueuePair; 2], Error> {
    let base = match rtt_ns < MS {
        true => QpOptions::datacenter(),
        false => QpOptions::default(),
    };
    let options = QpOptions {
        rate_control,
        ..base
    };
    let [one, other] = ends.map(|worker| &mut worker.endpoint);
    let qps = [one.create_qp(options.clone())?, other.create_qp(options)?];
    let infos = [one.qp_info(qps[0])?, other.qp_info(qps[1])?];
    one.connect_qp(qps[0], &infos[1])?;
    other.connect_qp(qps[1], &infos[0])?;
    Ok(qps)
}

impl Worker {
    pub(super) fn send(
        &mut self,
        flow: usize,
        qp: QueuePair,
        bytes: &Bytes,
        scheme: SchemeName,
    ) -> Result<(), Error> {
        let memory = Region::owned(bytes.message());
        let memory = self.endpoint.register_region(memory)?;
        let options = SendOptions {
            scheme: scheme.tag(),
            ..SendOptions::default()
        };
        let send = self.endpoint.post_send(qp, memory.whole(), options)?;
        self.sends.push((flow, send));
        Ok(())
    }

    pub(super) fn receive(
        &mut self,
        flow: usize,
        qp: QueuePair,
        bytes: &Bytes,
    ) -> Result<(), Error> {
        let memory = Region::owned(vec![0; bytes.length() + GUARD]);
        let memory = self.endpoint.register_region(memory)?;
        let buffer = memory.slice(0..bytes.length() as u64);
        let receive = self.endpoint.post_recv(qp, buffer)?;
        self.receives.push((flow, receive, memory));
        Ok(())
    }

    /// The receive buffer of a flow with its guard, and the outcome.
    pub(super) fn received(&self, flow: usize) -> Option<(&[u8], Option<Outcome>)> {
        let mut receives = self.receives.iter();
        let (_, receive, memory) = receives.find(|(of, ..)| *of == flow)?;
        let bytes = self.endpoint.memory(*memory).ok()?;
        Some((bytes, receive.outcome()))
    }

    pub(super) fn sent(&self, flow: usize) -> Option<Outcome> {
        let mut sends = self.sends.iter();
        sends.find(|(of, _)| *of == flow)?.1.outcome()
    }
}
