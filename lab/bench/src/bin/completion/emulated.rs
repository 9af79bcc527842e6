//! Messages over UDP sockets and a link emulator, in real time.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use farwrite::{
    Endpoint, MemoryRegion, Outcome, QueuePair, SchemeName, SendOptions, UdpConfig, UdpFabric,
};
use farwrite_emulator::udp::{PortPair, Side, UdpEmulator, UdpEmulatorConfig};

use crate::Failure;
use crate::path::Path;

const MAX_WAIT: Duration = Duration::from_millis(5);

struct End {
    endpoint: Endpoint<UdpFabric>,
    qp: QueuePair,
    memory: MemoryRegion,
}

/// The times of `samples` messages in seconds, sent one after another.
pub(crate) fn run(
    path: &Path,
    scheme: SchemeName,
    bytes: u64,
    samples: usize,
) -> Result<Vec<f64>, Failure> {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let end = |fill| -> Result<End, Failure> {
        let mut endpoint = Endpoint::over_udp(&UdpConfig::new(loopback))?;
        let qp = endpoint.create_qp(path.options(scheme, bytes))?;
        let memory = endpoint.register(vec![fill; usize::try_from(bytes)?])?;
        Ok(End {
            endpoint,
            qp,
            memory,
        })
    };
    let (mut sender, mut receiver) = (end(0x5a_u8)?, end(0)?);
    let link = connect(path, &mut sender, &mut receiver)?;
    let over = AtomicBool::new(false);
    let (post, posts) = channel();
    let times_s = thread::scope(|scope| {
        let (receiver, over) = (&mut receiver, &over);
        let receiving = scope.spawn(move || receive(receiver, &posts, over));
        let times_s = (0..samples)
            .map(|_| {
                post.send(())?;
                send_one(path, scheme, &mut sender)
            })
            .collect::<Result<Vec<f64>, Failure>>();
        over.store(true, Ordering::Release);
        let received = receiving.join().expect("the receiver does not panic");
        received.map_err(Failure::from)?;
        times_s
    })?;
    link.stop()?;
    if sender.endpoint.memory(sender.memory)? != receiver.endpoint.memory(receiver.memory)? {
        return Err("a message arrived damaged".into());
    }
    Ok(times_s)
}

fn connect(path: &Path, sender: &mut End, receiver: &mut End) -> Result<UdpEmulator, Failure> {
    let mut of_sender = sender.endpoint.qp_info(sender.qp)?;
    let mut of_receiver = receiver.endpoint.qp_info(receiver.qp)?;
    let [forward, backward] = path.links();
    let link = UdpEmulator::start(&UdpEmulatorConfig {
        forward,
        backward,
        seed: path.seed,
        channels: vec![PortPair {
            a: Side::facing(of_sender.control),
            b: Side::facing(of_receiver.control),
        }],
        ..UdpEmulatorConfig::default()
    })?;
    let [to_receiver, to_sender] = link.addresses()[0];
    for (info, via) in [(&mut of_receiver, to_receiver), (&mut of_sender, to_sender)] {
        info.control = via;
        info.channels.fill(via);
    }
    sender.endpoint.connect_qp(sender.qp, &of_receiver)?;
    receiver.endpoint.connect_qp(receiver.qp, &of_sender)?;
    Ok(link)
}

/// Posts a buffer for each word from `posts`, and polls until `over`.
fn receive(end: &mut End, posts: &Receiver<()>, over: &AtomicBool) -> Result<(), farwrite::Error> {
    while !over.load(Ordering::Acquire) {
        while posts.try_recv().is_ok() {
            end.endpoint.post_recv(end.qp, end.memory.whole())?;
        }
        end.endpoint.poll_and_wait(MAX_WAIT)?;
    }
    Ok(())
}

/// Sends a message after its clear-to-send has certainly arrived.
fn send_one(path: &Path, scheme: SchemeName, end: &mut End) -> Result<f64, Failure> {
    let ready = Instant::now() + 3 * path.rtt + MAX_WAIT;
    end.endpoint.run_until(|_| Instant::now() >= ready)?;
    let start = Instant::now();
    let options = SendOptions {
        scheme: scheme.tag(),
        ..SendOptions::default()
    };
    let send = end
        .endpoint
        .post_send(end.qp, end.memory.whole(), options)?;
    end.endpoint.run_until(|_| send.outcome().is_some())?;
    let took = start.elapsed();
    if send.outcome() == Some(Outcome::Whole) {
        Ok(took.as_secs_f64())
    } else {
        Err(format!("{scheme}: a message is not whole").into())
    }
}
