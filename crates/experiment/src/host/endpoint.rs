//! An endpoint of the kind that ships, which reports what is done, and when.

use std::collections::BTreeMap;
use std::time::Duration;

use farwrite::fabric::net::{HostOptions, NetFabric, NetHost, Program};
use farwrite::schemes::scheme::Message;
use farwrite::{
    Endpoint, Outcome, QpConfig, QpOptions, QueuePair, RateControl, RecvHandle, Region, SchemeName,
    SendHandle, SendOptions,
};
use farwrite_link::Dice;
use farwrite_net::{BytesError, Network, NodeId};

use super::{Board, Counted, Done, Host, Starting, What};
use crate::Transport;
use crate::outcome::FlowError;
use crate::transport::ENDPOINT_OFFSET_BITS;

/// The least time after which a flow that is not done fails.
const PATIENCE_NS: u64 = 60_000_000_000;
/// Times its ideal time after which a flow fails, if that is later.
const PATIENCE: f64 = 1000.0;
/// Round trips below this are those of a datacenter.
const WIDE_AREA_NS: u64 = 1_000_000;

pub(crate) type EndpointHost = NetHost<Flows>;

/// An endpoint and the flows that it sends and receives.
pub(crate) struct Flows {
    endpoint: Endpoint<NetFabric>,
    board: Board,
    /// Open messages.
    sends: Vec<(usize, SendHandle)>,
    /// Open receives whose end activates a trigger.
    receives: Vec<(usize, RecvHandle)>,
    /// The queue pair of each flow that the host sends.
    queue_pairs: BTreeMap<usize, QueuePair>,
}

/// A host with an endpoint. All its draws follow from `seed`, also its UDP port, which decides on
/// the path of its packets where several are equal.
pub(super) fn host(
    node: NodeId,
    priority: u8,
    seed: u64,
    board: Board,
) -> Result<EndpointHost, BytesError> {
    let mut dice = Dice::new(seed ^ u64::from(node.0).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    #[expect(clippy::cast_possible_truncation, reason = "below 16384")]
    let first_port = 49_152 + dice.below(16_384) as u16;
    let options = HostOptions {
        first_port,
        priority,
        ..HostOptions::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..12].copy_from_slice(&node.0.to_le_bytes());
    let (fabric, ports) = farwrite::fabric::net::host(node, options, bytes)?;
    let flows = Flows {
        endpoint: Endpoint::new(fabric, bytes),
        board,
        sends: Vec::new(),
        receives: Vec::new(),
        queue_pairs: BTreeMap::new(),
    };
    Ok(NetHost::new(ports, flows))
}

impl Program for Flows {
    fn poll(&mut self, now_ns: u64) -> Option<u64> {
        let polled = self.endpoint.poll(now_ns);
        let next_ns = polled.expect("ports of simulated hosts do not break");
        let board = &self.board;
        self.sends.retain(|(flow, send)| {
            let done = send.outcome().map(|outcome| Done {
                flow: *flow,
                at_ns: now_ns,
                what: match outcome {
                    Outcome::Whole => What::Sent,
                    Outcome::Partial | Outcome::Failed => What::Failed(FlowError::Late),
                },
            });
            board.borrow_mut().extend(done);
            done.is_none()
        });
        self.receives.retain(|(flow, receive)| {
            let outcome = receive.outcome();
            if outcome == Some(Outcome::Whole) {
                board.borrow_mut().push(Done {
                    flow: *flow,
                    at_ns: now_ns,
                    what: What::Received,
                });
            }
            outcome.is_none()
        });
        next_ns
    }
}

impl Flows {
    /// What the queue pair of a flow has counted: chunks, which are packets here.
    pub(super) fn counted(&self, flow: usize) -> Counted {
        let stats = self.queue_pairs.get(&flow);
        let stats = stats.and_then(|&qp| self.endpoint.qp_stats(qp).ok());
        stats.map_or_else(Counted::default, |stats| Counted {
            packets: stats.sender.sent_chunks,
            repeated: stats.sender.retransmitted_chunks,
            timeouts: stats.sender.timeouts,
        })
    }
}

/// Adds a queue pair at either end, posts the buffer and sends the message.
pub(super) fn start(
    network: &mut Network<Host>,
    transport: &Transport,
    scheme: SchemeName,
    starting: &Starting,
) -> Result<(), String> {
    let options = options(transport, scheme, starting);
    let mut ends = Vec::new();
    for node in starting.ends {
        let endpoint = &mut program(network, node)?.endpoint;
        let qp = endpoint.create_qp(options.clone()).map_err(text)?;
        ends.push((node, qp, endpoint.qp_info(qp).map_err(text)?));
    }
    for (end, peer) in [(0, 1), (1, 0)] {
        let (node, qp, _) = ends[end];
        let endpoint = &mut program(network, node)?.endpoint;
        endpoint.connect_qp(qp, &ends[peer].2).map_err(text)?;
    }
    let now_ns = network.now_ns();
    let [(src, src_qp, _), (dst, dst_qp, _)] = [ends[0].clone(), ends[1].clone()];
    let number = starting.number;
    let receiver = program(network, dst)?;
    let memory = Region::ghost(starting.flow.bytes);
    let memory = receiver.endpoint.register_region(memory).map_err(text)?;
    let receive = receiver.endpoint.post_recv(dst_qp, memory.whole());
    let receive = receive.map_err(text)?;
    // All of these are looked at in each poll.
    if starting.flow.when_received.is_some() {
        receiver.receives.push((number, receive));
    }
    let sender = program(network, src)?;
    let memory = Region::ghost(starting.flow.bytes);
    let memory = sender.endpoint.register_region(memory).map_err(text)?;
    let options = SendOptions {
        scheme: scheme.tag(),
        immediate: None,
        deadline_ns: Some(now_ns.saturating_add(patience_ns(starting.ideal_ns))),
    };
    let send = sender.endpoint.post_send(src_qp, memory.whole(), options);
    sender.sends.push((number, send.map_err(text)?));
    sender.queue_pairs.insert(number, src_qp);
    Ok(())
}

/// Queue pairs for one message.
fn options(transport: &Transport, scheme: SchemeName, starting: &Starting) -> QpOptions {
    let path = starting.path;
    let bytes = starting.flow.bytes;
    let base = match path.rtt_ns {
        ..WIDE_AREA_NS => QpOptions::datacenter(),
        _ => QpOptions::default(),
    };
    let rate_control = match transport.rate {
        Some(rate_bps) => RateControl::Fixed { rate_bps },
        None => RateControl::Adaptive {
            max_bps: None,
            start: None,
        },
    };
    let mut sdr = QpConfig {
        mtu: transport.mtu,
        slots: 2,
        max_message_bytes: bytes.max(parity_bytes(scheme, bytes, transport.mtu)),
        ..QpConfig::default()
    };
    // The bits that the packets need beyond the paper's split are taken from the message number.
    let more_bits = ENDPOINT_OFFSET_BITS - sdr.split.offset_bits;
    sdr.split.offset_bits += more_bits;
    sdr.split.id_bits -= more_bits;
    QpOptions {
        sdr,
        rate_control,
        initial_rtt: Duration::from_nanos(path.rtt_ns),
        expected_scheme: scheme.tag(),
        max_parity_bytes: u64::MAX,
        ..base
    }
}

/// Bytes of parity that a scheme sends with a message; more than the message if that is short.
fn parity_bytes(scheme: SchemeName, bytes: u64, mtu: u32) -> u64 {
    let chunk_bytes = u64::from(mtu);
    let message = Message {
        number: 0,
        bytes,
        chunks: u32::try_from(bytes.div_ceil(chunk_bytes)).unwrap_or(u32::MAX),
        chunk_bytes,
    };
    let layout = scheme.scheme().layout(&message);
    layout.map_or(0, |layout| layout.parity_bytes() as u64)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is positive; the cast saturates"
)]
fn patience_ns(ideal_ns: Option<f64>) -> u64 {
    ideal_ns
        .map_or(0, |ideal_ns| (PATIENCE * ideal_ns) as u64)
        .max(PATIENCE_NS)
}

fn program(network: &mut Network<Host>, node: NodeId) -> Result<&mut Flows, String> {
    match network.device_mut(node) {
        Some(Host::Endpoint(host)) => Ok(host.program_mut()),
        _ => Err(format!("node {} has no endpoint", node.0)),
    }
}

fn text(error: farwrite::Error) -> String {
    error.to_string()
}
