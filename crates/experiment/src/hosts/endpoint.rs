//! A host with an endpoint that reports the completion of its flows.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use farwrite::fabric::net::{HostOptions, NetFabric, NetHost, Program};
use farwrite::schemes::scheme::{CriticalChunks, Message};
use farwrite::{
    Endpoint, Outcome, Partial, QpConfig, QpOptions, QueuePair, RateControl, RecvHandle,
    RecvOptions, Region, SendHandle, SendOptions,
};
use farwrite_link::Rng;
use farwrite_net::{BytesError, Network, NodeId};

use super::{FlowCounters, FlowProgress, FlowReport, FlowReports, FlowSetup, HostOrBox, gaps};
use crate::outcome::FlowError;
use crate::transport::{ENDPOINT_OFFSET_BITS, EndpointTransport};
use crate::units::nanoseconds;

/// Lower bound of the time after which an unfinished flow fails.
const PATIENCE_NS: u64 = 60_000_000_000;
/// A flow fails after this multiple of its ideal time, if that is later than [`PATIENCE_NS`].
const PATIENCE: f64 = 1000.0;
/// Paths with a shorter round trip get datacenter settings.
const WIDE_AREA_NS: u64 = 1_000_000;

pub(crate) type EndpointHost = NetHost<EndpointFlows>;

/// An endpoint, and the flows that it sends and receives.
pub(crate) struct EndpointFlows {
    endpoint: Endpoint<NetFabric>,
    board: FlowReports,
    /// Sends of flows whose buffer is posted before they start.
    waiting: Vec<WaitingSend>,
    /// Open sends of messages without a deadline: index of the flow, and handle.
    sends: Vec<(usize, SendHandle)>,
    /// Open receives whose completion activates a trigger: index of the flow, and handle.
    receives: Vec<(usize, RecvHandle)>,
    /// Open receives that end at a deadline: index of the flow, handle, bytes, and bytes of a chunk.
    bounded: Vec<(usize, RecvHandle, [u64; 2])>,
    /// The queue pair of each flow that this host sends.
    queue_pairs: BTreeMap<usize, QueuePair>,
}

/// A message to send.
#[derive(Clone, Copy)]
struct WaitingSend {
    at_ns: u64,
    flow: usize,
    qp: QueuePair,
    bytes: u64,
    options: SendOptions,
    /// Whether the receiver ends the flow at a deadline.
    is_bounded: bool,
}

/// Makes a host with an endpoint. All random draws follow from `seed`, including the UDP port
/// unless the transport sets it. The port selects among equal paths.
pub(super) fn host(
    node: NodeId,
    transport: &EndpointTransport,
    seed: u64,
    board: FlowReports,
) -> Result<EndpointHost, BytesError> {
    let mut rng = Rng::new(seed ^ u64::from(node.0).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    #[expect(clippy::cast_possible_truncation, reason = "below 16384")]
    let drawn = 49_152 + rng.below(16_384) as u16;
    let options = HostOptions {
        first_port: transport.port.map_or(drawn, NonZeroU16::get),
        priority: transport.priority,
        ..HostOptions::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..12].copy_from_slice(&node.0.to_le_bytes());
    let (fabric, ports) = farwrite::fabric::net::host(node, options, bytes)?;
    let flows = EndpointFlows {
        endpoint: Endpoint::new(fabric, bytes),
        board,
        waiting: Vec::new(),
        sends: Vec::new(),
        receives: Vec::new(),
        bounded: Vec::new(),
        queue_pairs: BTreeMap::new(),
    };
    Ok(NetHost::new(ports, flows))
}

impl Program for EndpointFlows {
    fn poll(&mut self, now_ns: u64) -> Option<u64> {
        let due = self.waiting.extract_if(.., |send| send.at_ns <= now_ns);
        for send in due.collect::<Vec<_>>() {
            self.send(send)
                .expect("a connected queue pair takes its first message");
        }
        let polled = self.endpoint.poll(now_ns);
        let next_ns = polled.expect("ports of simulated hosts do not break");
        let waiting_ns = self.waiting.iter().map(|send| send.at_ns).min();
        let next_ns = next_ns.into_iter().chain(waiting_ns).min();
        let board = &self.board;
        self.sends.retain(|(flow, send)| {
            let done = send.outcome().map(|outcome| FlowReport {
                flow: *flow,
                at_ns: now_ns,
                what: match outcome {
                    Outcome::Whole => FlowProgress::Sent,
                    Outcome::Partial | Outcome::Failed => FlowProgress::Failed(FlowError::Late),
                },
            });
            let is_open = done.is_none();
            board.borrow_mut().extend(done);
            is_open
        });
        self.receives.retain(|(flow, receive)| {
            let outcome = receive.outcome();
            if outcome == Some(Outcome::Whole) {
                board.borrow_mut().push(FlowReport {
                    flow: *flow,
                    at_ns: now_ns,
                    what: FlowProgress::Received,
                });
            }
            outcome.is_none()
        });
        self.bounded.retain(|(flow, receive, sizes)| {
            let done = receive.outcome().map(|outcome| FlowReport {
                flow: *flow,
                at_ns: now_ns,
                what: ended(outcome, receive.partial(), *sizes),
            });
            let is_open = done.is_none();
            board.borrow_mut().extend(done);
            is_open
        });
        next_ns
    }
}

impl EndpointFlows {
    fn send(&mut self, send: WaitingSend) -> Result<(), String> {
        let memory = Region::ghost(send.bytes);
        let memory = self.endpoint.register_region(memory).map_err(text)?;
        let handle = self
            .endpoint
            .post_send(send.qp, memory.whole(), send.options);
        let handle = handle.map_err(text)?;
        if !send.is_bounded {
            self.sends.push((send.flow, handle));
        }
        Ok(())
    }

    /// Counters of a flow's queue pair, in chunks.
    pub(super) fn counted(&self, flow: usize) -> FlowCounters {
        let stats = self.queue_pairs.get(&flow);
        let stats = stats.and_then(|&qp| self.endpoint.qp_stats(qp).ok());
        stats.map_or_else(FlowCounters::default, |stats| FlowCounters {
            packets: stats.sender.sent_chunks,
            repeated: stats.sender.retransmitted_chunks,
            timeouts: stats.sender.timeouts,
            // Only endless flows need this number, and endpoints refuse them.
            acknowledged: 0,
            notifications: 0,
        })
    }
}

/// Adds a queue pair at both ends, posts the receive buffer and sends the message. Returns the time
/// at which the message is sent: now, or a round trip later if the buffer is posted before.
pub(super) fn start(
    network: &mut Network<HostOrBox>,
    transport: &EndpointTransport,
    starting: &FlowSetup,
) -> Result<u64, String> {
    let scheme = transport.scheme;
    let mut ends = Vec::new();
    for (node, port_bps) in starting.ends.into_iter().zip(starting.port_bps) {
        let rate_control = transport.rate_control(&starting.path, port_bps);
        let options = options(transport, rate_control, starting);
        let endpoint = &mut program(network, node)?.endpoint;
        let qp = endpoint.create_qp(options).map_err(text)?;
        ends.push((node, qp, endpoint.qp_info(qp).map_err(text)?));
    }
    for (end, peer) in [(0, 1), (1, 0)] {
        let (node, qp, _) = ends[end];
        let endpoint = &mut program(network, node)?.endpoint;
        endpoint.connect_qp(qp, &ends[peer].2).map_err(text)?;
    }
    let lead_ns = if transport.posted {
        starting.path.rtt_ns
    } else {
        0
    };
    let start_ns = network.now_ns().saturating_add(lead_ns);
    let [(src, src_qp, _), (dst, dst_qp, _)] = [ends[0].clone(), ends[1].clone()];
    let number = starting.number;
    let receiver = program(network, dst)?;
    let memory = Region::ghost(starting.flow.bytes);
    let memory = receiver.endpoint.register_region(memory).map_err(text)?;
    let deadline_ns = transport
        .deadline
        .map(|deadline| start_ns.saturating_add(nanoseconds(deadline)));
    let terms = match deadline_ns {
        Some(_) => RecvOptions {
            scheme: Some(scheme.tag()),
            exact_length: true,
            deadline_ns,
            accept_partial: true,
            ..RecvOptions::default()
        },
        None => RecvOptions::default(),
    };
    let endpoint = &mut receiver.endpoint;
    let receive = endpoint.post_recv_with(dst_qp, memory.whole(), terms);
    let receive = receive.map_err(text)?;
    // Each poll checks all flows in these lists.
    if deadline_ns.is_some() {
        let sizes = [starting.flow.bytes, chunk_bytes(transport)];
        receiver.bounded.push((number, receive, sizes));
    } else if starting.flow.when_received.is_some() {
        receiver.receives.push((number, receive));
    }
    let sender = program(network, src)?;
    let send = WaitingSend {
        at_ns: start_ns,
        flow: number,
        qp: src_qp,
        bytes: starting.flow.bytes,
        options: SendOptions {
            scheme: scheme.tag(),
            deadline_ns: deadline_ns
                .or_else(|| Some(start_ns.saturating_add(patience_ns(starting.ideal_ns)))),
            ..SendOptions::default()
        },
        is_bounded: deadline_ns.is_some(),
    };
    match lead_ns {
        0 => sender.send(send)?,
        _ => sender.waiting.push(send),
    }
    sender.queue_pairs.insert(number, src_qp);
    Ok(start_ns)
}

/// How a receive with a deadline ended, by the bytes of its message and of a chunk.
fn ended(outcome: Outcome, partial: Option<&Partial>, [bytes, chunk]: [u64; 2]) -> FlowProgress {
    let arrived = match outcome {
        Outcome::Whole => bytes,
        Outcome::Partial => partial.map_or(0, Partial::bytes),
        Outcome::Failed => return FlowProgress::Failed(FlowError::Late),
    };
    let has = |number| partial.is_some_and(|of| of.has_chunk(number));
    let is_there =
        |number: &u64| outcome == Outcome::Whole || u32::try_from(*number).is_ok_and(has);
    let chunks = (0..bytes.div_ceil(chunk)).filter(is_there);
    let chunks = chunks.map(|number| number * chunk..bytes.min((number + 1) * chunk));
    FlowProgress::Ended {
        missing_bytes: bytes.saturating_sub(arrived),
        missing: gaps(bytes, chunks),
        by: None,
    }
}

fn chunk_bytes(transport: &EndpointTransport) -> u64 {
    u64::from(transport.mtu) * u64::from(transport.packets_per_chunk)
}

/// Queue pair options for one message.
fn options(
    transport: &EndpointTransport,
    rate_control: RateControl,
    starting: &FlowSetup,
) -> QpOptions {
    let scheme = transport.scheme;
    let path = starting.path;
    let bytes = starting.flow.bytes;
    let base = match path.rtt_ns {
        ..WIDE_AREA_NS => QpOptions::datacenter(),
        _ => QpOptions::default(),
    };
    let mut sdr = QpConfig {
        mtu: transport.mtu,
        slots: 2,
        packets_per_chunk: transport.packets_per_chunk,
        max_message_bytes: bytes.max(parity_bytes(transport, bytes)),
        ..QpConfig::default()
    };
    // The packet index needs more bits of the immediate than the paper's split gives it. They are
    // taken from the message number.
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

/// Bytes of parity that a scheme sends with a message. For a short message, this is more than the
/// message itself.
fn parity_bytes(transport: &EndpointTransport, bytes: u64) -> u64 {
    let chunk_bytes = chunk_bytes(transport);
    let message = Message {
        number: 0,
        bytes,
        chunks: u32::try_from(bytes.div_ceil(chunk_bytes)).unwrap_or(u32::MAX),
        chunk_bytes,
        critical: CriticalChunks::NONE,
    };
    let layout = transport.scheme.scheme().layout(&message);
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

fn program(network: &mut Network<HostOrBox>, node: NodeId) -> Result<&mut EndpointFlows, String> {
    match network.device_mut(node).map(HostOrBox::uncaptured) {
        Some(HostOrBox::Endpoint(host)) => Ok(host.program_mut()),
        _ => Err(format!("node {} has no endpoint", node.0)),
    }
}

fn text(error: farwrite::Error) -> String {
    error.to_string()
}
