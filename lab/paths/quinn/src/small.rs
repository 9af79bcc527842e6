//! Small requests and records on one stream, as `lab/bench/src/bin/requests.rs` exchanges them.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use quinn::{Connection, RecvStream, SendStream, VarInt};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::{Args, Failure, connect, listen};

const REQUEST_BYTES: usize = 100;
const ANSWER_BYTES: usize = 1000;
/// Requests and records whose times do not count.
const WARM: usize = 100;

#[derive(Parser)]
pub struct Small {
    role: Role,
    /// The address of the end that answers or takes.
    #[arg(long)]
    at: SocketAddr,
    #[arg(long, default_value_t = 2000)]
    count: usize,
    /// Records a second.
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Answer,
    Ask,
    Take,
    Send,
}

pub async fn run(args: &Args, small: &Small) -> Result<(), Failure> {
    let is_first = matches!(small.role, Role::Ask | Role::Send);
    let (endpoint, connection) = if is_first {
        (None, connect(args, small.at).await?)
    } else {
        let endpoint = listen(args, small.at)?;
        let connection = endpoint.accept().await.ok_or("no connection")?.await?;
        (Some(endpoint), connection)
    };
    let (mut send, mut recv) = if is_first { connection.open_bi().await? } else { connection.accept_bi().await? };
    match small.role {
        Role::Answer => answer(small.count, &mut send, &mut recv).await?,
        Role::Ask => ask(small.count, &mut send, &mut recv).await?,
        Role::Take => take(small.count, &mut recv).await?,
        Role::Send => records(small, &mut send).await?,
    }
    end(small.role, &connection).await;
    if let Some(endpoint) = endpoint {
        endpoint.wait_idle().await;
    }
    Ok(())
}

/// The end that asks or takes has the last word.
async fn end(role: Role, connection: &Connection) {
    match role {
        Role::Ask | Role::Take => {
            connection.close(VarInt::from_u32(0), b"");
            // The packet leaves.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Role::Answer | Role::Send => drop(connection.closed().await),
    }
}

async fn answer(count: usize, send: &mut SendStream, recv: &mut RecvStream) -> Result<(), Failure> {
    let mut request = [0; REQUEST_BYTES];
    let mut cpu = process_cpu();
    for number in 0..count + WARM {
        recv.read_exact(&mut request).await?;
        if number == WARM {
            cpu = process_cpu();
        }
        send.write_all(&[7; ANSWER_BYTES]).await?;
    }
    println!("{{\"cpu_us\": {}}}", micros(process_cpu() - cpu) / count as f64);
    Ok(())
}

async fn ask(count: usize, send: &mut SendStream, recv: &mut RecvStream) -> Result<(), Failure> {
    let mut answer = [0; ANSWER_BYTES];
    let mut times = Vec::with_capacity(count);
    let mut cpu = process_cpu();
    for number in 0..count + WARM {
        if number == WARM {
            cpu = process_cpu();
        }
        let start = Instant::now();
        send.write_all(&[5; REQUEST_BYTES]).await?;
        recv.read_exact(&mut answer).await?;
        if number >= WARM {
            times.push(micros(start.elapsed()));
        }
    }
    print(times, micros(process_cpu() - cpu) / count as f64);
    Ok(())
}

async fn take(count: usize, recv: &mut RecvStream) -> Result<(), Failure> {
    let mut record = [0; REQUEST_BYTES];
    let mut times = Vec::with_capacity(count);
    let mut cpu = process_cpu();
    for number in 0..count + WARM {
        recv.read_exact(&mut record).await?;
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

async fn records(small: &Small, send: &mut SendStream) -> Result<(), Failure> {
    let mut record = [0; REQUEST_BYTES];
    let start = std::time::Instant::now();
    for number in 0..small.count + WARM {
        let due = Duration::from_secs_f64(number as f64 / small.rate);
        // Timers of tokio have a grain of 1 ms. Another thread runs the connection meanwhile.
        tokio::task::block_in_place(|| std::thread::sleep(due.saturating_sub(start.elapsed())));
        record[..8].copy_from_slice(&(now().as_nanos() as u64).to_le_bytes());
        send.write_all(&record).await?;
    }
    Ok(())
}

fn print(mut times: Vec<f64>, cpu_us: f64) {
    times.sort_by(f64::total_cmp);
    let quantile = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let (p50, p99, most) = (quantile(0.5), quantile(0.99), quantile(1.0));
    println!("{{\"p50_us\": {p50}, \"p99_us\": {p99}, \"most_us\": {most}, \"cpu_us\": {cpu_us}}}");
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The clock that all processes of a machine share.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

fn process_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}
