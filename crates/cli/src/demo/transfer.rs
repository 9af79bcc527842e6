//! One transfer: two endpoints and the emulated link between them, each in a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use farwrite::fabric::emulator::{EmulatorCounters, LinkEmulator};
use farwrite::{
    Buffer, Counters, Endpoint, MemoryRegion, Outcome, QpInfo, QpStats, QueuePair, RecvHandle,
    SchemeName, SendHandle, SendOptions, UdpConfig, UdpFabric,
};

use super::fill::{Fill, Sampler};
use super::scenario::{Scenario, loopback};
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt::Interrupt;

/// Between two looks at the bitmap.
const SAMPLE_PERIOD: Duration = Duration::from_millis(4);
/// Without any arrival for so long, and twenty round trips, a transfer is given up.
const STALL: Duration = Duration::from_secs(10);

/// The memory of both ends. Endpoints own it while they are there.
pub(crate) struct Memory {
    pub(crate) source: Buffer,
    pub(crate) target: Buffer,
}

/// How a transfer went.
pub(crate) struct Run {
    pub(crate) scheme: SchemeName,
    /// From the first chunk to the final ACK, at the sender.
    pub(crate) completion: Duration,
    pub(crate) sender: QpStats,
    pub(crate) receiver: QpStats,
    /// Of the sender's and the receiver's sockets.
    pub(crate) sockets: [Counters; 2],
    pub(crate) emulator: EmulatorCounters,
    pub(crate) fill: Fill,
}

/// Where a transfer stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Since the first chunk was sent.
    pub(crate) elapsed: Duration,
    pub(crate) arrived_chunks: u64,
    pub(crate) sender: QpStats,
}

/// What the threads of a transfer tell each other.
#[derive(Default)]
struct Live {
    over: AtomicBool,
    started: OnceLock<Instant>,
    finished: OnceLock<Instant>,
    sender: Mutex<QpStats>,
}

impl Live {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn sender(&self) -> QpStats {
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a transfer for all of its threads when the first of them ends, however it does.
struct EndAll<'a>(&'a Live);

impl Drop for EndAll<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
    }
}

/// One end of a transfer.
struct End {
    endpoint: Endpoint<UdpFabric>,
    qp: QueuePair,
    region: MemoryRegion,
}

impl End {
    fn new(scenario: &Scenario, memory: Buffer) -> Result<Self, farwrite::Error> {
        let mut endpoint = Endpoint::over_udp(&UdpConfig::new(loopback()))?;
        let qp = endpoint.create_qp(scenario.qp_options())?;
        let region = endpoint.register_buffer(memory)?;
        Ok(Self {
            endpoint,
            qp,
            region,
        })
    }

    fn info(&self) -> Result<QpInfo, farwrite::Error> {
        self.endpoint.qp_info(self.qp)
    }

    /// Connects to a peer that is reached by way of `via`.
    fn connect(
        &mut self,
        mut peer: QpInfo,
        via: std::net::SocketAddr,
    ) -> Result<(), farwrite::Error> {
        peer.control = via;
        peer.channels.fill(via);
        self.endpoint.connect_qp(self.qp, &peer)
    }

    fn bytes(&self) -> Result<&[u8], farwrite::Error> {
        self.endpoint.memory(self.region)
    }

    fn into_memory(mut self) -> Result<Buffer, farwrite::Error> {
        self.endpoint.destroy_qp(self.qp)?;
        self.endpoint.deregister(self.region)
    }
}

/// Both ends and the link between them, connected.
struct Wired {
    sender: End,
    receiver: End,
    link: LinkEmulator,
}

impl Wired {
    fn new(scenario: &Scenario, memory: Memory) -> Result<Self, Failure> {
        let end = |memory, what| End::new(scenario, memory).or_exit(Exit::Other, what);
        let mut sender = end(memory.source, "setting up the sender")?;
        let mut receiver = end(memory.target, "setting up the receiver")?;
        let infos = sender.info().and_then(|s| Ok((s, receiver.info()?)));
        let (of_sender, of_receiver) = infos.or_exit(Exit::Other, "setting up the ends")?;
        let config = scenario.emulator(of_sender.control, of_receiver.control);
        let link = LinkEmulator::start(&config).or_exit(Exit::Other, "setting up the link")?;
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

    fn post(
        &mut self,
        scenario: &Scenario,
        scheme: SchemeName,
    ) -> Result<(Vec<SendHandle>, Vec<RecvHandle>), farwrite::Error> {
        let options = SendOptions {
            scheme: scheme.scheme().tag(),
            ..SendOptions::default()
        };
        let (mut sends, mut recvs) = (Vec::new(), Vec::new());
        for range in scenario.messages() {
            let End {
                endpoint,
                qp,
                region,
            } = &mut self.receiver;
            recvs.push(endpoint.post_recv(*qp, region.slice(range.clone()))?);
            let End {
                endpoint,
                qp,
                region,
            } = &mut self.sender;
            sends.push(endpoint.post_send(*qp, region.slice(range), options)?);
        }
        Ok((sends, recvs))
    }
}

/// Moves the source to the target with one scheme, tells `watch` now and then how far it is, and
/// compares every byte. Gives the memory back for the next.
pub(crate) fn transfer(
    scenario: &Scenario,
    scheme: SchemeName,
    memory: Memory,
    interrupt: &Interrupt,
    watch: impl FnMut(&Standing),
) -> Result<(Run, Memory), Failure> {
    let mut wired = Wired::new(scenario, memory)?;
    let (sends, recvs) = wired
        .post(scenario, scheme)
        .or_exit(Exit::Other, "posting the message")?;
    let live = Live::default();
    let mut sampler = Sampler::new(&recvs, &scenario.chunks_of_messages());
    thread::scope(|scope| {
        let (sender, receiver) = (&mut wired.sender, &mut wired.receiver);
        let sending = scope.spawn(|| send(sender, &sends, &live));
        let receiving = scope.spawn(|| receive(receiver, &live));
        let watched = watch_over(scenario, &live, interrupt, &mut sampler, watch);
        live.over.store(true, Ordering::Release);
        sending
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .or_exit(Exit::Unreachable, "sending")?;
        receiving
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .or_exit(Exit::Unreachable, "receiving")?;
        watched
    })?;
    let whole = |outcome| outcome == Some(Outcome::Whole);
    let (Some(&started), Some(&finished)) = (live.started.get(), live.finished.get()) else {
        return Err(Failure::new(
            Exit::Other,
            format!("{scheme}: the transfer ended before its end"),
        ));
    };
    if !sends.iter().all(|send| whole(send.outcome()))
        || !recvs.iter().all(|recv| whole(recv.outcome()))
    {
        return Err(Failure::new(
            Exit::Unreachable,
            format!("{scheme}: the message failed to arrive whole"),
        ));
    }
    sampler.sample();
    settle(scheme, wired, finished - started, sampler.finish(started))
}

/// Compares the bytes and takes everything apart.
fn settle(
    scheme: SchemeName,
    wired: Wired,
    completion: Duration,
    fill: Fill,
) -> Result<(Run, Memory), Failure> {
    let Wired {
        sender,
        receiver,
        link,
    } = wired;
    let emulator = link.stop().or_exit(Exit::Other, "emulating the link")?;
    verify(scheme, &sender, &receiver)?;
    let take = || -> Result<_, farwrite::Error> {
        let run = Run {
            scheme,
            completion,
            sender: sender.endpoint.qp_stats(sender.qp)?,
            receiver: receiver.endpoint.qp_stats(receiver.qp)?,
            sockets: [&sender, &receiver].map(|end| end.endpoint.counters()),
            emulator,
            fill,
        };
        let memory = Memory {
            source: sender.into_memory()?,
            target: receiver.into_memory()?,
        };
        Ok((run, memory))
    };
    take().or_exit(Exit::Other, "taking the ends apart")
}

fn verify(scheme: SchemeName, sender: &End, receiver: &End) -> Result<(), Failure> {
    let both = sender.bytes().and_then(|s| Ok((s, receiver.bytes()?)));
    let (sent, received) = both.or_exit(Exit::Other, "looking at the memory")?;
    if sent == received {
        return Ok(());
    }
    let wrong = sent
        .iter()
        .zip(received)
        .filter(|(sent, received)| sent != received);
    let first = sent
        .iter()
        .zip(received)
        .position(|(sent, received)| sent != received);
    let what = format!(
        "{scheme}: {} of {} bytes are not what was sent, the first at {}",
        wrong.count(),
        sent.len(),
        first.unwrap_or(0)
    );
    Err(Failure::new(Exit::Corrupt, what))
}

/// The sender's thread.
fn send(end: &mut End, sends: &[SendHandle], live: &Live) -> Result<(), farwrite::Error> {
    let _end_all = EndAll(live);
    let qp = end.qp;
    end.endpoint.run_until(|endpoint| {
        let stats = endpoint.qp_stats(qp).unwrap_or_default();
        if stats.sender.sent_chunks > 0 {
            live.started.get_or_init(Instant::now);
        }
        *live.sender.lock().unwrap_or_else(PoisonError::into_inner) = stats;
        if sends.iter().all(|send| send.outcome().is_some()) {
            live.finished.get_or_init(Instant::now);
        }
        live.finished.get().is_some() || live.is_over()
    })
}

/// The receiver's thread. It answers until the sender knows all.
fn receive(end: &mut End, live: &Live) -> Result<(), farwrite::Error> {
    let _end_all = EndAll(live);
    end.endpoint.run_until(|_| live.is_over())
}

/// Samples the bitmap until the transfer is over.
fn watch_over(
    scenario: &Scenario,
    live: &Live,
    interrupt: &Interrupt,
    sampler: &mut Sampler,
    mut watch: impl FnMut(&Standing),
) -> Result<(), Failure> {
    let patience = STALL + scenario.rtt * 20;
    let mut last = (0, Instant::now());
    while !live.is_over() {
        thread::sleep(SAMPLE_PERIOD);
        interrupt.check()?;
        let arrived_chunks = sampler.sample();
        if arrived_chunks != last.0 {
            last = (arrived_chunks, Instant::now());
        } else if last.1.elapsed() > patience {
            let what = format!(
                "nothing has arrived for {} s, with {arrived_chunks} of {} chunks there",
                patience.as_secs(),
                scenario.chunks()
            );
            return Err(Failure::new(Exit::Unreachable, what));
        }
        let elapsed = live.started.get().map_or(Duration::ZERO, Instant::elapsed);
        watch(&Standing {
            elapsed,
            arrived_chunks,
            sender: live.sender(),
        });
    }
    Ok(())
}
