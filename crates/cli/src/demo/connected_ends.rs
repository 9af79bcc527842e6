//! Two endpoints, and the emulated link between them.

use std::net::SocketAddr;

use farwrite::{
    Endpoint, MemoryRegion, QpInfo, QueuePair, RecvHandle, Region, SchemeName, SendHandle,
    SendOptions, UdpConfig, UdpFabric,
};
use farwrite_emulator::udp::UdpEmulator;

use super::scenario::{Scenario, loopback};
use crate::exit::{Exit, Failure, OrExit};

/// The memory of both ends. Endpoints own it while they exist.
pub(crate) struct Memory {
    pub(crate) source: Region,
    pub(crate) target: Region,
}

pub(crate) struct End {
    pub(crate) endpoint: Endpoint<UdpFabric>,
    pub(crate) qp: QueuePair,
    region: MemoryRegion,
}

impl End {
    fn new(
        scenario: &Scenario,
        scheme: SchemeName,
        memory: Region,
    ) -> Result<Self, farwrite::Error> {
        let mut endpoint = Endpoint::over_udp(&UdpConfig::new(loopback()))?;
        let qp = endpoint.create_qp(scenario.qp_options(scheme))?;
        let region = endpoint.register_region(memory)?;
        Ok(Self {
            endpoint,
            qp,
            region,
        })
    }

    fn info(&self) -> Result<QpInfo, farwrite::Error> {
        self.endpoint.qp_info(self.qp)
    }

    /// Connects to a peer through the address `via`.
    fn connect(&mut self, mut peer: QpInfo, via: SocketAddr) -> Result<(), farwrite::Error> {
        peer.control = via;
        peer.channels.fill(via);
        self.endpoint.connect_qp(self.qp, &peer)
    }

    pub(crate) fn bytes(&self) -> Result<&[u8], farwrite::Error> {
        self.endpoint.memory(self.region)
    }

    /// Drops this end and returns its memory.
    pub(crate) fn into_memory(mut self) -> Result<Region, farwrite::Error> {
        self.endpoint.destroy_qp(self.qp)?;
        self.endpoint.deregister(self.region)
    }
}

pub(crate) struct ConnectedEnds {
    pub(crate) sender: End,
    pub(crate) receiver: End,
    pub(crate) link: UdpEmulator,
}

impl ConnectedEnds {
    /// Sets up both ends with this memory, connected by a link like the scenario's.
    pub(crate) fn new(
        scenario: &Scenario,
        scheme: SchemeName,
        memory: Memory,
    ) -> Result<Self, Failure> {
        let end = |memory, what| End::new(scenario, scheme, memory).or_exit(Exit::Other, what);
        let mut sender = end(memory.source, "setting up the sender")?;
        let mut receiver = end(memory.target, "setting up the receiver")?;
        let infos = sender.info().and_then(|s| Ok((s, receiver.info()?)));
        let (of_sender, of_receiver) = infos.or_exit(Exit::Other, "setting up the ends")?;
        let config = scenario.emulator(of_sender.control, of_receiver.control);
        let link = UdpEmulator::start(&config).or_exit(Exit::Other, "setting up the link")?;
        let [to_receiver, to_sender] = link.addresses()[0];
        sender
            .connect(of_receiver, to_receiver)
            .and_then(|()| receiver.connect(of_sender, to_sender))
            .or_exit(Exit::Other, "connecting the ends")?;
        Ok(Self {
            sender,
            receiver,
            link,
        })
    }

    /// Posts all messages, at both ends.
    pub(crate) fn post(
        &mut self,
        scenario: &Scenario,
        scheme: SchemeName,
    ) -> Result<(Vec<SendHandle>, Vec<RecvHandle>), farwrite::Error> {
        let options = SendOptions {
            scheme: scheme.tag(),
            ..SendOptions::default()
        };
        let (mut sends, mut recvs) = (Vec::new(), Vec::new());
        for range in scenario.messages() {
            let end = &mut self.receiver;
            let target = end.region.slice(range.clone());
            recvs.push(end.endpoint.post_recv(end.qp, target)?);
            let end = &mut self.sender;
            let source = end.region.slice(range);
            sends.push(end.endpoint.post_send(end.qp, source, options)?);
        }
        Ok((sends, recvs))
    }
}
