//! The kernel's counters separate drops in the responder's socket from drops on the path.

use std::cell::Cell;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_probe::{ProbeHooks, ProbeStage, Settings, TrialFindings, answer, probe};

use crate::ends::{PATIENCE, Responder, ends};

const PAYLOAD_BYTES: u32 = 8192;
/// The longest datagram of IPv4.
const LARGE_BYTES: usize = 65_507;
/// The path drops one packet of a trial in this number.
const LOSS: u64 = 50;
/// The path passes this many packets of the second trial. Then it waits until a stranger has filled the socket of the
/// responder.
const BEFORE_STALL: u64 = 3;
/// The responder stops until the kernel has dropped this many packets of the trial. The number is small because the
/// probe of a busy machine finds a low rate, and its trial has only ten packets.
const ENOUGH: u64 = 3;

/// What the path did with the packets of trials.
#[derive(Debug, Default)]
struct Path {
    /// The responder's address.
    to: OnceLock<SocketAddr>,
    /// The trial that is sent: 0 before the first.
    trial: AtomicU64,
    /// Packets of all trials that reached the path.
    seen: AtomicU64,
    /// Packets passed on, by trial.
    passed: Mutex<[u64; 3]>,
    /// Whether the path waits for the stall, and whether the socket is full.
    waits: OnceLock<()>,
    is_full: OnceLock<()>,
}

impl Path {
    fn passed(&self) -> [u64; 3] {
        *self.passed.lock().expect("no panic")
    }

    /// Passes datagrams of one flow between the prober and the responder. Returns the address for
    /// the prober.
    fn start(self: &Arc<Self>, to: SocketAddr) -> SocketAddr {
        self.to.set(to).expect("one flow");
        let [near, far] = [0, 1].map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("port"));
        for socket in [&near, &far] {
            // The threads end after a long time without packets.
            socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        }
        let addr = near.local_addr().expect("an address");
        let [near_too, far_too] = [&near, &far].map(|socket| socket.try_clone().expect("clone"));
        let prober = Arc::new(OnceLock::new());
        let prober_too = Arc::clone(&prober);
        let path = Arc::clone(self);
        thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok((bytes, src)) = near.recv_from(&mut buffer) {
                prober.get_or_init(|| src);
                if path.passes(bytes) {
                    far.send_to(&buffer[..bytes], to).expect("loopback");
                }
            }
        });
        thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok((bytes, _)) = far_too.recv_from(&mut buffer) {
                let prober: SocketAddr = *prober_too.get().expect("it asked first");
                near_too
                    .send_to(&buffer[..bytes], prober)
                    .expect("loopback");
            }
        });
        addr
    }

    /// Whether the path passes a datagram on.
    fn passes(&self, bytes: usize) -> bool {
        let trial = self.trial.load(Ordering::Relaxed);
        if trial == 0 || bytes != PAYLOAD_BYTES as usize {
            return true;
        }
        let mut passed = self.passed.lock().expect("no panic");
        let count = &mut passed[usize::try_from(trial).expect("small")];
        let is_lost = self.seen.fetch_add(1, Ordering::Relaxed) % LOSS == LOSS - 1;
        *count += u64::from(!is_lost);
        let must_wait = trial == 2 && *count > BEFORE_STALL;
        drop(passed);
        if must_wait {
            self.waits.get_or_init(|| ());
            self.is_full.wait();
        }
        !is_lost
    }
}

/// Datagrams that the kernel has dropped for the sockets of a port (proc(5), the last column of
/// `net/udp`).
fn kernel_drops(port: u16) -> u64 {
    let table = fs::read_to_string("/proc/net/udp").expect("the table of sockets");
    let is_ours = |row: &&str| {
        let local = row.split_whitespace().nth(1);
        local.is_some_and(|local| local.ends_with(&format!(":{port:04X}")))
    };
    let rows = table.lines().filter(is_ours);
    let drops = rows.filter_map(|row| row.split_whitespace().last()?.parse::<u64>().ok());
    drops.sum()
}

/// What the kernel has dropped during the stall: datagrams of strangers, and packets of the trial.
#[derive(Clone, Copy, Debug)]
struct Drops {
    strangers: u64,
    trial: u64,
}

/// Stops the responder in the middle of the second trial until its socket has dropped packets of the trial.
fn stall(path: &Path) -> Drops {
    let to = *path.to.get().expect("packets were sent");
    let before = kernel_drops(to.port());
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("port");
    let mut strangers = 0;
    // The path passes nothing meanwhile. Large datagrams fill the socket soon, and the last room is for short ones.
    for bytes in [LARGE_BYTES, PAYLOAD_BYTES as usize] {
        let datagram = vec![0; bytes];
        let dropped = || kernel_drops(to.port()) - before;
        while dropped() == strangers {
            stranger.send_to(&datagram, to).expect("loopback");
        }
        strangers = dropped();
    }
    path.is_full.get_or_init(|| ());
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let trial = kernel_drops(to.port()) - before - strangers;
        if trial >= ENOUGH {
            return Drops { strangers, trial };
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the socket has not overflowed: {path:?}");
}

#[test]
fn a_socket_that_overflows_does_not_count_as_loss_of_the_path() {
    let path = Arc::new(Path::default());
    let (prober, responder) = ends();
    let of_responder = Arc::clone(&path);
    let responder = thread::spawn(move || {
        let stalled = Cell::new(None);
        let Responder { control, port } = responder.join().expect("no panic");
        // The responder calls this between two datagrams, so it receives nothing meanwhile.
        let answered = answer(control, &port, &|| {
            if stalled.get().is_none() && of_responder.waits.get().is_some() {
                stalled.set(Some(stall(&of_responder)));
            }
            false
        });
        answered.expect("answered");
        stalled.get().expect("the second trial came")
    });
    let observe = |stage| {
        if let ProbeStage::Losses { done, .. } = stage {
            // The path may still hold packets of the trial before.
            thread::sleep(Duration::from_millis(50));
            path.trial.store(done + 1, Ordering::Relaxed);
        }
    };
    let host = ProbeHooks {
        redirect: &|_, to| path.start(to),
        cancelled: &|| false,
        observe: &observe,
    };
    let settings = Settings {
        flows: 1,
        sizes: Some(vec![PAYLOAD_BYTES]),
        trials: 1,
        share: 1.0,
        // A responder that waits for a processor meanwhile does not overflow.
        max_rate_bps: 100_000_000,
        time: Duration::from_secs(6),
        ..Settings::default()
    };
    let findings = probe(prober, &settings, &host).expect("findings");
    let at_stall = responder.join().expect("no panic");
    let passed = path.passed();
    let trials = &findings.trials;
    println!("{trials:#?} {passed:?} {at_stall:?} {:?}", findings.host);
    assert_eq!(trials.len(), 2);
    for ((trial, passed), strangers) in trials.iter().zip(&passed[1..]).zip([0, at_stall.strangers])
    {
        let (packets, received) = (u64::from(trial.packets), u64::from(trial.counts.received));
        // Drops of strangers' datagrams cannot be told from drops of the trial, and explain losses too.
        let at_most = passed - received + strangers.min(packets - passed);
        let in_hosts = passed - received..=at_most;
        assert!(in_hosts.contains(&trial.lost_in_hosts()), "{trial:?}");
    }
    let in_hosts: u64 = trials.iter().map(TrialFindings::lost_in_hosts).sum();
    assert!(in_hosts >= at_stall.trial, "{in_hosts} {at_stall:?}");
    let of_machine = findings
        .host
        .theirs
        .recv_buffer
        .expect("this system counts");
    assert!(of_machine >= in_hosts, "{of_machine} {in_hosts}");
    // The share of the path leaves out the trial in which the socket overflowed. On a busy machine, the other one has
    // drops in hosts, too.
    let loss = findings.direction().loss;
    assert_eq!(loss.is_none(), trials[0].is_of_hosts(), "{loss:?}");
    if let Some(loss) = loss {
        let packets = u64::from(trials[0].packets);
        let of_path = (packets - passed[1]) as f64 / packets as f64;
        assert!((loss.share - of_path).abs() < 1e-9, "{loss:?} {of_path}");
    }
}
