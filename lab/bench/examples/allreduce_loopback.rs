//! Measures an all-reduce of 64 MB, and compares it with a copy of memory and a TCP stream on this
//! machine.
//!
//! Ranks are threads that communicate over loopback sockets. In an all-reduce of b bytes among n
//! ranks, each rank sends and receives 2 b (n - 1) / n bytes. "bus" is this amount divided by the
//! time.
//!
//! `cargo run --release -p farwrite-bench --example allreduce_loopback [MEGABYTES [PACKET [PACKETS]]]`,
//! where PACKET is the size of a packet in bytes, and PACKETS is the number of packets in a
//! segment.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use clap::Parser;
use farwrite_collectives::{
    Buffers, Communicator, CommunicatorOptions, ElementType, Operation, Reduction, kernel,
};

const ROUNDS: usize = 5;
const WAIT: Duration = Duration::from_secs(120);

/// Gigabytes per second.
fn rate(bytes: f64, time: Duration) -> f64 {
    bytes / time.as_secs_f64() / 1e9
}

/// The median of several runs.
fn median(
    mut run: impl FnMut() -> Result<Duration, Box<dyn Error>>,
) -> Result<Duration, Box<dyn Error>> {
    run()?;
    let mut times = (0..ROUNDS).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    times.sort();
    Ok(times[ROUNDS / 2])
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn memcpy(bytes: usize) -> Result<Duration, Box<dyn Error>> {
    let (source, mut target) = (vec![1_u8; bytes], vec![0; bytes]);
    median(|| {
        let time = timed(|| target.copy_from_slice(&source));
        std::hint::black_box(&mut target);
        Ok(time)
    })
}

fn kernels(bytes: usize, memcpy: Duration) -> Result<(), Box<dyn Error>> {
    let (source, mut target) = (vec![1_u8; bytes], vec![0; bytes]);
    for element in ElementType::ALL {
        let time = median(|| {
            let time = timed(|| kernel::reduce(element, Reduction::Sum, &mut target, &source));
            std::hint::black_box(&mut target);
            Ok(time)
        })?;
        // A sum reads two streams and writes one. A copy reads one.
        println!(
            "sum of {element:<9} {:6.2} GB/s, {:.2} of memcpy",
            rate(bytes as f64, time),
            memcpy.as_secs_f64() / time.as_secs_f64()
        );
    }
    Ok(())
}

/// One stream from one thread to another.
fn tcp(bytes: usize) -> Result<Duration, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let source = vec![1_u8; bytes];
    let mut target = vec![0; bytes];
    median(|| {
        let start = Instant::now();
        std::thread::scope(|scope| -> std::io::Result<()> {
            let sent = scope.spawn(|| sender.write_all(&source));
            receiver.read_exact(&mut target)?;
            sent.join().expect("the sender does not panic")
        })?;
        Ok(start.elapsed())
    })
}

fn all_reduce(
    ranks: usize,
    bytes: usize,
    options: &CommunicatorOptions,
) -> Result<Duration, Box<dyn Error>> {
    let group = (0..ranks)
        .map(|rank| Communicator::new(rank, ranks, options.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    let mut messages = Vec::new();
    loop {
        let said = group.iter().map(|rank| rank.meet(messages.clone()));
        let said = said.collect::<Result<Vec<_>, _>>()?;
        match said.into_iter().collect() {
            Some(said) => messages = said,
            None => break,
        }
    }
    let sum = Operation::AllReduce {
        element: ElementType::F32,
        reduction: Reduction::Sum,
    };
    let mut memories: Vec<Vec<u8>> = vec![vec![0; bytes]; ranks];
    median(|| {
        let start = Instant::now();
        let submit = |(rank, memory): (&Communicator, Vec<u8>)| {
            rank.submit(sum.clone(), Buffers::in_place(memory))
        };
        let tickets = group.iter().zip(memories.drain(..)).map(submit);
        let tickets = tickets.collect::<Result<Vec<_>, _>>()?;
        for ticket in &tickets {
            ticket.wait(WAIT)?;
        }
        let time = start.elapsed();
        let outputs = tickets
            .iter()
            .filter_map(|ticket| ticket.take_buffers()?.output?.into_vec());
        memories.extend(outputs);
        Ok(time)
    })
}

#[derive(Parser)]
struct Args {
    #[arg(default_value_t = 64)]
    megabytes: usize,
    /// Size of a packet in bytes
    packet: Option<u32>,
    /// Packets of a segment
    packets: Option<u32>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Args {
        megabytes,
        packet,
        packets,
    } = Args::parse();
    let mut options = CommunicatorOptions::new("127.0.0.1:0".parse()?);
    let group = &mut options.group;
    options.packet_bytes = Some(packet.unwrap_or(group.packet_bytes));
    group.packets_per_segment = packets.unwrap_or(group.packets_per_segment);
    let bytes = megabytes * 1_000_000;
    let copy = memcpy(bytes)?;
    println!("memcpy           {:6.2} GB/s", rate(bytes as f64, copy));
    kernels(bytes, copy)?;
    let stream = tcp(bytes)?;
    println!("TCP stream       {:6.2} GB/s", rate(bytes as f64, stream));
    for ranks in [2, 4] {
        let time = all_reduce(ranks, bytes, &options)?;
        let moved = 2.0 * bytes as f64 * (ranks as f64 - 1.0) / ranks as f64;
        // All ranks share the machine: together they move this amount.
        let together = rate(moved * ranks as f64, time);
        println!(
            "all-reduce of {megabytes} MB, {ranks} ranks: {:.1} ms, bus {:.2} GB/s, together {together:.2} \
             GB/s: {:.3} of memcpy, {:.2} of TCP",
            time.as_secs_f64() * 1e3,
            rate(moved, time),
            together * copy.as_secs_f64() * 1e9 / bytes as f64,
            together * stream.as_secs_f64() * 1e9 / bytes as f64,
        );
    }
    Ok(())
}
