//! A software RDMA NIC with one reliable connection, in real time on a network interface, for the
//! system tests. It obeys PFC frames.
//!
//! It executes its command line, writes `done`, and answers its peer until its standard input ends.
//! Then it writes its counters as JSON. Its interface needs no address, because the NIC sends and
//! receives whole Ethernet frames.

mod cable;
mod flood;
mod frame;
mod host;
mod ip;

use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use farwrite_net::{NodeId, Payload};
use farwrite_rc::{Completion, QpConfig, Remote, Request};
use serde_json::json;

use crate::cable::Cable;
use crate::frame::Ethernet;
use crate::host::Host;

/// The key of the memory that a peer reads or writes.
const RKEY: u32 = 1;
/// Maximum time between two checks of the standard input.
const LOOK: Duration = Duration::from_millis(10);

/// One end of a reliable connection.
#[derive(Parser)]
struct Args {
    /// The network interface.
    #[arg(long)]
    interface: String,
    /// This end: node N has the address 10.0.0.(N + 1).
    #[arg(long)]
    node: u32,
    /// The other end.
    #[arg(long)]
    peer: u32,
    /// Its Ethernet address.
    #[arg(long)]
    peer_mac: Mac,
    /// A VLAN to be in.
    #[arg(long)]
    vlan: Option<u16>,
    /// Send and receive over IPv6: node 0 has the address `fd77::10.0.0.1`, and so on.
    #[arg(long)]
    ipv6: bool,
    /// Priority that obeys PFC frames.
    #[arg(long, default_value_t = 3)]
    priority: u8,
    /// Payload bytes of a packet.
    #[arg(long, default_value_t = 1024)]
    mtu: u32,
    /// Packets that may be unacknowledged.
    #[arg(long, default_value_t = 256)]
    window: u32,
    /// Packets of which one asks for an acknowledgement.
    #[arg(long, default_value_t = 16)]
    ack_every: u32,
    /// Bits a second of the cable behind this NIC; without it, packets leave as fast as possible.
    #[arg(long)]
    cable_bps: Option<NonZeroU64>,
    /// Microseconds that packets of this NIC take to pass the cable.
    #[arg(long, default_value_t = 0)]
    cable_us: u64,
    /// Time without an acknowledgement after which packets are repeated.
    #[arg(long, default_value_t = 100)]
    timeout_ms: u64,
    /// Bytes of a message.
    #[arg(long, default_value_t = 1 << 18)]
    message: u32,
    /// A file to SEND, message by message.
    #[arg(long)]
    send: Option<PathBuf>,
    /// A file to WRITE into the peer's memory, message by message.
    #[arg(long)]
    write: Option<PathBuf>,
    /// Messages of these files that are under way at a time.
    #[arg(long, default_value_t = usize::MAX)]
    outstanding: usize,
    /// A file for what is received, and its bytes: PATH=BYTES.
    #[arg(long)]
    recv: Option<Target>,
    /// A file that the peer may READ.
    #[arg(long)]
    serve: Option<PathBuf>,
    /// A file for the memory that the peer WRITEs, at the end, and its bytes: PATH=BYTES.
    #[arg(long, conflicts_with = "serve")]
    expose: Option<Target>,
    /// Only send packets of a message for this long, as fast as possible and without acknowledgements.
    #[arg(long)]
    flood_ms: Option<u64>,
    /// A file for what is read of the peer's memory, and its bytes: PATH=BYTES.
    #[arg(long)]
    read: Option<Target>,
}

#[derive(Clone)]
struct Mac([u8; 6]);

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = text.split(':').map(|two| u8::from_str_radix(two, 16));
        let bytes: Result<Vec<_>, _> = bytes.collect();
        let bytes = bytes.ok().and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(Self)
            .ok_or_else(|| "want six bytes in hexadecimal".to_owned())
    }
}

/// Where bytes go.
#[derive(Clone)]
struct Target {
    path: PathBuf,
    bytes: u32,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, bytes) = text.rsplit_once('=').ok_or("want PATH=BYTES")?;
        let bytes = bytes.parse().map_err(|_| "want PATH=BYTES")?;
        let path = path.into();
        Ok(Self { path, bytes })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let ethernet = Ethernet {
        peer: args.peer_mac.0,
        vlan: args.vlan,
        priority: args.priority,
        ipv6: args.ipv6,
    };
    let config = QpConfig {
        mtu_bytes: args.mtu,
        window_packets: args.window,
        ack_every_packets: args.ack_every,
        ack_timeout_ns: args.timeout_ms * 1_000_000,
        retry_limit: Some(255),
        ..QpConfig::new(host::QPN)
    };
    let ends = [NodeId(args.node), NodeId(args.peer)];
    let cable = Cable::new(args.cable_bps, args.cable_us * 1000);
    let mut host = Host::open(&args.interface, ends, ethernet, cable, config)?;
    if let Some(ms) = args.flood_ms {
        println!("ready");
        let sent = flood::flood(&host, args.mtu, Duration::from_millis(ms))?;
        println!("{}", json!({ "sent": sent }));
        return Ok(());
    }
    let mut work = Work::post(&args, &mut host)?;
    println!("ready");
    let input = watch_input();
    let mut is_done = false;
    loop {
        host.turn(LOOK)?;
        while let Some(completion) = host.pair.poll_completion() {
            work.take(completion, &mut host)?;
        }
        if work.left == 0 && !is_done {
            work.save(&args)?;
            println!("done");
            io::stdout().flush()?;
            is_done = true;
        }
        if input.try_recv() == Err(TryRecvError::Disconnected) {
            break;
        }
    }
    if let Some(target) = &args.expose {
        fs::write(&target.path, host.memory.bytes(RKEY).unwrap_or_default())?;
    }
    let counters = host.pair.counters();
    println!(
        "{}",
        json!({
            "sent": counters.sent,
            "repeated": counters.repeated,
            "timeouts": counters.timeouts,
            "out_of_order": counters.out_of_order,
            "duplicates": counters.duplicates,
            "paused": host.paused,
            "damaged": host.damaged,
            "completion_us": work.completion_us,
        })
    );
    Ok(())
}

/// Returns a channel that disconnects when the standard input ends.
fn watch_input() -> Receiver<()> {
    let (keep, input) = channel();
    thread::spawn(move || {
        let _keep = keep;
        let mut sink = Vec::new();
        // However it ends, it has ended.
        let _ = io::stdin().read_to_end(&mut sink);
    });
    input
}

/// The messages of a file: their offsets and bytes.
fn pieces(
    path: &Path,
    message_bytes: u32,
) -> io::Result<impl Iterator<Item = (u64, Payload)> + use<>> {
    let data = fs::read(path)?;
    let pieces = data.chunks(message_bytes as usize);
    let pieces: Vec<_> = pieces.map(|piece| Payload::Bytes(piece.into())).collect();
    let offsets = (0..).step_by(message_bytes as usize);
    Ok(offsets.zip(pieces))
}

/// The requests of the command line, and their results.
#[derive(Default)]
struct Work {
    left: usize,
    /// Messages that are not posted yet.
    waiting: VecDeque<Request>,
    /// When each message that is under way was posted, and the times from then to the acknowledgement of the others.
    posted: VecDeque<Instant>,
    completion_us: Vec<u64>,
    next_id: u64,
    received: Vec<u8>,
    read: Vec<u8>,
}

impl Work {
    fn post(args: &Args, host: &mut Host) -> Result<Self, Box<dyn Error>> {
        let mut work = Self::default();
        if let Some(path) = &args.serve {
            host.memory.register(RKEY, 0, fs::read(path)?)?;
        }
        if let Some(target) = &args.recv {
            for _ in 0..target.bytes.div_ceil(args.message) {
                let id = work.id();
                host.pair.post_receive(id, args.message)?;
            }
        }
        if let Some(target) = &args.expose {
            host.memory
                .register(RKEY, 0, vec![0; target.bytes as usize])?;
        }
        if let Some(path) = &args.send {
            let send = |(_, data)| Request::Send { data, imm: None };
            work.waiting.extend(pieces(path, args.message)?.map(send));
        }
        if let Some(path) = &args.write {
            let write = |(addr, data)| Request::Write {
                data,
                to: Remote { rkey: RKEY, addr },
                imm: None,
            };
            work.waiting.extend(pieces(path, args.message)?.map(write));
        }
        for _ in 0..args.outstanding.min(work.waiting.len()) {
            work.post_next(host)?;
        }
        if let Some(target) = &args.read {
            for addr in (0..target.bytes).step_by(args.message as usize) {
                let bytes = args.message.min(target.bytes - addr);
                let addr = addr.into();
                let from = Remote { rkey: RKEY, addr };
                let id = work.id();
                host.pair.post(id, Request::Read { from, bytes })?;
            }
        }
        Ok(work)
    }

    /// The number of one more request.
    fn id(&mut self) -> u64 {
        self.left += 1;
        self.next_id += 1;
        self.next_id
    }

    fn post_next(&mut self, host: &mut Host) -> Result<(), Box<dyn Error>> {
        if let Some(request) = self.waiting.pop_front() {
            let id = self.id();
            host.pair.post(id, request)?;
            self.posted.push_back(Instant::now());
        }
        Ok(())
    }

    fn take(&mut self, completion: Completion, host: &mut Host) -> Result<(), Box<dyn Error>> {
        match completion {
            Completion::Acknowledged { .. } => {
                // Messages complete in the order in which they were posted.
                let us = self.posted.pop_front().map(|at| at.elapsed().as_micros());
                let us = us.and_then(|us| u64::try_from(us).ok());
                self.completion_us.extend(us);
                self.post_next(host)?;
            }
            Completion::Received {
                data: Payload::Bytes(bytes),
                ..
            } => self.received.extend_from_slice(&bytes),
            Completion::Read {
                data: Payload::Bytes(bytes),
                ..
            } => self.read.extend_from_slice(&bytes),
            other => return Err(format!("unexpected: {other:?}").into()),
        }
        self.left -= 1;
        Ok(())
    }

    fn save(&self, args: &Args) -> io::Result<()> {
        for (target, bytes) in [(&args.recv, &self.received), (&args.read, &self.read)] {
            if let Some(target) = target {
                fs::write(&target.path, bytes)?;
            }
        }
        Ok(())
    }
}
