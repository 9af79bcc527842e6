//! One end of a queue pair. It receives messages, or sends them and measures their times.
//! `lab/paths/messages.py` runs two of these programs, and passes the queue-pair information
//! between them.

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use farwrite::{
    Endpoint, Outcome, QpConfig, QpInfo, QpOptions, QueuePair, RecvHandle, SchemeName, SendOptions,
    UdpConfig, UdpFabric,
};

type Failure = Box<dyn Error>;

/// Longest interval between two reads of the standard input.
const MAX_WAIT: Duration = Duration::from_millis(5);
/// Number of buffers posted ahead.
const POSTED: usize = 2;

/// Receives messages, or sends them.
#[derive(Parser)]
struct Args {
    role: Role,
    /// This end's address.
    #[arg(long)]
    bind: SocketAddr,
    /// Length of a message in bytes.
    #[arg(long)]
    bytes: usize,
    /// Number of messages, sent one after the other.
    #[arg(long)]
    messages: usize,
    /// Payload bytes of a packet.
    #[arg(long, default_value_t = 8192)]
    mtu: u32,
    /// Milliseconds between the end of a message and the next one. In 150, the next clear-to-send
    /// arrives.
    #[arg(long, default_value_t = 150)]
    pause_ms: u64,
    /// The repair scheme.
    #[arg(long, default_value = "sr-nack", value_parser = SchemeName::parse_exact)]
    scheme: SchemeName,
    /// Sockets, on which the packets of the queue pair take turns.
    #[arg(long, default_value_t = 1)]
    channels: u16,
    /// Receive on threads, one for each channel.
    #[arg(long)]
    receive_threads: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    /// Receives messages until standard input ends.
    Take,
    /// Sends messages, and prints the time of each in seconds.
    Send,
}

fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let mut endpoint = Endpoint::over_udp(&UdpConfig {
        ports: args.channels,
        ..UdpConfig::new(args.bind)
    })?;
    if args.receive_threads {
        endpoint.start_workers()?;
    }
    let qp = endpoint.create_qp(QpOptions {
        sdr: QpConfig {
            mtu: args.mtu,
            slots: 4,
            max_message_bytes: 2 * args.bytes as u64,
            ..QpConfig::default()
        },
        expected_scheme: args.scheme.tag(),
        ..QpOptions::default()
    })?;
    // Write to the memory now, so that page faults do not count for the first messages.
    let memory = endpoint.register(vec![1; args.bytes])?;
    println!("{}", hex(&endpoint.qp_info(qp)?.encode()?));
    let lines = input();
    let peer = QpInfo::decode(&unhex(&lines.recv()?)?)?;
    endpoint.connect_qp(qp, &peer)?;
    match args.role {
        Role::Take => {
            let mut posted: Vec<RecvHandle> = Vec::new();
            let mut left = args.messages;
            while !ended(&lines) {
                while posted.len() < POSTED.min(left) {
                    posted.push(endpoint.post_recv(qp, memory.whole())?);
                }
                endpoint.poll_and_wait(MAX_WAIT)?;
                left -= posted
                    .extract_if(.., |recv| recv.outcome().is_some())
                    .count();
            }
        }
        Role::Send => {
            let mut seconds = Vec::new();
            for number in 0..args.messages {
                if number > 0 {
                    let ready = Instant::now() + Duration::from_millis(args.pause_ms);
                    endpoint.run_until(|_| Instant::now() >= ready)?;
                }
                seconds.push(send(&mut endpoint, qp, memory.whole(), args.scheme)?);
            }
            println!("{{\"seconds\": {seconds:?}}}");
            io::stdout().flush()?;
            // The last acknowledgements may have been lost.
            while !ended(&lines) {
                endpoint.poll_and_wait(MAX_WAIT)?;
            }
        }
    }
    Ok(())
}

/// Sends a message. Returns the time in seconds until its acknowledgement.
fn send(
    endpoint: &mut Endpoint<UdpFabric>,
    qp: QueuePair,
    what: farwrite::MrSlice,
    scheme: SchemeName,
) -> Result<f64, Failure> {
    let start = Instant::now();
    let options = SendOptions {
        scheme: scheme.tag(),
        ..SendOptions::default()
    };
    let send = endpoint.post_send(qp, what, options)?;
    endpoint.run_until(|_| send.outcome().is_some())?;
    if send.outcome() == Some(Outcome::Whole) {
        Ok(start.elapsed().as_secs_f64())
    } else {
        Err(format!("a message ended as {:?}", send.outcome()).into())
    }
}

/// The lines of standard input, read by another thread. The channel closes at the end of the input.
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

fn ended(lines: &Receiver<String>) -> bool {
    matches!(lines.try_recv(), Err(TryRecvError::Disconnected))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>, Failure> {
    if !text.is_ascii() {
        return Err("not hexadecimal".into());
    }
    let byte = |at| {
        Ok(u8::from_str_radix(
            text.get(at..at + 2).ok_or("half a byte")?,
            16,
        )?)
    };
    (0..text.len()).step_by(2).map(byte).collect()
}
