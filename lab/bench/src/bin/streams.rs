//! One end of a byte stream: takes bytes in, or writes 1 MiB at a time for some seconds.
//! `lab/paths/streams.py` runs two of these programs, and passes the queue-pair information
//! between them.

use std::error::Error;
use std::io::{self, BufRead, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use farwrite::{Endpoint, QpInfo, QpOptions, Sealing, UdpConfig};
use farwrite_stream::{SchemeSetting, Stream, StreamOptions};

type Failure = Box<dyn Error>;

/// Bytes of a write, and of a read.
const PIECE_BYTES: usize = 1 << 20;

/// Takes a stream in, or writes one.
#[derive(Parser)]
struct Args {
    role: Role,
    /// This end's address.
    #[arg(long)]
    bind: SocketAddr,
    /// How long to write.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Payload bytes of a packet.
    #[arg(long, default_value_t = 4096)]
    mtu: u32,
    /// Buffers of 256 KiB of each end.
    #[arg(long, default_value_t = StreamOptions::default().messages)]
    messages: u32,
    /// Seal the packets, as connections do.
    #[arg(long)]
    sealed: bool,
    /// The repair scheme, or `auto`.
    #[arg(long, default_value = "sr-nack")]
    scheme: SchemeSetting,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    /// Prints its bytes, and the seconds from the first read to the last.
    Take,
    /// Writes, and then waits until the other end has everything.
    Send,
}

fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let options = StreamOptions {
        messages: args.messages,
        scheme: args.scheme,
        ..StreamOptions::default()
    };
    let mut base = QpOptions::default();
    base.sdr.mtu = args.mtu;
    if args.sealed {
        base.sealing = Sealing::Required;
    }
    let mut endpoint = Endpoint::over_udp(&UdpConfig::new(args.bind))?;
    let (mut stream, mut task) = Stream::create(&mut endpoint, &options, &base)?;
    let qp = task.queue_pair();
    println!("{}", hex(&endpoint.qp_info(qp)?.encode()?));
    let mut lines = io::stdin().lock().lines();
    let peer = lines.next().ok_or("no information of the peer")??;
    endpoint.connect_qp(qp, &QpInfo::decode(&unhex(&peer)?)?)?;
    let thread = endpoint.start_thread()?;
    thread.add_task_of(qp, move |endpoint| task.run(endpoint))?;
    match args.role {
        Role::Take => take(&mut stream)?,
        Role::Send => send(&mut stream, Duration::from_secs_f64(args.seconds))?,
    }
    // The last acknowledgements may have been lost: stay until the other end has ended too.
    lines.next();
    Ok(())
}

fn take(stream: &mut Stream) -> Result<(), Failure> {
    let mut piece = vec![0; PIECE_BYTES];
    let (mut bytes, mut first, mut last) = (0, None, Instant::now());
    loop {
        let length = stream.read(&mut piece)?;
        if length == 0 {
            break;
        }
        last = Instant::now();
        first.get_or_insert(last);
        bytes += length;
    }
    let seconds = last.duration_since(first.unwrap_or(last)).as_secs_f64();
    println!("{{\"bytes\": {bytes}, \"seconds\": {seconds}}}");
    Ok(())
}

fn send(stream: &mut Stream, time: Duration) -> Result<(), Failure> {
    let piece = vec![7; PIECE_BYTES];
    let start = Instant::now();
    while start.elapsed() < time {
        stream.write_all(&piece)?;
    }
    stream.end(std::net::Shutdown::Write);
    stream.wait_delivered()?;
    println!("delivered");
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>, Failure> {
    if !text.is_ascii() {
        return Err("not hexadecimal".into());
    }
    let byte = |at| {
        let digits = text.get(at..at + 2).ok_or("half a byte")?;
        Ok(u8::from_str_radix(digits, 16)?)
    };
    (0..text.len()).step_by(2).map(byte).collect()
}
