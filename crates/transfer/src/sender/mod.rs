//! The sender's end of a transfer.

mod auto;
mod channel_reader;
mod cutover;
mod disk_reader;
mod stream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farwrite::routes::{Role as RouteRole, Sizes};
use farwrite::{Cipher, QpInfo, QueuePair, RateControl, RealTime, SchemeName, Sealing};
use farwrite_files::{
    Compare, Delete, Hello, Manifest, Message, Source, TransferPlan, detail_messages, due,
    manifest_messages,
};
use farwrite_keys::{Key, Text};
use farwrite_units::show::{Bytes, Count, Rate, real};

use crate::channel::{Channel, Reader};
use crate::channel_writer::{ChannelWriter, Outbox};
use crate::connect::Waiting;
use crate::progress_counts::{OwnCounts, PeerCounts};
use crate::report::{Facts, Role, Sending, TransferReport, Unfinished};
use crate::results::SharedResults;
use crate::route::{Offered, RoutedEndpoint};
use crate::setup::{
    SETUP, Setup, decode_info, hello, note_partials, ports, send_qp_info, unexpected,
    warn_if_unsealed,
};
use crate::shape::{MIN_TRANSFER_MTU, Shape, Speed, nic_mtu, options};
use crate::threads::{DISK_END, start_thread, wait_until};
use crate::{Cancel, Error, ErrorKind, Event, SchemeSetting, TransferHooks};
use channel_reader::Verdicts;
use stream::Stream;

/// Why a receiver refuses to remove anything.
pub(crate) const REMOVES_NOTHING: &str =
    "the receiver removes nothing (--delete); it does with `farwrite recv --allow-delete`";

/// The settings of a sender's user.
#[derive(Clone, Copy, Debug)]
pub struct SendSettings {
    /// What repairs losses.
    pub scheme: SchemeSetting,
    /// The control of the sending rate. The targets of Swift count from the round trip, which the
    /// transfer measures.
    pub rate_control: RateControl,
    /// The expected share of lost packets, until it is measured.
    pub expected_loss: Option<f64>,
    /// Payload bytes of a packet, a multiple of 4; `None`: as many as the path carries, which the
    /// transfer measures.
    pub mtu: Option<u32>,
    /// Without `mtu`: the largest payload of unsealed packets to try, for example from an earlier
    /// measurement ([`TransferReport::narrow_mtu`]).
    pub largest_mtu: Option<u32>,
    /// Whether data packets are sealed.
    pub sealing: Sealing,
    /// The maximum memory for the stream at each end: data read ahead, data in flight, and its
    /// parity.
    pub memory_bytes: u64,
    /// How to find files that the receiver has already.
    pub compare: Compare,
    /// What the receiver has to remove.
    pub delete: Option<Delete>,
    /// How long the peer may be silent, and in which time the transfer must move 4 KiB of new data, or
    /// a tenth of what the rate allows, if that is less.
    pub timeout: Duration,
}

impl SendSettings {
    /// What is known about the path before the transfer.
    fn speed(&self) -> Speed {
        let measured = match self.rate_control {
            RateControl::Adaptive { start, .. } => start,
            _ => None,
        };
        Speed::of(
            self.rate_control.max_rate_bps(),
            measured.map(|start| start.rate_bps),
        )
    }
}

/// Everything that a transfer needs after the set-up.
struct Negotiated {
    routed: RoutedEndpoint,
    qp: QueuePair,
    scheme: SchemeSetting,
    /// The rate control of the settings, over the round trip of the path.
    rate_control: RateControl,
    shape: Shape,
    /// Whether the path loses larger packets.
    is_narrow: bool,
    /// The round trip of the path, as measured during the set-up.
    rtt: Duration,
    peer: SocketAddr,
    /// The cipher of data packets; `None` if they are not sealed.
    cipher: Option<Cipher>,
    /// The UDP ports of both ends, for people.
    ports: String,
    /// Whether files that the receiver calls verified survive a power failure there.
    is_synced: bool,
}

/// Sends the files of `source` through a channel to a receiver. While the receiver is busy with another
/// sender, this end connects to the same address again, until `settings.timeout` has passed.
///
/// # Errors
/// Errors that end the whole transfer, with the files that arrived before; the peer is informed too. Files
/// that fail alone are in the report.
pub fn send(
    channel: Channel,
    key: &Key,
    source: Source,
    settings: &SendSettings,
    hooks: &TransferHooks<'_>,
) -> Result<TransferReport, Unfinished> {
    let shared_results = SharedResults::of(&source);
    shared_results.lock().keeps_ended = hooks.observer.wants_files();
    let peer = channel.peer_addr();
    let sent = send_over(channel, key, (source, &shared_results), settings, hooks);
    hooks.tell_files(&shared_results.take_ended());
    sent.map_err(|error| Unfinished::new(error, peer, &shared_results))
}

fn send_over(
    mut channel: Channel,
    key: &Key,
    (mut source, shared_results): (Source, &SharedResults),
    settings: &SendSettings,
    hooks: &TransferHooks<'_>,
) -> Result<TransferReport, Error> {
    let receiver = Waiting::new(channel.peer_addr().into(), key, settings.timeout);
    loop {
        let ends = (channel.local_addr(), channel.peer_addr());
        let heartbeat = Arc::<OwnCounts>::default();
        let (channel_writer, mut reader, outbox) =
            ChannelWriter::start(channel, &heartbeat, settings.timeout)?;
        let channel_ends = (&mut reader, &outbox);
        let negotiated = negotiate(channel_ends, ends, &mut source, settings, hooks);
        if let Err(error) = &negotiated
            && error.kind() == ErrorKind::Busy
            && receiver.may_ask_again()
        {
            // The receiver has closed the channel.
            channel_writer.end(&Ok::<_, Error>(()));
            channel = receiver.connect_again(hooks.cancel, hooks.observer)?;
            continue;
        }
        let mut disk_reader = None;
        let result = match negotiated {
            Ok(negotiated) => {
                let threads = (reader, outbox, &mut disk_reader);
                let source = (source, shared_results);
                run(negotiated, threads, &heartbeat, source, settings, hooks)
            }
            // The reader stays: without one, the receiver learns that nobody reads before it learns why.
            Err(error) => Err(error),
        };
        channel_writer.end(&result);
        if let Some(disk_reader) = disk_reader {
            // It has warnings about the files.
            wait_until(|| disk_reader.is_finished(), DISK_END);
        }
        return result;
    }
}

/// Agrees with the receiver on the transfer, and connects the queue pair (P8.1).
fn negotiate(
    (reader, outbox): (&mut Reader, &Outbox),
    ends: (SocketAddr, SocketAddr),
    source: &mut Source,
    settings: &SendSettings,
    hooks: &TransferHooks<'_>,
) -> Result<Negotiated, Error> {
    let mut setup = Setup::new(reader, hooks, settings.timeout);
    let (receiver, waited) = meet(&mut setup, outbox, ends, settings, hooks)?;
    let (rtt, mtu) = measure(&mut setup, ends.1, waited, settings)?;
    check_wishes(source, &receiver, settings, hooks)?;
    let (scheme, shape) = choose(source.manifest().stream_bytes(), rtt, mtu, settings)?;
    let rate_control = over_round_trip(settings.rate_control, rtt);
    let mut routed = setup.take_routed()?;
    let options = options(shape.config(), rate_control, settings.sealing, rtt);
    let (qp, ours) = routed.make_queue_pair(options)?;
    setup.routed = Some(routed);
    let plan = plan(scheme, shape.segment_bytes, source.manifest());
    let wishes = (settings.compare, settings.delete);
    send_offer(outbox, plan, source.manifest(), wishes, hooks.cancel)?;
    send_qp_info(outbox, &ours, hooks.cancel)?;
    // Meanwhile the receiver makes its directories.
    let theirs = hear_present(&mut setup, source, settings.compare, settings.timeout)?;
    let mut routed = setup.take_routed()?;
    let is_narrow = routed.is_narrow();
    let ports = ports(&ours, &theirs);
    routed.connect(qp, theirs)?;
    let cipher = routed.endpoint.cipher(qp)?;
    warn_if_unsealed(cipher, settings.sealing, hooks);
    Ok(Negotiated {
        cipher,
        ports,
        routed,
        qp,
        scheme,
        rate_control,
        shape,
        is_narrow,
        rtt,
        peer: ends.1,
        is_synced: receiver.has(Hello::SYNCS),
    })
}

/// Exchanges hellos and the addresses of sockets. Returns the receiver's hello, and how long this end waited for it.
fn meet(
    setup: &mut Setup<'_>,
    outbox: &Outbox,
    (local, peer): (SocketAddr, SocketAddr),
    settings: &SendSettings,
    hooks: &TransferHooks<'_>,
) -> Result<(Hello, Duration), Error> {
    let start = Instant::now();
    outbox.send_or_cancel(hello(Hello::RESUMES), hooks.cancel)?;
    // The offer does not depend on the receiver's hello, and waiting costs a round trip.
    let mut bind = local;
    bind.set_port(0);
    let offered = Offered::make(bind, settings.sealing, outbox, hooks)?;
    let receiver = setup.hello()?;
    let waited = start.elapsed();
    let theirs = setup.route_offer()?;
    let sizes = sizes(settings);
    setup.routed = Some(offered.join(RouteRole::Initiator, &theirs, peer, sizes, hooks)?);
    Ok((receiver, waited))
}

/// Finds the route. Returns the round trip of the path, and the payload bytes of packets.
fn measure(
    setup: &mut Setup<'_>,
    peer: SocketAddr,
    waited: Duration,
    settings: &SendSettings,
) -> Result<(Duration, u32), Error> {
    let found = setup.find_route(SETUP.min(settings.timeout), settings.mtu)?;
    // The answer to the hello may be late, because this end waits for another sender.
    let rtt = found.map_or(waited, |found| found.rtt);
    let mtu = match found.and_then(|found| found.mtu) {
        Some(mtu) => mtu,
        None => {
            let most = setup.routed.as_ref().map(RoutedEndpoint::max_mtu);
            nic_mtu(peer, settings.mtu, most.unwrap_or(u32::MAX))?
        }
    };
    Ok((rtt, mtu))
}

/// What the sender plans with these files.
pub(crate) fn plan(scheme: SchemeSetting, segment_bytes: u64, manifest: &Manifest) -> TransferPlan {
    TransferPlan {
        scheme: Text::new(scheme),
        segment_bytes,
        entries: u32::try_from(manifest.entries().len()).unwrap_or(u32::MAX),
        stream_bytes: manifest.stream_bytes(),
    }
}

/// Checks that the receiver allows what the user wants.
fn check_wishes(
    source: &Source,
    receiver: &Hello,
    settings: &SendSettings,
    hooks: &TransferHooks<'_>,
) -> Result<(), Error> {
    check_delete(settings.delete, receiver)?;
    if source.sends_owners() && !receiver.has(Hello::OWNERS) {
        hooks
            .warn("the receiver does not set owners; it does as root with `farwrite recv --owner`");
    }
    Ok(())
}

/// Checks that the receiver removes what the user wants to be removed.
pub(crate) fn check_delete(delete: Option<Delete>, receiver: &Hello) -> Result<(), Error> {
    if delete.is_some() && !receiver.has(Hello::DELETES) {
        return Err(Error::new(ErrorKind::Mismatch, REMOVES_NOTHING));
    }
    Ok(())
}

/// Sends what the transfer consists of (P8.1.2).
pub(crate) fn send_offer(
    outbox: &Outbox,
    plan: TransferPlan,
    manifest: &Manifest,
    (compare, delete): (Compare, Option<Delete>),
    cancel: &Cancel,
) -> Result<(), Error> {
    outbox.send_or_cancel(Message::Plan(plan), cancel)?;
    for message in manifest_messages(manifest).chain(detail_messages(manifest)) {
        outbox.send_or_cancel(message, cancel)?;
    }
    if compare != Compare::Nothing {
        outbox.send_or_cancel(Message::Compare(compare), cancel)?;
    }
    if let Some(order) = delete {
        outbox.send_or_cancel(Message::Delete(order), cancel)?;
    }
    Ok(())
}

/// Waits for the receiver's queue pair, and for the list of files that it has already.
fn hear_present(
    setup: &mut Setup<'_>,
    source: &mut Source,
    compare: Compare,
    patience: Duration,
) -> Result<QpInfo, Error> {
    loop {
        match setup.message(patience)? {
            Message::QpInfo(blob) => return decode_info(&blob),
            Message::Present(present) if compare != Compare::Nothing && !present.is_empty() => {
                source.add_present(present, compare).map_err(|entry| {
                    let what = format!("the receiver says that it has entry {entry}, out of order");
                    Error::new(ErrorKind::Other, what)
                })?;
            }
            Message::Partial(partials) if !partials.is_empty() => {
                source.add_partials(partials).map_err(|entry| {
                    let what = format!(
                        "the receiver says that it has a part of entry {entry} that it cannot have"
                    );
                    Error::new(ErrorKind::Other, what)
                })?;
            }
            other => return Err(unexpected(other, due::QP_INFO)),
        }
    }
}

/// The packet sizes to test.
fn sizes(settings: &SendSettings) -> Sizes {
    let reserved_bytes = settings.sealing.reserved_bytes();
    let largest = |mtu: u32| mtu.saturating_sub(reserved_bytes).max(MIN_TRANSFER_MTU);
    match settings.mtu {
        Some(mtu) => Sizes::Exactly { mtu },
        None => Sizes::Largest {
            least_mtu: MIN_TRANSFER_MTU,
            largest_mtu: settings.largest_mtu.map(largest),
        },
    }
}

/// The rate control of a path with this round trip.
fn over_round_trip(rate_control: RateControl, rtt: Duration) -> RateControl {
    match rate_control {
        RateControl::Swift(options) => {
            let rtt_ns = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX);
            RateControl::Swift(options.over_round_trip(rtt_ns))
        }
        other => other,
    }
}

/// Chooses how to cut the stream, and the scheme.
fn choose(
    stream_bytes: u64,
    rtt: Duration,
    mtu: u32,
    settings: &SendSettings,
) -> Result<(SchemeSetting, Shape), Error> {
    let (speed, memory_bytes) = (settings.speed(), settings.memory_bytes);
    let cut =
        |scheme: SchemeName| Shape::choose(stream_bytes, speed, rtt, mtu, memory_bytes, scheme);
    match cut(settings.scheme.most_parity()) {
        // If the memory is too small for parity, one candidate remains.
        Err(_) if settings.scheme == SchemeSetting::Auto => {
            let scheme = SchemeName::SrNack;
            Ok((SchemeSetting::Named(scheme), cut(scheme)?))
        }
        shape => Ok((settings.scheme, shape?)),
    }
}

/// `disk_reader` gets the handle of the thread that reads the files.
fn run(
    negotiated: Negotiated,
    (reader, outbox, disk_reader): (Reader, Outbox, &mut Option<JoinHandle<()>>),
    heartbeat: &Arc<OwnCounts>,
    (source, shared_results): (Source, &SharedResults),
    settings: &SendSettings,
    hooks: &TransferHooks<'_>,
) -> Result<TransferReport, Error> {
    let manifest = Arc::clone(source.manifest());
    let (peer, scheme, synced) = (negotiated.peer, negotiated.scheme, negotiated.is_synced);
    let (first_mtu, cipher) = (negotiated.shape.mtu, negotiated.cipher);
    announce(&negotiated, manifest.files(), settings, hooks);
    note_partials(source.partials(), &manifest, hooks);
    hooks.observer.observe(Event::Start {
        peer: peer.to_string(),
        files: manifest.files(),
        bytes: manifest.stream_bytes(),
        unsent_bytes: source.unsent_bytes(),
    });
    let start = Instant::now();
    let peer_heartbeat = Arc::<PeerCounts>::default();
    let verdicts = Verdicts {
        manifest: Arc::clone(&manifest),
        next: 0,
        shared_results: shared_results.clone(),
        prefix_hashes: source.prefix_hashes().clone(),
        heartbeat: Arc::clone(heartbeat),
    };
    let waker = negotiated.routed.endpoint.fabric().waker();
    let heard = channel_reader::start(reader, verdicts, Arc::clone(&peer_heartbeat), &waker)?;
    let heartbeats = (Arc::clone(heartbeat), peer_heartbeat);
    let (stream, reading) = Stream::new(
        negotiated,
        settings,
        outbox,
        heartbeats,
        (shared_results.clone(), &source),
    );
    // The thread ends with the stream, unless a disk blocks it.
    *disk_reader = Some(start_thread("disk-reader", move || reading.run(source))?);
    let sent = stream.run(&heard, &manifest, hooks)?;
    Ok(TransferReport::new(Facts {
        role: Role::Sender,
        peer: peer.to_string(),
        synced,
        cipher,
        results: sent.results,
        elapsed: start.elapsed(),
        scheme: scheme.to_string(),
        choices: sent.choices,
        sending: Sending::new(settings.rate_control, &sent.peer, sent.bottlenecks),
        shape: sent.shape,
        first_mtu,
        unsealed_mtu: sent.shape.mtu + settings.sealing.reserved_bytes(),
        is_narrow: sent.is_narrow,
        stats: sent.stats,
    }))
}

/// Shows people what will be sent, and how.
fn announce(
    negotiated: &Negotiated,
    files: u32,
    settings: &SendSettings,
    hooks: &TransferHooks<'_>,
) {
    let shape = &negotiated.shape;
    let rate = match settings.rate_control {
        RateControl::Fixed { rate_bps } => format!(
            "a fixed {}, whatever others on the path need",
            Rate(real(rate_bps))
        ),
        RateControl::Adaptive {
            max_bps: Some(max_bps),
            ..
        } => format!("the rate of the path, at most {}", Rate(real(max_bps))),
        RateControl::Adaptive { .. } => "the rate of the path".to_owned(),
        control @ (RateControl::Dcqcn(_) | RateControl::Swift(_) | RateControl::Eqds(_)) => {
            format!("the rate of the path ({control})")
        }
    };
    hooks.note(format!(
        "sending {} in {} to {}: {} at {rate}, MTU {}",
        Bytes(shape.stream_bytes),
        Count(files.into(), "file"),
        negotiated.peer,
        negotiated.scheme,
        shape.mtu
    ));
    let window_bps = shape.window_bps(negotiated.rtt);
    let is_short = settings
        .rate_control
        .max_rate_bps()
        .is_some_and(|most| window_bps < most);
    if is_short && shape.segments() > shape.slots.into() {
        hooks.warn(format!(
            "--memory {} holds a rate of {} on this path; give both ends more for a higher one",
            Bytes(settings.memory_bytes),
            Rate(real(window_bps))
        ));
    }
}
