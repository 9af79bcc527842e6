//! The receiver's end of a transfer.

mod disk;
mod listen;
mod stream;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use farwrite::{Endpoint, QpInfo, QpOptions, QueuePair, UdpConfig, UdpFabric};
use farwrite_session::files::{Manifest, Sink, recv_manifest};
use farwrite_session::{Channel, Message, Reader, TransferPlan};

use super::Around;
use super::failure::{of_endpoint, of_sink, sort};
use super::report::{Facts, Files, Report};
use super::shape::{Shape, options};
use super::talk::{Voice, expect, expect_info, hello, meet};
use crate::choice::Choice;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::units::{Bytes, Rate, real};
use disk::{Disk, Tally};
use stream::Stream;

/// Words of the sender that may wait for the disk, beside the segments; then the channel waits.
const WAITING_WORDS: usize = 64;
/// Rate of this end's own packets, which are acknowledgements only.
const CONTROL_BPS: u64 = 1_000_000_000;

/// What a receiver concedes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most memory for messages in flight and their parity.
    pub(crate) memory_bytes: u64,
    /// How long the peer may be silent, and nothing may move.
    pub(crate) timeout: Duration,
}

/// What is about to come, once both ends know each other.
struct Joined {
    endpoint: Endpoint<UdpFabric>,
    qp: QueuePair,
    shape: Shape,
    sink: Sink,
    manifest: Arc<Manifest>,
    plan: TransferPlan,
    peer: SocketAddr,
    /// Between which UDP ports packets go, for people.
    ports: String,
}

/// What ends the reception.
enum Event {
    /// All bytes and hashes have come, or the disk failed.
    Disk(Result<Tally, Failure>),
    /// The channel is over.
    Ended(Failure),
}

/// Receives what the sender at the other end of a channel sends into a directory.
///
/// # Errors
/// Whatever ends the transfer as a whole; the peer is told why. Files that fail by themselves are in
/// the report.
pub(crate) fn receive(
    channel: Channel,
    directory: &Path,
    limits: &Limits,
    around: &Around<'_>,
) -> Result<Report, Failure> {
    let ends = (channel.local_addr(), channel.peer_addr());
    let (mut reader, writer) = channel.split();
    let voice = Voice::new(writer, limits.timeout)
        .map_err(|error| sort("setting the transfer up", &error))?;
    match join(&mut reader, &voice, ends, directory, limits, around) {
        Ok(joined) => run(joined, reader, &voice, limits, around),
        Err(failure) => {
            let failed = Err(failure);
            voice.end(&failed);
            failed
        }
    }
}

/// Agrees with the sender on the transfer, and makes all that it needs (P8.1). The sender hears of
/// the queue pair when its receives are posted.
fn join(
    reader: &mut Reader,
    voice: &Voice,
    (local, peer): (SocketAddr, SocketAddr),
    directory: &Path,
    limits: &Limits,
    around: &Around<'_>,
) -> Result<Joined, Failure> {
    meet(reader, around.interrupt, super::SETUP)?;
    voice
        .say(&hello())
        .map_err(|error| sort("setting the transfer up", &error))?;
    let start = Instant::now();
    let plan = expect(
        reader,
        around.interrupt,
        super::SETUP,
        "a transfer plan",
        |message| match message {
            Message::Plan(plan) => Ok(plan),
            other => Err(other),
        },
    )?;
    let rtt = start.elapsed();
    let scheme = scheme_of(&plan)?.most_parity();
    let (manifest, theirs) = read_rest(reader, &plan, around.interrupt)?;
    let theirs = (around.route)(theirs)?;
    let shape = Shape::of_peer(&plan, &theirs.config, limits.memory_bytes, scheme)?;
    let options = QpOptions {
        // Room for parity is there from the first message on.
        expected_scheme: scheme.tag(),
        max_parity_bytes: shape.max_parity_bytes(),
        ..options(theirs.config, CONTROL_BPS, rtt)
    };

    let make = || -> Result<_, farwrite::Error> {
        // The port of the channel: one hole in a firewall's list serves both.
        let mut endpoint = Endpoint::over_udp(&UdpConfig::new(local))?;
        let qp = endpoint.create_qp(options)?;
        let ours = endpoint.qp_info(qp)?;
        endpoint.connect_qp(qp, &theirs)?;
        Ok((endpoint, qp, ours))
    };
    let (endpoint, qp, ours) = make().map_err(|error| of_endpoint(&error))?;
    let manifest = Arc::new(manifest);
    let sink = Sink::new(directory, Arc::clone(&manifest)).map_err(|error| of_sink(&error))?;
    Ok(Joined {
        ports: format!("{} and {}", ours.control, theirs.control),
        endpoint,
        qp,
        shape,
        sink,
        manifest,
        plan,
        peer,
    })
}

fn scheme_of(plan: &TransferPlan) -> Result<Choice, Failure> {
    let scheme = plan.scheme.as_str().parse::<Choice>();
    scheme.map_err(|error| Failure::caused(Exit::Mismatch, "the sender's plan", &error))
}

/// The manifest and the sender's queue pair.
fn read_rest(
    reader: &mut Reader,
    plan: &TransferPlan,
    interrupt: &Interrupt,
) -> Result<(Manifest, QpInfo), Failure> {
    let failed = |error| sort("setting the transfer up", &error);
    reader.set_timeout(Some(super::SETUP)).map_err(failed)?;
    let manifest = recv_manifest(reader, plan).map_err(failed)?;
    let theirs = expect_info(reader, interrupt, super::SETUP)?;
    Ok((manifest, theirs))
}

/// Takes the files in.
fn run(
    joined: Joined,
    reader: Reader,
    voice: &Voice,
    limits: &Limits,
    around: &Around<'_>,
) -> Result<Report, Failure> {
    let Joined {
        endpoint,
        qp,
        shape,
        sink,
        manifest,
        plan,
        peer,
        ports,
    } = joined;
    around.console.say(format_args!(
        "receiving {} in {} from {peer}: {} at {}, MTU {}",
        Bytes(shape.stream_bytes),
        Files(manifest.files()),
        plan.scheme,
        Rate(real(plan.rate_bps)),
        shape.mtu
    ));
    let start = Instant::now();
    let waiting = usize::try_from(shape.slots).unwrap_or(usize::MAX);
    let (jobs, to_do) = sync_channel(waiting.saturating_add(WAITING_WORDS));
    let (give_back, empties) = channel();
    let (tell, events) = channel();
    let disk = Disk::new(sink, Arc::clone(&manifest), voice.clone(), to_do, give_back);
    let written = disk.written();
    let listener_tell = tell.clone();
    let listener_jobs = jobs.clone();
    let stream = Stream::new(endpoint, qp, shape, jobs, empties, written);
    let received = thread::scope(|scope| {
        scope.spawn(move || disk.run(&tell));
        let words = listen::start(scope, reader, listener_jobs, listener_tell);
        let received = stream.run(
            stream::Watched {
                voice,
                words: &words,
                events: &events,
                limits,
                ports,
            },
            &manifest,
            around,
        );
        // The listener ends now, and with it the last that may have work for the disk.
        voice.end(&received);
        received
    })?;
    let facts = Facts {
        command: "recv",
        peer: peer.to_string(),
        files: received.tally.verified_files,
        elapsed: start.elapsed(),
        scheme: plan.scheme.to_string(),
        choices: None,
        rate_bps: plan.rate_bps,
        shape,
        retransmitted_share: None,
        duplicate_share: Some(stream::twice(&received.stats)),
        stats: received.stats,
    };
    Ok(Report::new(facts, received.tally.failures))
}
