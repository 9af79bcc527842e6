//! One end of a queue pair. The system tests control it through its standard streams.
//!
//! It writes `info HEX`, its queue-pair information, and reads the peer's information as one line
//! of HEX. It moves the messages that its command line names, reports how each ended, and answers
//! its peer until its standard input ends. Then it writes its counters. The information is not
//! encrypted, because a test controls both ends.

use std::error::Error;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use clap::Parser;
use farwrite::{
    DropReason, Endpoint, MemoryRegion, QpInfo, QpOptions, QueuePair, RateControl, RecvHandle,
    SchemeName, SendHandle, SendOptions, UdpConfig, UdpFabric,
};

/// Maximum time between two checks of the standard input.
const MAX_WAIT: Duration = Duration::from_millis(10);

/// One end of a queue pair.
#[derive(Parser)]
struct Args {
    /// Address to bind; further channels take the next port numbers.
    #[arg(long)]
    bind: SocketAddr,
    /// Address to tell the peer, where the bound one is a wildcard.
    #[arg(long)]
    advertise: Option<IpAddr>,
    /// UDP flows to spread packets over.
    #[arg(long, default_value_t = 1)]
    channels: u8,
    /// Payload bytes of a packet.
    #[arg(long, default_value_t = 4096)]
    mtu: u32,
    /// Wire bits a second.
    #[arg(long, default_value_t = 1_000_000_000)]
    rate: u64,
    /// How losses are repaired.
    #[arg(long, default_value = "sr-nack")]
    scheme: SchemeName,
    /// User immediate of the first message sent; the next has one more, and so on.
    #[arg(long)]
    immediate: Option<u32>,
    /// A file to send as a message.
    #[arg(long)]
    send: Vec<PathBuf>,
    /// A file to write a received message to, and the bytes of its buffer: PATH=BYTES.
    #[arg(long)]
    recv: Vec<Target>,
}

/// The destination of a message.
#[derive(Clone)]
struct Target {
    path: PathBuf,
    bytes: usize,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, bytes) = text.rsplit_once('=').ok_or("no = between path and bytes")?;
        let bytes = bytes.parse().map_err(|e| format!("{bytes:?}: {e}"))?;
        let path = path.into();
        Ok(Self { path, bytes })
    }
}

fn main() {
    if let Err(e) = run(&Args::parse()) {
        eprintln!("error: {e}");
        std::process::exit(1);
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let mut config = UdpConfig::new(args.bind);
    config.ports = args.channels.into();
    let mut endpoint = Endpoint::over_udp(&config)?;
    let mut options = QpOptions {
        rate_control: RateControl::Fixed {
            rate_bps: args.rate,
        },
        initial_rtt: Duration::from_millis(20),
        expected_scheme: args.scheme.tag(),
        ..QpOptions::default()
    };
    options.sdr.mtu = args.mtu;
    options.sdr.channels = args.channels;
    let most_packets = 1 << options.sdr.split.offset_bits;
    options.sdr.max_message_bytes = u64::from(args.mtu) * most_packets;
    let qp = endpoint.create_qp(options)?;
    show_info(&endpoint, qp, args.advertise)?;

    let lines = input();
    let peer = QpInfo::decode(&unhex(&lines.recv()?)?)?;
    endpoint.connect_qp(qp, &peer)?;
    let mut work = Work::post(&mut endpoint, qp, args)?;
    while !matches!(lines.try_recv(), Err(TryRecvError::Disconnected)) {
        endpoint.poll_and_wait(MAX_WAIT)?;
        // A queue pair that is broken says why.
        endpoint.qp_stats(qp)?;
        work.settle(&endpoint)?;
    }
    show_counters(&endpoint, qp)
}

/// The messages that have not ended.
struct Work {
    sends: Vec<(PathBuf, SendHandle)>,
    recvs: Vec<(PathBuf, MemoryRegion, RecvHandle)>,
}

impl Work {
    fn post(
        endpoint: &mut Endpoint<UdpFabric>,
        qp: QueuePair,
        args: &Args,
    ) -> Result<Self, Box<dyn Error>> {
        let mut recvs = Vec::new();
        for target in &args.recv {
            let region = endpoint.register(vec![0; target.bytes])?;
            let handle = endpoint.post_recv(qp, region.whole())?;
            recvs.push((target.path.clone(), region, handle));
        }
        let scheme = args.scheme.tag();
        let mut sends = Vec::new();
        for (path, more) in args.send.iter().zip(0..) {
            let region = endpoint.register(std::fs::read(path)?)?;
            let immediate = args.immediate.map(|first: u32| first.wrapping_add(more));
            let options = SendOptions {
                scheme,
                immediate,
                ..SendOptions::default()
            };
            let handle = endpoint.post_send(qp, region.whole(), options)?;
            sends.push((path.clone(), handle));
        }
        Ok(Self { sends, recvs })
    }

    /// Says what has ended, and writes what has arrived.
    fn settle(&mut self, endpoint: &Endpoint<UdpFabric>) -> Result<(), Box<dyn Error>> {
        for (path, handle) in self.sends.extract_if(.., |(_, h)| h.outcome().is_some()) {
            let outcome = handle.outcome();
            say(&format!("sent {} {outcome:?}", path.display()))?;
        }
        for (path, region, handle) in self.recvs.extract_if(.., |(_, _, h)| h.outcome().is_some()) {
            let length = usize::try_from(handle.length().unwrap_or(0))?;
            std::fs::write(&path, &endpoint.memory(region)?[..length])?;
            let (outcome, immediate) = (handle.outcome(), handle.immediate());
            say(&format!(
                "received {} {outcome:?} {immediate:?}",
                path.display()
            ))?;
        }
        Ok(())
    }
}

fn show_info(
    endpoint: &Endpoint<UdpFabric>,
    qp: QueuePair,
    advertise: Option<IpAddr>,
) -> Result<(), Box<dyn Error>> {
    let mut info = endpoint.qp_info(qp)?;
    if let Some(ip) = advertise {
        info.control.set_ip(ip);
        info.channels.iter_mut().for_each(|addr| addr.set_ip(ip));
    }
    let numbers = info.data_qpns.iter().flatten().map(u32::to_string);
    let numbers: Vec<_> = numbers.collect();
    say(&format!("qpns {} {}", info.control_qpn, numbers.join(" ")))?;
    say(&format!("info {}", hex(&info.encode()?)))
}

fn show_counters(endpoint: &Endpoint<UdpFabric>, qp: QueuePair) -> Result<(), Box<dyn Error>> {
    let (counters, stats) = (endpoint.counters(), endpoint.qp_stats(qp)?);
    let granted = endpoint.fabric().carrier().granted(0);
    let dropped = DropReason::ALL.map(|why| format!("{why:?} {}", counters.dropped(why)));
    say(&format!(
        "counters sent {} received {} refused {} repeated {} rebuilt {} gso {} gro {} {}",
        counters.sent_packets,
        counters.received_packets,
        stats.refused_controls,
        stats.sender.retransmitted_chunks,
        stats.rebuilt_chunks,
        u8::from(granted.gso),
        u8::from(granted.gro),
        dropped.join(" "),
    ))
}

/// Starts a thread that reads the standard input. Returns a channel of its lines, which ends with
/// the input.
fn input() -> Receiver<String> {
    let (to, lines) = channel();
    std::thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

fn say(line: &str) -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    if !text.is_ascii() {
        return Err("not hexadecimal".into());
    }
    let pair = |i| Ok(u8::from_str_radix(text.get(i..i + 2).ok_or("odd")?, 16)?);
    (0..text.len()).step_by(2).map(pair).collect()
}
