//! Hosts with NICs and reliable connections.

use farwrite_net::{NodeId, Payload};
use farwrite_rate::DcqcnOptions;
use farwrite_rc::{
    Completion, ConfigError, Connection, FIRST_QPN, Nic, PathProfile, PostError, RdmaTransport,
    Remote, Request,
};

use super::plan::{Carrier, PRIORITY};
use super::{Bytes, GUARD};

/// The id of all requests. Each queue pair has one request.
const REQUEST: u64 = 1;
/// The id of the receive buffer of a SEND.
const BUFFER: u64 = 2;
/// Rate of a NIC's cable in bits per second.
const RATE_BPS: u64 = 25_000_000_000;
/// The immediate of a SEND.
const IMMEDIATE: u32 = 0x00C0_FFEE;

/// A NIC, and the flow of each queue pair. Queue pairs are numbered from [`FIRST_QPN`] on.
pub(super) struct NicHost {
    pub(super) nic: Nic,
    path: PathProfile,
    flows: Vec<usize>,
    /// The completions of each flow, in order.
    pub(super) completions: Vec<(usize, Completion)>,
}

/// What NICs assume of all paths.
pub(super) fn path(rtt_ns: u64) -> PathProfile {
    PathProfile {
        rate_bps: RATE_BPS,
        rtt_ns,
        mtu_bytes: 1024,
        framing_bytes: 38,
    }
}

impl NicHost {
    pub(super) fn new(node: NodeId, transport: RdmaTransport, path: PathProfile) -> Self {
        let mut nic = Nic::new(node);
        transport.prepare(&mut nic, &path, dcqcn());
        Self {
            nic,
            path,
            flows: Vec::new(),
            completions: Vec::new(),
        }
    }

    /// Collects the completions.
    pub(super) fn take_completions(&mut self) {
        for (qpn, &flow) in (FIRST_QPN..).zip(&self.flows) {
            while let Some(completion) = self.nic.poll_completion(qpn) {
                self.completions.push((flow, completion));
            }
        }
    }

    /// The number of the next queue pair.
    fn next_qpn(&self) -> u32 {
        FIRST_QPN + u32::try_from(self.flows.len()).expect("few queue pairs")
    }

    /// Posts the buffer of a SEND.
    pub(super) fn post_buffer(&mut self, qpn: u32, bytes: &Bytes) -> Result<(), PostError> {
        let length = u32::try_from(bytes.length()).expect("a short message");
        self.nic.post_receive(qpn, BUFFER, length)
    }

    /// Posts the request of a flow: at the receiver for a READ, otherwise at the sender.
    pub(super) fn post_request(
        &mut self,
        (flow, qpn): (usize, u32),
        bytes: &Bytes,
        carrier: Carrier,
    ) -> Result<(), PostError> {
        let remote = Remote {
            rkey: rkey(flow),
            addr: 0,
        };
        let length = u32::try_from(bytes.length()).expect("a short message");
        let data = || Payload::Bytes(bytes.message().into());
        let request = match carrier {
            Carrier::Read => Request::Read {
                from: remote,
                bytes: length,
            },
            Carrier::Send => Request::Send {
                data: data(),
                imm: Some(IMMEDIATE),
            },
            Carrier::Write | Carrier::Endpoint(_) => Request::Write {
                data: data(),
                to: remote,
                imm: None,
            },
        };
        self.nic.post(qpn, REQUEST, request)
    }

    /// Registers the memory of a flow for the peer: the message for a READ, or a buffer with a
    /// guard for a WRITE.
    pub(super) fn offer(&mut self, flow: usize, bytes: &Bytes, carrier: Carrier) {
        let memory = match carrier {
            Carrier::Read => bytes.message(),
            _ => vec![0; bytes.length() + GUARD],
        };
        let registered = self.nic.memory.register(rkey(flow), 0, memory);
        registered.expect("each flow has a key of its own");
    }

    /// The memory of a flow.
    pub(super) fn memory(&self, flow: usize) -> &[u8] {
        self.nic.memory.bytes(rkey(flow)).unwrap_or_default()
    }
}

/// Connects two NICs for a flow. Returns the numbers of the queue pairs.
pub(super) fn connect(
    ends: [(&mut NicHost, NodeId); 2],
    flow: usize,
    src_port: u16,
    transport: RdmaTransport,
) -> Result<[u32; 2], ConfigError> {
    let [(one, one_node), (other, other_node)] = ends;
    let qpns = [one.next_qpn(), other.next_qpn()];
    for (host, peer, peer_qpn) in [(one, other_node, qpns[1]), (other, one_node, qpns[0])] {
        let to = Connection {
            peer,
            src_port,
            priority: PRIORITY,
            rate_bps: None,
        };
        let config = transport.config(peer_qpn, &host.path);
        match transport.control(&host.path, dcqcn()) {
            Some(control) => host.nic.connect_under(to, config, control)?,
            None => host.nic.connect(to, config)?,
        };
        host.flows.push(flow);
    }
    Ok(qpns)
}

/// The outcome of a request, from the completions of the end that posted it.
pub(super) enum RequestOutcome {
    Nothing,
    /// Completed. Contains the bytes of a READ.
    Done(Option<Payload>),
    Failed,
}

/// The single outcome of a request, or an error in the completions of its end.
pub(super) fn request_outcome<'a>(
    completions: impl Iterator<Item = &'a Completion>,
) -> Result<RequestOutcome, String> {
    let mut outcome = RequestOutcome::Nothing;
    for completion in completions {
        let next = match completion {
            Completion::Acknowledged { id: REQUEST } => RequestOutcome::Done(None),
            Completion::Read { id: REQUEST, data } => RequestOutcome::Done(Some(data.clone())),
            Completion::Failed { id: REQUEST, .. } => RequestOutcome::Failed,
            other => return Err(format!("the end of the request has {other:?}")),
        };
        if !matches!(outcome, RequestOutcome::Nothing) {
            return Err(format!(
                "the request completed twice, then with {completion:?}"
            ));
        }
        outcome = next;
    }
    Ok(outcome)
}

/// The message in the buffer of a SEND, or an error in the completions of its end.
pub(super) fn buffer<'a>(
    completions: impl Iterator<Item = &'a Completion>,
) -> Result<Option<Payload>, String> {
    let mut found = None;
    for completion in completions {
        match completion {
            Completion::Received {
                id: BUFFER,
                data,
                imm: Some(IMMEDIATE),
            } if found.is_none() => found = Some(data.clone()),
            // The queue pair broke.
            Completion::Unused { id: BUFFER } if found.is_none() => {}
            other => return Err(format!("the buffer of a SEND has {other:?}")),
        }
    }
    Ok(found)
}

fn rkey(flow: usize) -> u32 {
    u32::try_from(flow).expect("few flows") + 1
}

fn dcqcn() -> DcqcnOptions {
    DcqcnOptions::paper(RATE_BPS)
}

#[cfg(test)]
pub(super) fn failed(error: farwrite_rc::RequestError) -> Completion {
    Completion::Failed { id: REQUEST, error }
}

#[cfg(test)]
pub(super) fn received(message: &[u8]) -> Completion {
    Completion::Received {
        id: BUFFER,
        data: Payload::Bytes(message.into()),
        imm: Some(IMMEDIATE),
    }
}
