//! Measures the cost of receiving frames from an interface: by `recvmmsg`, as the bridge does, by
//! rings that the kernel shares (`TPACKET_V2` and `TPACKET_V3`, packet(7)), and by `AF_XDP` in copy
//! mode, with its BPF program in the network stack or in the driver.
//!
//! ```text
//! unshare --net sh -c 'ip link add fw0 mtu 4400 up type veth peer name fw1 mtu 4400 &&
//!     ip link set fw1 up && target/release/examples/receive'
//! ```
//!
//! It needs root and a pair of virtual interfaces, `fw0` and `fw1`. One thread sends frames to
//! `fw0`, at most a window ahead of the other thread, which receives them from `fw1` and copies
//! them. The processor time is that of both threads, in user space and in the kernel, minus the
//! time to send to an interface without a receiver. The delay is measured with single frames, each
//! sent one millisecond after the previous one has arrived.

mod redirect;
mod ring;
mod xdp;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farwrite_bridge::{Incoming, Interface, Received};
use redirect::Mode;
use ring::{Layout, Ring};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::time::{ClockId, clock_gettime};
use xdp::Xdp;

const FROM: &str = "fw0";
const TO: &str = "fw1";
const FRAMES: u64 = 100_000;
/// Highest number of frames sent and not yet received.
const WINDOW: u64 = 128;
const ECHOES: usize = 300;
const RUNS: usize = 3;

/// A receiver of frames.
enum Taker {
    Nobody,
    Messages(Interface, Box<Received>),
    Ring(Ring),
    Xdp(Xdp),
}

#[derive(Clone, Copy)]
enum How {
    Nobody,
    Messages,
    Ring(Layout),
    Xdp(Mode),
}

impl Taker {
    fn new(how: How) -> Self {
        match how {
            How::Nobody => Self::Nobody,
            How::Messages => {
                let interface = Interface::open(TO).expect("an interface fw1");
                Self::Messages(interface, Box::default())
            }
            How::Ring(layout) => {
                let socket = ring::socket().expect("a packet socket");
                let ring = Ring::new(socket, layout).expect("a ring");
                ring.bind(TO).expect("an interface fw1");
                Self::Ring(ring)
            }
            How::Xdp(mode) => Self::Xdp(Xdp::open(TO, mode).expect("an AF_XDP socket at fw1")),
        }
    }

    /// Waits for frames and copies them. Returns their number.
    fn take(&mut self) -> u64 {
        let mut bytes = 0;
        let count = match self {
            Self::Nobody => 0,
            Self::Messages(interface, received) => {
                wait(interface.as_fd());
                let count = interface.receive(received).expect("a working interface");
                for number in 0..count {
                    if let Incoming::Frame(_, frame) = received.get(number) {
                        bytes += frame.len();
                    }
                }
                count
            }
            Self::Ring(ring) => {
                wait(ring.as_fd());
                ring.receive(|frame| bytes += std::hint::black_box(frame.to_vec()).len())
            }
            Self::Xdp(socket) => {
                wait(socket.as_fd());
                socket.receive(|piece| bytes += std::hint::black_box(piece.to_vec()).len())
            }
        };
        std::hint::black_box(bytes);
        count as u64
    }
}

fn wait(fd: BorrowedFd<'_>) {
    let timeout = Timespec::try_from(Duration::from_millis(10)).ok();
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let _ = rustix::event::poll(&mut fds, timeout.as_ref());
}

/// An Ethernet frame with an unused Ethernet type.
fn frame(bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; bytes];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5]);
    frame
}

fn main() {
    let ways = [
        ("recvmmsg", How::Messages),
        ("TPACKET_V2", How::Ring(Layout::Slots)),
        ("TPACKET_V3", How::Ring(Layout::Blocks)),
        ("AF_XDP, stack", How::Xdp(Mode::Generic)),
        ("AF_XDP, driver", How::Xdp(Mode::Driver)),
    ];
    println!(
        "{:<14} {:>6} {:>12} {:>8} {:>10}",
        "", "bytes", "ns a frame", "ratio", "delay us"
    );
    for bytes in [1100, 4200] {
        let sending = median(|| busy_ns(How::Nobody, bytes));
        let mut first = None;
        for (name, how) in ways {
            let taking = median(|| busy_ns(how, bytes)) - sending;
            let delay = median(|| delay_us(how, bytes));
            let ratio = taking / *first.get_or_insert(taking);
            println!("{name:<14} {bytes:>6} {taking:>12.0} {ratio:>8.2} {delay:>10.0}");
        }
    }
}

fn median(measure: impl Fn() -> f64) -> f64 {
    let mut runs: Vec<f64> = (0..RUNS).map(|_| measure()).collect();
    runs.sort_by(f64::total_cmp);
    runs[RUNS / 2]
}

/// Processor time in nanoseconds for each frame sent and received.
fn busy_ns(how: How, bytes: usize) -> f64 {
    let taken = AtomicU64::new(0);
    let mut taker = Taker::new(how);
    let sender = Interface::open(FROM).expect("an interface fw0");
    let frame = frame(bytes);
    let began = clock_gettime(ClockId::ProcessCPUTime);
    let sending = std::thread::current();
    std::thread::scope(|scope| {
        if !matches!(taker, Taker::Nobody) {
            scope.spawn(|| {
                while taken.load(Ordering::Relaxed) < FRAMES {
                    taken.fetch_add(taker.take(), Ordering::Relaxed);
                    sending.unpark();
                }
            });
        } else {
            taken.store(FRAMES, Ordering::Relaxed);
        }
        for number in 0..FRAMES {
            while number >= taken.load(Ordering::Relaxed).saturating_add(WINDOW) {
                // Sleep: the time of a thread that spins would count for the ways that wait longest.
                std::thread::park();
            }
            sender.send_frame(&frame).expect("a working interface");
        }
    });
    let ended = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = |time: rustix::time::Timespec| time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9;
    (seconds(ended) - seconds(began)) * 1e9 / FRAMES as f64
}

/// Median time in microseconds from sending a single frame until it is received.
fn delay_us(how: How, bytes: usize) -> f64 {
    let (came, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let start = Instant::now();
    let now_ns = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut taker = Taker::new(how);
    let sender = Interface::open(FROM).expect("an interface fw0");
    let frame = frame(bytes);
    let mut delays = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if taker.take() > 0 {
                    came.store(now_ns(), Ordering::Release);
                }
            }
        });
        let echo = |_| {
            std::thread::sleep(Duration::from_millis(1));
            came.store(0, Ordering::Relaxed);
            let sent_ns = now_ns();
            sender.send_frame(&frame).expect("a working interface");
            loop {
                match came.load(Ordering::Acquire) {
                    0 => std::thread::yield_now(),
                    came_ns => break came_ns - sent_ns,
                }
            }
        };
        let delays: Vec<u64> = (0..ECHOES).map(echo).collect();
        done.store(true, Ordering::Relaxed);
        delays
    });
    delays.sort_unstable();
    delays[ECHOES / 2] as f64 / 1000.0
}
