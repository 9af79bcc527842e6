//! Where the measured queue pairs are: on the endpoint of the connection, or on one of their own if an end has
//! an RDMA device, several channels, or threads that receive or send.

use std::net::SocketAddr;

use farwrite::fabric::udp::source_for;
use farwrite::{
    Endpoint, ExposedRegion, Fabric, MemoryRegion, ProgressThread, QpInfo, QpOptions, QueuePair,
    UdpConfig, UdpFabric,
};
use farwrite_connection::{Connection, OpenedQueuePair};
use farwrite_transfer::{Cancel, VerbsConfig, open_device, open_for_device};
use farwrite_verbs::AnyFabric;

use super::args::PerfArgs;
use super::control::Setting;
use super::tasks::{Shared, Work};
use super::{SLICE, is_alive};
use crate::exit::{Exit, Failure, OrExit};

/// The queue pairs of a measurement. They end when this is dropped.
pub(super) struct Data {
    connection: Connection,
    pub(super) pairs: Vec<QueuePair>,
    thread: Thread,
}

/// The thread of the endpoint of queue pairs.
enum Thread {
    /// That of the connection, whose packets are sealed. These are open.
    OfConnection { _pairs: Vec<OpenedQueuePair> },
    /// That of an [`Apart`], whose packets are sealed unless an end has a device.
    Apart(ProgressThread<AnyFabric>),
}

/// What carries the data of an [`Apart`].
pub(super) enum Carrier<'a> {
    Device(&'a VerbsConfig),
    /// A socket that the device of the other end can reach.
    SocketForDevice,
    /// A socket for each channel. The device of neither end takes part.
    Sockets {
        channels: u8,
    },
}

/// An endpoint for the data alone.
pub(super) struct Apart {
    connection: Connection,
    thread: ProgressThread<AnyFabric>,
    max_mtu: u32,
    pairs: Vec<QueuePair>,
}

/// Fails if the fabric that carries the data has failed, so that the peer cannot be reached.
fn reached<T>(called: Result<T, farwrite::Error>) -> Result<T, Failure> {
    called.or_exit(Exit::Unreachable, "measuring")
}

/// Runs a call with the thread of either kind.
macro_rules! on_thread {
    ($data:expr, |$thread:ident| $call:expr) => {
        match &$data.thread {
            Thread::OfConnection { .. } => {
                let $thread = $data.connection.thread();
                $call
            }
            Thread::Apart($thread) => $call,
        }
    };
}

impl Data {
    /// Queue pairs of the connection, whose endpoint gets the threads that code.
    pub(super) fn connected(
        args: &PerfArgs,
        connection: &Connection,
        opened: Vec<OpenedQueuePair>,
    ) -> Result<Self, Failure> {
        let threads = args.coding_threads;
        let started = connection
            .thread()
            .call(move |endpoint| endpoint.code_on(threads));
        reached(started.and_then(|started| started))?;
        Ok(Self {
            connection: connection.clone(),
            pairs: opened.iter().map(OpenedQueuePair::queue_pair).collect(),
            thread: Thread::OfConnection { _pairs: opened },
        })
    }

    /// Payload bytes of a packet, and whether packets are sealed. All queue pairs have the same.
    pub(super) fn packets(&self) -> Result<(u32, bool), Failure> {
        let qp = self.pairs[0];
        let found = on_thread!(self, |thread| thread.call(move |endpoint| {
            let mtu = endpoint.qp_info(qp).map(|info| info.config.mtu);
            mtu.and_then(|mtu| Ok((mtu, endpoint.cipher(qp)?.is_some())))
        }));
        reached(found)?.or_exit(Exit::Other, "measuring")
    }

    pub(super) fn register(&self, bytes: u64, fill: u8) -> Result<MemoryRegion, Failure> {
        let buffer = vec![fill; usize::try_from(bytes).unwrap_or(usize::MAX)];
        let region = on_thread!(self, |thread| thread
            .call(move |endpoint| endpoint.register(buffer)));
        reached(region)?.or_exit(Exit::Other, "making a buffer")
    }

    /// Lets the peer read a region over a queue pair.
    pub(super) fn expose(
        &self,
        qp: QueuePair,
        region: MemoryRegion,
    ) -> Result<ExposedRegion, Failure> {
        let exposed = on_thread!(self, |thread| thread
            .call(move |endpoint| endpoint.expose(qp, region.whole())));
        reached(exposed)?.or_exit(Exit::Other, "making a buffer")
    }

    /// Starts work on the thread of the endpoint.
    pub(super) fn start<W: Work + 'static>(&self, work: &Shared<W>) -> Result<(), Failure> {
        let started = on_thread!(self, |thread| thread.add_task(work.task()));
        started.or_exit(Exit::Other, "measuring").map(drop)
    }

    /// Makes the work look at what has changed.
    pub(super) fn wake(&self) {
        on_thread!(self, |thread| thread.waker().wake());
    }

    /// Waits until `check` has a value, which can change with each poll of the endpoint.
    pub(super) fn wait<T>(
        &self,
        cancel: &Cancel,
        mut check: impl FnMut() -> Option<Result<T, Failure>>,
    ) -> Result<T, Failure> {
        loop {
            let waited = on_thread!(self, |thread| thread.wait(SLICE, &mut check));
            match reached(waited)? {
                Some(result) => return result,
                None => is_alive(&self.connection, cancel)?,
            }
        }
    }

    /// Checks that the fabric has not failed.
    pub(super) fn check(&self) -> Result<(), Failure> {
        reached(on_thread!(self, |thread| thread.call(|_| ())))
    }
}

impl Apart {
    /// Opens a device or sockets, and starts the threads of the endpoint.
    pub(super) fn open(
        args: &PerfArgs,
        connection: &Connection,
        carrier: &Carrier<'_>,
    ) -> Result<Self, Failure> {
        let peer = connection.peer_addr();
        let peer = peer.ok_or_else(|| Failure::new(Exit::Unreachable, "the connection is over"))?;
        // The peer expects the data at the address where it has found this end.
        let local = match args.bind.is_unspecified() {
            true => {
                let what = format_args!("asking for a route to {peer}");
                source_for(peer).or_exit(Exit::Unreachable, what)?
            }
            false => args.bind,
        };
        let mut endpoint = match carrier {
            Carrier::Device(device) => open_device(device, local)?,
            Carrier::SocketForDevice => open_for_device(local)?,
            &Carrier::Sockets { channels } => {
                let config = UdpConfig {
                    ports: channels.into(),
                    ..UdpConfig::new(SocketAddr::new(local, 0))
                };
                let bound = UdpFabric::bind(&config).map_err(farwrite::Error::from);
                let opened = bound.and_then(|bound| Endpoint::over(AnyFabric::from(bound)));
                opened.or_exit(Exit::Other, "opening sockets")?
            }
        };
        let max_mtu = endpoint.fabric().capabilities().max_mtu;
        let thread = || {
            endpoint.code_on(args.coding_threads)?;
            if args.receive_threads {
                endpoint.start_workers()?;
            }
            endpoint.start_thread()
        };
        let thread = thread().or_exit(Exit::Other, "starting threads")?;
        Ok(Self {
            connection: connection.clone(),
            thread,
            max_mtu,
            pairs: Vec::new(),
        })
    }

    /// The largest packets that this end and the path carry, up to those of the setting.
    pub(super) fn mtu(&self, setting: &Setting) -> u32 {
        let path = self.connection.mtu();
        setting.mtu.min(self.max_mtu).min(path) & !3
    }

    /// Makes the queue pairs of a setting. Returns what the peer needs to connect to them.
    pub(super) fn create(&mut self, setting: &Setting) -> Result<Vec<Vec<u8>>, Failure> {
        let options = setting.options()?;
        let mut infos = Vec::new();
        for _ in 0..setting.queue_pairs {
            let (qp, info) = self.create_one(options.clone())?;
            self.pairs.push(qp);
            infos.push(info);
        }
        Ok(infos)
    }

    fn create_one(&self, options: QpOptions) -> Result<(QueuePair, Vec<u8>), Failure> {
        let made = self.thread.call(|endpoint| {
            let qp = endpoint.create_qp(options)?;
            Ok((qp, endpoint.qp_info(qp)?))
        });
        let made: Result<_, farwrite::Error> = made.and_then(|made| made);
        let what = "making a queue pair";
        let (qp, info) = made.or_exit(Exit::Other, what)?;
        Ok((qp, info.encode().or_exit(Exit::Other, what)?))
    }

    /// Connects all queue pairs to those of the peer.
    pub(super) fn connect(self, theirs: &[Vec<u8>]) -> Result<Data, Failure> {
        let mismatch = |why: &dyn std::fmt::Display| {
            Failure::new(Exit::Mismatch, format_args!("the other end: {why}"))
        };
        if theirs.len() != self.pairs.len() {
            let (got, want) = (theirs.len(), self.pairs.len());
            return Err(mismatch(&format_args!(
                "{got} queue pairs, {want} expected"
            )));
        }
        let peer = self
            .connection
            .peer_addr()
            .map(|addr| addr.ip().to_canonical());
        for (&qp, theirs) in self.pairs.iter().zip(theirs) {
            let theirs = QpInfo::decode(theirs).map_err(|error| mismatch(&error))?;
            let is_elsewhere = |addr: &&SocketAddr| Some(addr.ip()) != peer;
            let elsewhere = theirs.channels.iter().find(is_elsewhere);
            let elsewhere = elsewhere.or(Some(&theirs.control).filter(is_elsewhere));
            if let Some(&other) = elsewhere {
                return Err(mismatch(&format_args!(
                    "it is not at {} seen from here: address translation is supported neither before an \
                     RDMA device nor with --channels or --receive-threads",
                    other.ip()
                )));
            }
            let connected = self
                .thread
                .call(move |endpoint| endpoint.connect_qp(qp, &theirs));
            connected
                .and_then(|connected| connected)
                .or_exit(Exit::Unreachable, "connecting")?;
        }
        Ok(Data {
            connection: self.connection,
            pairs: self.pairs,
            thread: Thread::Apart(self.thread),
        })
    }
}
