//! The sender's end of a transfer.

mod auto;
mod feed;
mod listen;
mod stream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use farwrite::{Endpoint, QueuePair, SchemeName, UdpConfig, UdpFabric};
use farwrite_session::files::{Source, send_manifest};
use farwrite_session::{Channel, Message, Reader, Text, TransferPlan};

use super::Around;
use super::failure::{of_endpoint, sort};
use super::report::{Facts, Files, Report};
use super::shape::{Shape, mtu, options};
use super::talk::{Voice, expect_info, hello, meet, say_info};
use crate::choice::Choice;
use crate::exit::Failure;
use crate::units::{Bytes, Rate, real};
pub(super) use auto::Choices;
use listen::{Listener, Verdicts};
use stream::Stream;

/// What the user of a sender asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    /// What repairs losses.
    pub(crate) scheme: Choice,
    /// Bits a second on the wire.
    pub(crate) rate_bps: u64,
    /// Payload bytes of a packet; `None` takes what the path carries.
    pub(crate) mtu: Option<u32>,
    /// Most memory for messages in flight and their parity, at each end.
    pub(crate) memory_bytes: u64,
    /// How long the peer may be silent, and nothing may move.
    pub(crate) timeout: Duration,
}

/// Everything that a transfer needs once both ends know each other.
struct Joined {
    endpoint: Endpoint<UdpFabric>,
    qp: QueuePair,
    scheme: Choice,
    shape: Shape,
    /// As the channel's hellos took.
    rtt: Duration,
    peer: SocketAddr,
    /// Between which UDP ports packets go, for people.
    ports: String,
}

/// Sends what there is in `source` through a channel to a receiver.
///
/// # Errors
/// Whatever ends the transfer as a whole; the peer is told why. Files that fail by themselves are in
/// the report.
pub(crate) fn send(
    channel: Channel,
    source: Source,
    wishes: &Wishes,
    around: &Around<'_>,
) -> Result<Report, Failure> {
    let ends = (channel.local_addr(), channel.peer_addr());
    let (mut reader, writer) = channel.split();
    let voice = Voice::new(writer, wishes.timeout)
        .map_err(|error| sort("setting the transfer up", &error))?;
    match join(&mut reader, &voice, ends, &source, wishes, around) {
        Ok(joined) => run(joined, reader, &voice, source, wishes, around),
        Err(failure) => {
            let failed = Err(failure);
            voice.end(&failed);
            failed
        }
    }
}

/// Agrees with the receiver on the transfer, and connects the queue pair (P8.1).
fn join(
    reader: &mut Reader,
    voice: &Voice,
    (local, peer): (SocketAddr, SocketAddr),
    source: &Source,
    wishes: &Wishes,
    around: &Around<'_>,
) -> Result<Joined, Failure> {
    let failed = |error| sort("setting the transfer up", &error);
    let start = Instant::now();
    voice.say(&hello()).map_err(failed)?;
    meet(reader, around.interrupt, super::SETUP)?;
    let rtt = start.elapsed();

    let manifest = source.manifest();
    let (rate_bps, memory_bytes) = (wishes.rate_bps, wishes.memory_bytes);
    let mtu = mtu(peer, wishes.mtu)?;
    let stream_bytes = manifest.stream_bytes();
    let cut =
        |scheme: SchemeName| Shape::choose(stream_bytes, rate_bps, rtt, mtu, memory_bytes, scheme);
    let (scheme, shape) = match cut(wishes.scheme.most_parity()) {
        // Memory that is too little for parity leaves one candidate.
        Err(_) if wishes.scheme == Choice::Auto => {
            let scheme = SchemeName::SrNack;
            (Choice::Named(scheme), cut(scheme)?)
        }
        shape => (wishes.scheme, shape?),
    };
    let mut bind = local;
    bind.set_port(0);
    let make = || -> Result<_, farwrite::Error> {
        let mut endpoint = Endpoint::over_udp(&UdpConfig::new(bind))?;
        let qp = endpoint.create_qp(options(shape.config(), rate_bps, rtt))?;
        let info = endpoint.qp_info(qp)?;
        Ok((endpoint, qp, info))
    };
    let (mut endpoint, qp, ours) = make().map_err(|error| of_endpoint(&error))?;

    let plan = Message::Plan(TransferPlan {
        scheme: Text::new(scheme),
        rate_bps,
        segment_bytes: shape.segment_bytes,
        entries: u32::try_from(manifest.entries().len()).unwrap_or(u32::MAX),
        stream_bytes: shape.stream_bytes,
    });
    voice.say(&plan).map_err(failed)?;
    voice
        .with(|writer| send_manifest(writer, manifest))
        .map_err(failed)?;
    say_info(voice, &ours)?;
    // The receiver makes its directories meanwhile.
    let theirs = expect_info(reader, around.interrupt, wishes.timeout)?;
    let theirs = (around.route)(theirs)?;
    endpoint
        .connect_qp(qp, &theirs)
        .map_err(|error| of_endpoint(&error))?;
    Ok(Joined {
        ports: format!("{} and {}", ours.control, theirs.control),
        endpoint,
        qp,
        scheme,
        shape,
        rtt,
        peer,
    })
}

/// Moves the files.
fn run(
    joined: Joined,
    reader: Reader,
    voice: &Voice,
    source: Source,
    wishes: &Wishes,
    around: &Around<'_>,
) -> Result<Report, Failure> {
    let manifest = Arc::clone(source.manifest());
    let (shape, rtt, peer) = (joined.shape, joined.rtt, joined.peer);
    let scheme = joined.scheme;
    around.console.say(format_args!(
        "sending {} in {} to {peer}: {} at {}, MTU {}; there is no congestion control, so give \
         --rate the share of the path that is yours",
        Bytes(shape.stream_bytes),
        Files(manifest.files()),
        scheme,
        Rate(real(wishes.rate_bps)),
        shape.mtu
    ));
    let window_bps = shape.window_bps(rtt);
    if window_bps < wishes.rate_bps && shape.segments() > shape.slots.into() {
        around.console.warn(format_args!(
            "--memory {} holds a rate of {} on this path; give both ends more for a higher one",
            Bytes(wishes.memory_bytes),
            Rate(real(window_bps))
        ));
    }
    let start = Instant::now();
    let listener = Listener::new(reader, Verdicts::new(Arc::clone(&manifest)));
    let ((files, failures), (stats, choices)) = thread::scope(|scope| {
        let (stream, feeder) = Stream::new(joined, wishes, voice.clone());
        let (words, events) = listener.start(scope);
        let feeding = scope.spawn(move || feeder.run(source));
        let sent = stream.run(&words, &events, &manifest, around);
        // Both threads end now, if they have not already.
        voice.end(&sent);
        let abandoned = feeding
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent.map(|sent| (sent.verdicts.judge(&abandoned), (sent.stats, sent.choices)))
    })?;
    let facts = Facts {
        command: "send",
        peer: peer.to_string(),
        files,
        elapsed: start.elapsed(),
        scheme: scheme.to_string(),
        rate_bps: wishes.rate_bps,
        shape,
        choices,
        retransmitted_share: Some(stream::again(&stats)),
        duplicate_share: None,
        stats,
    };
    Ok(Report::new(facts, failures))
}
