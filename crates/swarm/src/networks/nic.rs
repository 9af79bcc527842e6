//! Hosts with NICs and reliable connections.

use farwrite_net::{NodeId, Payload};
use farwrite_rate::DcqcnOptions;
use farwrite_rc::{
    Completion, ConfigError, Connection, FIRST_QPN, Nic, PathProfile, PostError, RdmaTransport,
    Remote, Request,
};

use super::plan::{Carrier, MAX_MESSAGES, PRIORITY};
use super::{Bytes, GUARD};

/// Rate of a NIC's cable in bits per second.
const RATE_BPS: u64 = 25_000_000_000;
/// The immediate of the first message of a queue pair.
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

    pub(super) fn take_completions(&mut self) {
        for (qpn, &flow) in (FIRST_QPN..).zip(&self.flows) {
            while let Some(completion) = self.nic.poll_completion(qpn) {
                self.completions.push((flow, completion));
            }
        }
    }

    fn next_qpn(&self) -> u32 {
        FIRST_QPN + u32::try_from(self.flows.len()).expect("few queue pairs")
    }

    /// Posts the buffer of a SEND, or of a WRITE with immediate. Its id is the number of the message.
    pub(super) fn post_buffer(
        &mut self,
        qpn: u32,
        message: usize,
        bytes: &Bytes,
    ) -> Result<(), PostError> {
        let length = u32::try_from(bytes.length()).expect("a short message");
        self.nic.post_receive(qpn, message as u64, length)
    }

    /// Posts the request of a message: at the receiver for a READ, otherwise at the sender. Its id is
    /// the number of the message.
    pub(super) fn post_request(
        &mut self,
        qpn: u32,
        (flow, message): (usize, usize),
        bytes: &Bytes,
        carrier: Carrier,
    ) -> Result<(), PostError> {
        let remote = Remote {
            rkey: rkey(flow, message),
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
                imm: Some(immediate(message)),
            },
            Carrier::Write | Carrier::WriteImmediate | Carrier::Endpoint(_) => Request::Write {
                data: data(),
                to: remote,
                imm: matches!(carrier, Carrier::WriteImmediate).then(|| immediate(message)),
            },
        };
        self.nic.post(qpn, message as u64, request)
    }

    /// Registers the memory of a message for the peer: its bytes for a READ, or a buffer with a guard
    /// for a WRITE.
    pub(super) fn offer(
        &mut self,
        (flow, message): (usize, usize),
        bytes: &Bytes,
        carrier: Carrier,
    ) {
        let memory = match carrier {
            Carrier::Read => bytes.message(),
            _ => vec![0; bytes.length() + GUARD],
        };
        let registered = self.nic.memory.register(rkey(flow, message), 0, memory);
        registered.expect("each message has a key of its own");
    }

    pub(super) fn memory(&self, flow: usize, message: usize) -> &[u8] {
        let bytes = self.nic.memory.bytes(rkey(flow, message));
        bytes.unwrap_or_default()
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

#[derive(Clone)]
pub(super) enum RequestOutcome {
    Nothing,
    /// Completed. Contains the bytes of a READ.
    Done(Option<Payload>),
    Failed,
}

/// The outcomes of the requests of a queue pair, from the completions of the end that posted them. An
/// error if a request has two, or if they are out of order.
pub(super) fn request_outcomes<'a>(
    completions: impl Iterator<Item = &'a Completion>,
    messages: usize,
) -> Result<Vec<RequestOutcome>, String> {
    let mut outcomes = Vec::new();
    for completion in completions {
        let (id, outcome) = match completion {
            Completion::Acknowledged { id } => (*id, RequestOutcome::Done(None)),
            Completion::Read { id, data } => (*id, RequestOutcome::Done(Some(data.clone()))),
            Completion::Failed { id, .. } => (*id, RequestOutcome::Failed),
            other => return Err(format!("the end of the requests has {other:?}")),
        };
        check_next(id, outcomes.len(), messages, completion)?;
        outcomes.push(outcome);
    }
    outcomes.resize(messages, RequestOutcome::Nothing);
    Ok(outcomes)
}

#[derive(Clone)]
pub(super) enum BufferOutcome {
    Nothing,
    /// The message of a SEND.
    Sent(Payload),
    /// A WRITE with immediate has taken the buffer.
    Written,
}

/// What the receive buffers of a queue pair have, from the completions of their end. An error if a
/// buffer has two, if they are out of order, or if a length or an immediate is wrong.
pub(super) fn buffers<'a>(
    completions: impl Iterator<Item = &'a Completion>,
    (messages, length): (usize, usize),
) -> Result<Vec<BufferOutcome>, String> {
    let mut outcomes = Vec::new();
    for completion in completions {
        let wanted = immediate(outcomes.len());
        let (id, outcome) = match completion {
            Completion::Received {
                id,
                data,
                imm: Some(imm),
            } if *imm == wanted => (*id, BufferOutcome::Sent(data.clone())),
            Completion::Written { id, bytes, imm }
                if (*bytes as usize, *imm) == (length, wanted) =>
            {
                (*id, BufferOutcome::Written)
            }
            // The queue pair broke.
            Completion::Unused { id } => (*id, BufferOutcome::Nothing),
            other => return Err(format!("a receive buffer has {other:?}")),
        };
        check_next(id, outcomes.len(), messages, completion)?;
        outcomes.push(outcome);
    }
    outcomes.resize(messages, BufferOutcome::Nothing);
    Ok(outcomes)
}

/// Checks that a completion is that of the next message.
fn check_next(
    id: u64,
    next: usize,
    messages: usize,
    completion: &Completion,
) -> Result<(), String> {
    match id == next as u64 && next < messages {
        true => Ok(()),
        false => Err(format!(
            "{completion:?} comes after {next} of {messages} messages"
        )),
    }
}

fn immediate(message: usize) -> u32 {
    IMMEDIATE + u32::try_from(message).expect("few messages")
}

/// The key of a message's memory.
fn rkey(flow: usize, message: usize) -> u32 {
    u32::try_from(flow * MAX_MESSAGES + message).expect("few flows") + 1
}

fn dcqcn() -> DcqcnOptions {
    DcqcnOptions::paper(RATE_BPS)
}

#[cfg(test)]
pub(super) fn failed(error: farwrite_rc::RequestError) -> Completion {
    Completion::Failed { id: 0, error }
}

#[cfg(test)]
pub(super) fn received(number: usize, message: &[u8]) -> Completion {
    Completion::Received {
        id: number as u64,
        data: Payload::Bytes(message.into()),
        imm: Some(immediate(number)),
    }
}
