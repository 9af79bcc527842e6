//! Moves messages between two machines, over an RDMA device or UDP sockets at each end:
//!
//! ```text
//! cargo run --release -p farwrite-verbs --example move -- recv --meet 0.0.0.0:7000 --device mlx5_0
//! cargo run --release -p farwrite-verbs --example move -- send --meet OTHER:7000 --udp 10.0.0.2:4791
//! ```
//!
//! The ends meet over TCP and tell each other where to write. The connection is neither encrypted nor
//! authenticated, so use this in a network that you trust. The receiver checks every byte. Each end
//! prints one line with what it counted, as JSON.
#![cfg(target_os = "linux")]

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use farwrite::fabric::udp::{SocketConfig, UdpConfig, UdpFabric};
use farwrite::{
    Endpoint, Outcome, QpConfig, QpInfo, QpOptions, QueuePair, RateControl, RealTime, RecvOptions,
    SchemeName, SendOptions,
};
use farwrite_verbs::{VerbsConfig, VerbsFabric};

const USAGE: &str = "usage: move send|recv --meet ADDRESS:PORT (--device NAME [--address IP] | --udp ADDRESS:4791)
            [--scheme NAME] [--bytes N] [--messages N] [--mtu N] [--rate BITS-PER-SECOND]
            [--memory-windows true|false]
Both ends need the same --scheme, --bytes, --messages and --mtu. An end with a device talks to port 4791 alone, so a UDP
end binds that port. --memory-windows chooses what keys of a device are: without it, the device is tried.";

/// The command line.
struct Options {
    sends: bool,
    meet: String,
    device: Option<String>,
    address: Option<IpAddr>,
    udp: Option<SocketAddr>,
    scheme: SchemeName,
    bytes: usize,
    messages: usize,
    mtu: u32,
    rate_bps: Option<u64>,
    memory_windows: Option<bool>,
}

impl Options {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let mut args = std::env::args().skip(1);
        let sends = match args.next().as_deref() {
            Some("send") => true,
            Some("recv") => false,
            _ => return Err(USAGE.into()),
        };
        let mut options = Self {
            sends,
            meet: String::new(),
            device: None,
            address: None,
            udp: None,
            scheme: SchemeName::SrNack,
            bytes: 4 << 20,
            messages: 4,
            mtu: 1024,
            rate_bps: None,
            memory_windows: None,
        };
        while let Some(name) = args.next() {
            let value = args
                .next()
                .ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
            match name.as_str() {
                "--meet" => options.meet = value,
                "--device" => options.device = Some(value),
                "--address" => options.address = Some(value.parse()?),
                "--udp" => options.udp = Some(value.parse()?),
                "--scheme" => options.scheme = value.parse()?,
                "--bytes" => options.bytes = value.parse()?,
                "--messages" => options.messages = value.parse()?,
                "--mtu" => options.mtu = value.parse()?,
                "--rate" => options.rate_bps = Some(value.parse()?),
                "--memory-windows" => options.memory_windows = Some(value.parse()?),
                _ => return Err(format!("{name} is unknown\n{USAGE}").into()),
            }
        }
        Ok(options)
    }

    fn queue_pair(&self) -> QpOptions {
        QpOptions {
            sdr: QpConfig {
                mtu: self.mtu,
                max_message_bytes: 1 << 28,
                ..QpConfig::default()
            },
            rate_control: match self.rate_bps {
                None => RateControl::default(),
                Some(rate_bps) => RateControl::Fixed { rate_bps },
            },
            expected_scheme: self.scheme.tag(),
            ..QpOptions::default()
        }
    }
}

/// The bytes of a message.
fn message(number: usize, bytes: usize) -> Vec<u8> {
    let words =
        (0_u64..).map(|word| (word ^ (number as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).take(bytes).collect()
}

/// Connects a queue pair to that of the other end.
fn connect<F: RealTime>(
    endpoint: &mut Endpoint<F>,
    options: &Options,
    peer: &mut TcpStream,
) -> Result<QueuePair, Box<dyn Error>> {
    let qp = endpoint.create_qp(options.queue_pair())?;
    let info = endpoint.qp_info(qp)?.encode()?;
    peer.write_all(&u32::try_from(info.len())?.to_le_bytes())?;
    peer.write_all(&info)?;
    let mut length = [0; 4];
    peer.read_exact(&mut length)?;
    let mut info = vec![0; usize::try_from(u32::from_le_bytes(length).min(1 << 20))?];
    peer.read_exact(&mut info)?;
    endpoint.connect_qp(qp, &QpInfo::decode(&info)?)?;
    // Both ends are connected before the first packet.
    peer.write_all(b"!")?;
    peer.read_exact(&mut [0])?;
    Ok(qp)
}

fn send<F: RealTime>(
    endpoint: &mut Endpoint<F>,
    qp: QueuePair,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let mut sends = Vec::new();
    for number in 0..options.messages {
        let region = endpoint.register(message(number, options.bytes))?;
        let with = SendOptions {
            scheme: options.scheme.tag(),
            ..SendOptions::default()
        };
        sends.push((region, endpoint.post_send(qp, region.whole(), with)?));
    }
    endpoint.run_until(|_| sends.iter().all(|(_, send)| send.outcome().is_some()))?;
    for (region, send) in sends {
        let outcome = send.outcome();
        if outcome != Some(Outcome::Whole) {
            return Err(format!("a message ended as {outcome:?}").into());
        }
        endpoint.deregister(region)?;
    }
    Ok(())
}

fn receive<F: RealTime>(
    endpoint: &mut Endpoint<F>,
    qp: QueuePair,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let mut receives = Vec::new();
    for _ in 0..options.messages {
        let region = endpoint.register(vec![0_u8; options.bytes])?;
        let terms = RecvOptions {
            scheme: Some(options.scheme.tag()),
            exact_length: true,
            ..RecvOptions::default()
        };
        receives.push((region, endpoint.post_recv_with(qp, region.whole(), terms)?));
    }
    endpoint.run_until(|_| {
        receives
            .iter()
            .all(|(_, receive)| receive.outcome().is_some())
    })?;
    for (number, (region, receive)) in receives.into_iter().enumerate() {
        let outcome = receive.outcome();
        if outcome != Some(Outcome::Whole) {
            return Err(format!("message {number} ended as {outcome:?}").into());
        }
        if *endpoint.deregister(region)? != message(number, options.bytes) {
            return Err(format!("message {number} has wrong bytes").into());
        }
    }
    Ok(())
}

/// Runs one end over any fabric.
fn run<F: RealTime>(mut endpoint: Endpoint<F>, options: &Options) -> Result<(), Box<dyn Error>> {
    let mut peer = meet(options)?;
    let qp = connect(&mut endpoint, options, &mut peer)?;
    let start = Instant::now();
    match options.sends {
        true => send(&mut endpoint, qp, options)?,
        false => receive(&mut endpoint, qp, options)?,
    }
    let seconds = start.elapsed().as_secs_f64();
    // An end keeps answering until the other one is done.
    peer.write_all(b".")?;
    peer.set_nonblocking(true)?;
    let mut is_done = false;
    while !is_done {
        endpoint.poll_and_wait(Duration::from_millis(10))?;
        is_done = match peer.read(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            other => other.map(|_| true)?,
        };
    }
    let (stats, counters) = (endpoint.qp_stats(qp)?, endpoint.counters());
    println!(
        "{{\"bytes\": {}, \"seconds\": {seconds:.3}, \"sent_packets\": {}, \"received_packets\": {}, \
         \"retransmitted_chunks\": {}, \"rebuilt_chunks\": {}, \"late_packets\": {}, \"windows\": \"{}\"}}",
        options.bytes * options.messages,
        counters.sent_packets,
        counters.received_packets,
        stats.sender.retransmitted_chunks,
        stats.rebuilt_chunks,
        stats.late_packets,
        endpoint.fabric().capabilities().window_keys,
    );
    endpoint.destroy_qp(qp)?;
    Ok(())
}

/// Connects to the other end, or waits for it.
fn meet(options: &Options) -> Result<TcpStream, Box<dyn Error>> {
    if !options.sends {
        return Ok(TcpListener::bind(&options.meet)?.accept()?.0);
    }
    let give_up = Instant::now() + Duration::from_secs(20);
    loop {
        match TcpStream::connect(&options.meet) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > give_up => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn work() -> Result<(), Box<dyn Error>> {
    let options = Options::parse()?;
    if options.meet.is_empty() {
        return Err(USAGE.into());
    }
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)?;
    match (&options.device, options.udp) {
        (Some(device), None) => {
            let config = VerbsConfig {
                addresses: options.address.into_iter().collect(),
                memory_windows: options.memory_windows,
                ..VerbsConfig::new(device)
            };
            run(Endpoint::new(VerbsFabric::open(&config)?, seed), &options)
        }
        (None, Some(bind)) => {
            let config = UdpConfig {
                socket: SocketConfig::new(bind),
                ports: 1,
            };
            run(Endpoint::new(UdpFabric::bind(&config)?, seed), &options)
        }
        _ => Err(USAGE.into()),
    }
}

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("move: {error}");
            ExitCode::FAILURE
        }
    }
}
