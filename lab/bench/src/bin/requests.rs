//! One end of small messages over localhost or a path: requests and their answers, or records at a steady rate.
//! `lab/paths/requests.py` runs two of these programs, over streams of a connection, over its messages, and over TCP.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use farwrite::QpOptions;
use farwrite_connection::{
    Connection, ConnectionOptions, Keys, Listener, MessageOptions, Messages, connect,
};
use farwrite_keys::Psk;
use farwrite_stream::{ConnectionExt, Stream, StreamOptions};
use nix::time::{ClockId, clock_gettime};

type Failure = Box<dyn Error>;

const REQUEST_BYTES: usize = 100;
const ANSWER_BYTES: usize = 1000;
/// How long an end waits for the other one.
const LIMIT: Duration = Duration::from_secs(60);
/// Requests and records whose times do not count.
const WARM: usize = 100;

#[derive(Parser)]
struct Args {
    role: Role,
    #[arg(long, value_enum)]
    over: Over,
    /// The address of the end that answers or takes.
    #[arg(long)]
    at: SocketAddr,
    /// The pre-shared key of connections.
    #[arg(long)]
    key: PathBuf,
    /// Number of requests, or of records.
    #[arg(long, default_value_t = 2000)]
    count: usize,
    /// Records a second.
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Role {
    /// Answers 1,000 bytes to each 100 bytes.
    Answer,
    /// Sends requests one after the other; prints their times.
    Ask,
    /// Takes records of 100 bytes; prints how long each was under way.
    Take,
    /// Sends records at a steady rate.
    Send,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Over {
    Stream,
    Messages,
    Tcp,
}

/// A way from one end to the other. Each piece that is read has the length that is asked for.
enum Way {
    Stream(Stream),
    Tcp(TcpStream),
    Messages(Messages),
}

impl Way {
    fn write(&mut self, piece: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Stream(stream) => stream.write_all(piece)?,
            Self::Tcp(stream) => stream.write_all(piece)?,
            Self::Messages(messages) => drop(messages.send(piece)),
        }
        Ok(())
    }

    fn read(&mut self, piece: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::Stream(stream) => stream.read_exact(piece)?,
            Self::Tcp(stream) => stream.read_exact(piece)?,
            Self::Messages(messages) => {
                let message = messages.receive(LIMIT)?.ok_or("no message comes")?;
                piece.copy_from_slice(&message);
            }
        }
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let is_first = matches!(args.role, Role::Ask | Role::Send);
    let (mut way, connection) = match args.over {
        Over::Tcp => (Way::Tcp(tcp(&args, is_first)?), None),
        Over::Stream | Over::Messages => {
            let connection = connection(&args, is_first)?;
            (over(&args, &connection, is_first)?, Some(connection))
        }
    };
    match args.role {
        Role::Answer => answer(&mut way, args.count)?,
        Role::Ask => ask(&mut way, args.count)?,
        Role::Take => take(&mut way, args.count)?,
        Role::Send => send(&mut way, args.count, args.rate)?,
    }
    // The end that asks or takes has the last word.
    if let Some(connection) = connection {
        match args.role {
            Role::Ask | Role::Take => connection.finish(LIMIT),
            Role::Answer | Role::Send => drop(connection.wait_ended(LIMIT)),
        }
    }
    Ok(())
}

fn tcp(args: &Args, is_first: bool) -> Result<TcpStream, Failure> {
    let stream = if is_first {
        TcpStream::connect(args.at)?
    } else {
        let listener = TcpListener::bind(args.at)?;
        println!("ready");
        listener.accept()?.0
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn connection(args: &Args, is_first: bool) -> Result<Connection, Failure> {
    let keys = Keys::of_psk(&Psk::load(&args.key)?);
    let options = ConnectionOptions::default();
    if is_first {
        return Ok(connect(&args.at.to_string(), &keys, "", &options)?);
    }
    let listener = Listener::bind(args.at, &keys, &options)?;
    println!("ready");
    Ok(listener.accept(LIMIT)?.ok_or("nobody connects")?)
}

fn over(args: &Args, connection: &Connection, is_first: bool) -> Result<Way, Failure> {
    if args.over == Over::Stream {
        let options = StreamOptions::default();
        return Ok(Way::Stream(if is_first {
            connection.open_stream("requests", &options, LIMIT)?
        } else {
            let accepted = connection.accept_stream(None, &options, LIMIT)?;
            accepted.ok_or("no stream")?.1
        }));
    }
    let pair = if is_first {
        connection.open_queue_pair("records", QpOptions::default(), LIMIT)?
    } else {
        let accepted = connection.accept_queue_pair(None, &QpOptions::default(), LIMIT)?;
        accepted.ok_or("no queue pair")?
    };
    Ok(Way::Messages(
        pair.into_messages(MessageOptions::default())?,
    ))
}

fn answer(way: &mut Way, count: usize) -> Result<(), Failure> {
    let mut request = [0; REQUEST_BYTES];
    let mut cpu = process_cpu();
    for number in 0..count + WARM {
        way.read(&mut request)?;
        if number == WARM {
            cpu = process_cpu();
        }
        way.write(&[7; ANSWER_BYTES])?;
    }
    println!(
        "{{\"cpu_us\": {}}}",
        micros(process_cpu() - cpu) / count as f64
    );
    Ok(())
}

fn ask(way: &mut Way, count: usize) -> Result<(), Failure> {
    let mut answer = [0; ANSWER_BYTES];
    let mut times = Vec::with_capacity(count);
    let mut cpu = process_cpu();
    for number in 0..count + WARM {
        if number == WARM {
            cpu = process_cpu();
        }
        let start = Instant::now();
        way.write(&[5; REQUEST_BYTES])?;
        way.read(&mut answer)?;
        if number >= WARM {
            times.push(micros(start.elapsed()));
        }
    }
    print(times, micros(process_cpu() - cpu) / count as f64);
    Ok(())
}

fn take(way: &mut Way, count: usize) -> Result<(), Failure> {
    let mut record = [0; REQUEST_BYTES];
    let mut times = Vec::with_capacity(count);
    let mut cpu = process_cpu();
    for number in 0..count + WARM {
        way.read(&mut record)?;
        if number == WARM {
            cpu = process_cpu();
        }
        if number >= WARM {
            let sent_ns = u64::from_le_bytes(record[..8].try_into()?);
            times.push(micros(now().saturating_sub(Duration::from_nanos(sent_ns))));
        }
    }
    print(times, micros(process_cpu() - cpu) / count as f64);
    Ok(())
}

fn send(way: &mut Way, count: usize, rate: f64) -> Result<(), Failure> {
    let mut record = [0; REQUEST_BYTES];
    let start = Instant::now();
    for number in 0..count + WARM {
        let due = Duration::from_secs_f64(number as f64 / rate);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        let sent_ns = u64::try_from(now().as_nanos())?;
        record[..8].copy_from_slice(&sent_ns.to_le_bytes());
        way.write(&record)?;
    }
    if let Way::Tcp(stream) = way {
        // Until the other end has read everything and closes.
        let _ = stream.read(&mut record)?;
    }
    Ok(())
}

fn print(mut times: Vec<f64>, cpu_us: f64) {
    times.sort_by(f64::total_cmp);
    let [p50, p99, most] = [50, 99, 100].map(|percent| times[(times.len() - 1) * percent / 100]);
    println!("{{\"p50_us\": {p50}, \"p99_us\": {p99}, \"most_us\": {most}, \"cpu_us\": {cpu_us}}}");
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The clock that all processes of a machine share.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

fn process_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
