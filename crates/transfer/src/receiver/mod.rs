//! The receiver's end of a transfer.

mod buffer_demand;
mod channel_reader;
mod cutover;
mod disk_writer;
mod offer;
mod prefix;
mod settings;
mod stream;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farwrite::routes::{Role as RouteRole, Sizes};
use farwrite::{Cipher, QpConfig, QpInfo, QpOptions, QueuePair, RealTime, Region, SchemeName};
use farwrite_files::{
    CommitGate, Compare, Cutover, Delete, Manifest, Message, MessageError, Sink, TransferPlan, due,
};
use farwrite_units::show::{Bytes, Count};

use crate::channel::Reader;
use crate::channel_writer::{ChannelWriter, Outbox};
use crate::memory_pool::MemoryShare;
use crate::progress_counts::{OwnCounts, PeerCounts};
use crate::report::{Facts, Role, Sending, TransferReport, Unfinished};
use crate::results::{FileResults, SharedResults};
use crate::route::{Offered, RoutedEndpoint};
use crate::setup::{
    SETUP, Setup, decode_info, hello, note_partials, ports, unexpected, warn_if_unsealed,
};
use crate::shape::{Shape, options};
use crate::threads::{DISK_END, start_thread, wait_until};
use crate::waking::Waking;
use crate::{Client, Error, ErrorKind, SchemeSetting, TransferHooks};
use buffer_demand::BufferDemand;
use disk_writer::{DiskWriter, Job};
pub(crate) use offer::read_offer;
pub use settings::ReceiveSettings;
use stream::{Stream, StreamContext};

/// Reports of the sender that may wait for the disk, in addition to the segments. When the queue is
/// full, the channel reader does not read the channel.
const WAITING_REPORTS: usize = 1 << 14;

/// Files in one message about what is there already.
pub(crate) const PRESENT_BATCH: usize = 2048;

/// How long a transfer waits for the memory of its first buffer, while others give back what exceeds their
/// shares. Then it is refused as busy.
const MEMORY_WAIT: Duration = Duration::from_secs(1);

/// Everything that a transfer needs after the set-up.
struct Negotiated {
    routed: RoutedEndpoint,
    qp: QueuePair,
    shape: Shape,
    /// Holds the memory of one buffer.
    memory: MemoryShare,
    sink: Sink,
    manifest: Arc<Manifest>,
    plan: TransferPlan,
    peer: SocketAddr,
    /// An upper estimate of the round trip.
    rtt: Duration,
    /// The cipher of data packets; `None` if they are not sealed.
    cipher: Option<Cipher>,
    /// The UDP ports of both ends, for people.
    ports: String,
}

/// Events from the other threads for the endpoint's thread.
enum Event {
    /// All bytes and hashes have come, or the disk failed.
    Disk(Result<FileResults, Error>),
    /// The sender continues over another queue pair.
    Cutover(Cutover),
    /// The channel has ended.
    Ended {
        error: Error,
        /// The sender closed it, as it does when it knows that all is done.
        is_closed: bool,
    },
}

/// What all parts of a reception use.
struct Reception<'a> {
    outbox: Outbox,
    heartbeat: Arc<OwnCounts>,
    gate: CommitGate,
    shared_results: SharedResults,
    settings: &'a ReceiveSettings,
    hooks: &'a TransferHooks<'a>,
}

/// Receives the files of a sender, which has already sent its hello, into a directory.
///
/// When this returns an error, no further file gets its final name.
///
/// # Errors
/// Errors that end the whole transfer, with the files that arrived before; the peer is informed too. Files
/// that fail alone are in the report.
pub fn receive(
    sender: Client,
    directory: &Path,
    settings: &ReceiveSettings,
    hooks: &TransferHooks<'_>,
) -> Result<TransferReport, Unfinished> {
    let mut settings = settings.clone();
    if !sender.resumes() {
        settings.policy.resume = None;
    }
    let settings = &settings;
    let channel = sender.into_channel();
    let ends = (channel.local_addr(), channel.peer_addr());
    let heartbeat = Arc::<OwnCounts>::default();
    let (channel_writer, mut reader, outbox) =
        ChannelWriter::start(channel, &heartbeat, settings.timeout)?;
    let reception = Reception {
        outbox,
        heartbeat,
        gate: CommitGate::default(),
        shared_results: SharedResults::default(),
        settings,
        hooks,
    };
    let mut disk = None;
    let wants_files = hooks.observer.wants_files();
    reception.shared_results.lock().keeps_ended = wants_files;
    let mut list = settings.memory(hooks).join_lists();
    let result = match reception.negotiate((&mut reader, &mut list), ends, directory) {
        Ok(negotiated) => reception.run(negotiated, reader, &mut disk),
        // The reader stays: without one, the sender learns that nobody reads before it learns why.
        Err(error) => Err(error),
    };
    if result.is_err() && !reception.gate.close(DISK_END) {
        hooks.warn(
            "the disk has not answered for long: the file that it was giving its final name may \
             still get it",
        );
    }
    channel_writer.end(&result);
    if let Some(disk) = disk {
        // It removes files without a final name.
        wait_until(|| disk.is_finished(), DISK_END);
    }
    hooks.tell_files(&reception.shared_results.take_ended());
    result.map_err(|error| Unfinished::new(error, ends.1, &reception.shared_results))
}

/// What a sender wants, as far as this end allows it.
struct Wanted {
    plan: TransferPlan,
    manifest: Arc<Manifest>,
    compare: Compare,
    delete: Option<Delete>,
    shape: Shape,
    /// The scheme with the most parity.
    scheme: SchemeName,
    /// Its queue pair.
    info: QpInfo,
}

impl Reception<'_> {
    /// Agrees with the sender on the transfer, and makes everything that it needs (P8.1). The
    /// sender learns about the queue pair after its receives are posted.
    fn negotiate(
        &self,
        (reader, list): (&mut Reader, &mut MemoryShare),
        ends: (SocketAddr, SocketAddr),
        directory: &Path,
    ) -> Result<Negotiated, Error> {
        let mut setup = Setup::new(reader, self.hooks, self.settings.timeout);
        let waited = self.meet(&mut setup, ends)?;
        let wanted = self.hear_offer(&mut setup, list)?;
        let memory = self.first_buffer(&mut setup, &wanted.shape)?;
        let found = setup.find_route(SETUP.min(self.settings.timeout), None)?;
        // The sender's offer follows its hello without a round trip between them, so the wait for it can
        // be much shorter than a round trip.
        let rtt = found.map_or(waited, |found| found.rtt.max(waited));
        let mut routed = setup.take_routed()?;
        wanted.shape.check_mtu(routed.max_mtu())?;
        let (config, shape) = (wanted.info.config, &wanted.shape);
        let options = self.options(config, shape, wanted.scheme, rtt);
        let (qp, ours) = routed.make_queue_pair(options)?;
        let ports = ports(&ours, &wanted.info);
        routed.connect(qp, wanted.info)?;
        let cipher = routed.endpoint.cipher(qp)?;
        warn_if_unsealed(cipher, self.settings.sealing, self.hooks);
        setup.routed = Some(routed);
        let wishes = (wanted.compare, wanted.delete);
        let sink = self.make_sink(&mut setup, directory, &wanted.manifest, wishes)?;
        Ok(Negotiated {
            cipher,
            ports,
            routed: setup.take_routed()?,
            qp,
            shape: wanted.shape,
            memory,
            sink,
            manifest: wanted.manifest,
            plan: wanted.plan,
            peer: ends.1,
            rtt,
        })
    }

    /// Exchanges hellos and the addresses of sockets. Returns how long this end waited for those of the sender.
    fn meet(
        &self,
        setup: &mut Setup<'_>,
        (local, peer): (SocketAddr, SocketAddr),
    ) -> Result<Duration, Error> {
        let hello = hello(self.settings.capabilities());
        self.outbox.send_or_cancel(hello, self.hooks.cancel)?;
        let start = Instant::now();
        let theirs = setup.route_offer()?;
        let waited = start.elapsed();
        // The port of the channel: one firewall rule covers both.
        let offered = Offered::make(local, self.settings.sealing, &self.outbox, self.hooks)?;
        let (role, sizes) = (RouteRole::Responder, Sizes::Untested);
        setup.routed = Some(offered.join(role, &theirs, peer, sizes, self.hooks)?);
        Ok(waited)
    }

    /// Reads what the sender wants, and checks that this end allows it.
    fn hear_offer(&self, setup: &mut Setup<'_>, list: &mut MemoryShare) -> Result<Wanted, Error> {
        let plan = setup.plan()?;
        let scheme = scheme_of(&plan)?.most_parity();
        let offer = read_offer(setup, &plan, self.settings, list)?;
        let info = match offer.next {
            Message::QpInfo(blob) => decode_info(&blob)?,
            other => return Err(unexpected(other, due::QP_INFO)),
        };
        let memory_bytes = self.settings.memory_bytes;
        let shape = Shape::of_peer(&plan, &info.config, memory_bytes, scheme)?;
        Ok(Wanted {
            plan,
            manifest: Arc::new(offer.manifest),
            compare: offer.compare,
            delete: offer.delete,
            shape,
            scheme,
            info,
        })
    }

    /// Makes the directories of the manifest, and tells the sender which files are there already. This can
    /// take long on a slow disk.
    fn make_sink(
        &self,
        setup: &mut Setup<'_>,
        directory: &Path,
        manifest: &Arc<Manifest>,
        wishes: (Compare, Option<Delete>),
    ) -> Result<Sink, Error> {
        let (directory, manifest) = (directory.to_path_buf(), Arc::clone(manifest));
        let (gate, policy) = (self.gate.clone(), self.settings.policy);
        let make = move || Sink::mirroring(&directory, manifest, gate, policy, wishes);
        let sink = setup.run(&self.heartbeat, make)?;
        let sink = sink.map_err(|error| Error::of_sink(&error))?;
        let present = sink.present().chunks(PRESENT_BATCH);
        let present = present.map(|all| Message::Present(all.to_vec()));
        let partials = sink.partials().chunks(PRESENT_BATCH);
        for message in present.chain(partials.map(|all| Message::Partial(all.to_vec()))) {
            self.outbox.send_or_cancel(message, self.hooks.cancel)?;
        }
        Ok(sink)
    }

    /// Shows people and programs what will be received.
    fn announce(
        &self,
        manifest: &Manifest,
        plan: &TransferPlan,
        (peer, mtu): (SocketAddr, u32),
        unsent_bytes: u64,
    ) {
        self.hooks.note(format!(
            "receiving {} in {} from {peer}: {}, MTU {mtu}",
            Bytes(manifest.stream_bytes()),
            Count(manifest.files().into(), "file"),
            plan.scheme,
        ));
        self.hooks.observer.observe(crate::Event::Start {
            peer: peer.to_string(),
            files: manifest.files(),
            bytes: manifest.stream_bytes(),
            unsent_bytes,
        });
    }

    fn start_disk(
        &self,
        (sink, manifest): (Sink, &Arc<Manifest>),
        (jobs, empties, events): (
            mpsc::Receiver<Job>,
            Waking<mpsc::Sender<Region>>,
            Waking<mpsc::Sender<Event>>,
        ),
    ) -> Result<JoinHandle<()>, Error> {
        let work = DiskWriter {
            sink,
            gate: self.gate.clone(),
            manifest: Arc::clone(manifest),
            shared_results: self.shared_results.clone(),
            outbox: self.outbox.clone(),
            heartbeat: Arc::clone(&self.heartbeat),
            jobs,
            empties,
            events,
        };
        start_thread("disk-writer", move || work.run())
    }

    /// Takes the memory of one buffer, with which the transfer can always go on.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if others do not give it back in time.
    fn first_buffer(&self, setup: &mut Setup<'_>, shape: &Shape) -> Result<MemoryShare, Error> {
        let mut memory = self.settings.memory(self.hooks).join();
        let start = Instant::now();
        setup.until(|_| match memory.take(shape.buffer_bytes()) {
            true => Ok(Some(())),
            false if start.elapsed() < MEMORY_WAIT => Ok(None),
            false => {
                let what = format!(
                    "other transfers use the memory of the receiver, and a buffer of this one takes {}; \
                     try again later, or raise the receiver's --memory or lower its --max-senders",
                    Bytes(shape.buffer_bytes())
                );
                Err(Error::new(ErrorKind::Busy, what))
            }
        })?;
        Ok(memory)
    }

    /// `disk` gets the handle of the disk's thread.
    fn run(
        &self,
        negotiated: Negotiated,
        reader: Reader,
        disk: &mut Option<JoinHandle<()>>,
    ) -> Result<TransferReport, Error> {
        let (shape, plan, manifest) = (negotiated.shape, negotiated.plan, negotiated.manifest);
        let sink = negotiated.sink;
        let cipher = negotiated.cipher;
        let scheme = plan.scheme.to_string();
        let has_present = !sink.present().is_empty() || !sink.partials().is_empty();
        let unsent_bytes = sink.unsent_bytes();
        self.announce(&manifest, &plan, (negotiated.peer, shape.mtu), unsent_bytes);
        note_partials(sink.partials(), &manifest, self.hooks);
        let prefix_reader = sink.prefix_reader();
        let wanted = sink.wanted();
        let start = Instant::now();
        let waiting = usize::try_from(shape.slots).unwrap_or(usize::MAX);
        let (jobs, to_do) = sync_channel(waiting.saturating_add(WAITING_REPORTS));
        let (give_back, empties) = channel();
        let (tell, events) = channel();
        let waker = negotiated.routed.endpoint.fabric().waker();
        let (give_back, tell) = (Waking::new(give_back, &waker), Waking::new(tell, &waker));
        let of_disk = (to_do, give_back, tell.clone());
        *disk = Some(self.start_disk((sink, &manifest), of_disk)?);
        let peer = Arc::<PeerCounts>::default();
        let told = self.shared_results.clone();
        channel_reader::start(reader, jobs.clone(), tell, (Arc::clone(&peer), told))?;
        let setting = scheme_of(&plan)?;
        let demand = BufferDemand::new(shape.buffers(), negotiated.rtt, start);
        let connection = (negotiated.routed, negotiated.qp);
        let buffers = (demand, negotiated.memory);
        let stream = Stream::new(connection, shape, (plan, setting), buffers, (jobs, empties));
        let context = StreamContext {
            reception: self,
            prefix_reader,
            unsent_bytes,
            has_present,
            wanted,
            peer: &peer,
            events: &events,
            ports: negotiated.ports,
        };
        let received = stream.run(context, &manifest)?;
        Ok(TransferReport::new(Facts {
            role: Role::Receiver,
            peer: negotiated.peer.to_string(),
            synced: self.settings.policy.sync,
            cipher,
            results: received.results,
            elapsed: received.ended - start,
            scheme,
            choices: None,
            sending: Sending::default(),
            shape: received.shape,
            first_mtu: shape.mtu,
            unsealed_mtu: received.shape.mtu + self.settings.sealing.reserved_bytes(),
            is_narrow: false,
            stats: received.stats,
        }))
    }

    /// The options of a queue pair of this end.
    fn options(
        &self,
        config: QpConfig,
        shape: &Shape,
        scheme: SchemeName,
        rtt: Duration,
    ) -> QpOptions {
        let (control, sealing) = (self.settings.rate_control(), self.settings.sealing);
        QpOptions {
            // Room for parity exists from the first message on.
            expected_scheme: scheme.tag(),
            max_parity_bytes: shape.max_parity_bytes(),
            ..options(config, control, sealing, rtt)
        }
    }
}

fn scheme_of(plan: &TransferPlan) -> Result<SchemeSetting, Error> {
    let scheme = plan.scheme.as_str().parse::<SchemeSetting>();
    scheme.map_err(|error| Error::caused(ErrorKind::Mismatch, "the sender's plan", &error))
}

impl From<MessageError> for Error {
    fn from(error: MessageError) -> Self {
        Self::of_message("setting the transfer up", &error)
    }
}
