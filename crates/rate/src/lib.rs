//! Pacing and congestion control: how fast a sender may send, and how much may be in flight.
//!
//! A [`RateControl`] takes in what was sent and what the receiver reports about the path, and
//! answers [`Limits`]: a pace in bits a second and a window in bytes. A [`TokenBucket`] turns the
//! pace into instants. Nothing here has a clock, randomness or I/O. Times are nanoseconds of one
//! clock of the sender, rates are bits a second on the wire, sizes are bytes on the wire.
//!
//! | controller | for |
//! |---|---|
//! | [`Fixed`] | a rate that a user has set, below what the receiver takes in (P5.5) |
//! | [`Adaptive`] | a path that others use, or that nobody has described: the default |
//! | [`Dcqcn`] | RDMA NICs in datacenters, by marks (SIGCOMM 2015) |
//! | [`Swift`] | datacenters, by delay (SIGCOMM 2020) |
//! | [`Eqds`] | datacenters with trimming switches, by credit of the receiver (NSDI 2022) |
//!
//! The receiving halves of controllers implement [`ReceiverControl`]: [`NotificationPoint`] sends
//! DCQCN's notifications, [`PullPacer`] EQDS's credit.
//!
//! Controllers of datacenters hold what their papers say, with the names of the papers; what is not
//! modelled stands with each. [`Dcqcn`] and [`Swift`] also work on reports alone, so a shipped
//! endpoint can use them: `tests/datacenter.rs` runs four flows each on 10 Gbit/s and 100 us.
//! [`Eqds`] needs a receiver that grants.
//!
//! # The path is one object
//!
//! One controller belongs to one path between two addresses, whatever the number of queue pairs on
//! it. The receiver sends a [`Feedback`] about all of them. A report at once for the first packet
//! after a pause, and eight a round trip while packets come, give the results below; a controller
//! works with fewer and reacts later.
//!
//! # The adaptive controller
//!
//! It keeps two numbers: the `base`, the shortest round trip, which is that of empty queues, and
//! the `share`, the bytes in flight that fill the flow's part of the path without a queue.
//! Everything else follows from which of four things it is doing ([`Phase`]):
//!
//! ```text
//!            a train is carried: the next at 4 times the rate
//!               +---+
//!               |   v
//!  start ----> Probe -----------------> Grow <-------------------+
//!               ^   the path's rate is   |                        | a quarter of a round trip
//!               |   known                | a queue, marks, drops  | below the share
//!   no reports, |                        v                        |
//!   or long idle+-- any              Drain ----------------------+
//!                                        | 10 times the queue did not run empty
//!                                        v
//!                                     Compete --> Probe, when the queue is empty
//! ```
//!
//! | phase | window | pace | ends when |
//! |---|---|---|---|
//! | `Probe` | a train of 1/16 of the round trip, longer between noisy hosts, at least 8 packets (the first: 16 packets in 1 ms) | the rate that is tested | three quarters of the train are reported |
//! | `Grow` | share + growth | window after one more round trip of growth / round trip | congestion |
//! | `Drain` | 0.9 share; 0.75 and 0.5 when that did not empty the queue; 0.5 while little is known | window / base | a quarter of a round trip was sent so |
//! | `Compete` | that of CUBIC (RFC 9438), but at least half of the path, or all of it beside flows that do not yield | window / round trip | the queue is nearly empty; after 12 round trips, and then ever more up to 96, it tries `Drain` |
//!
//! **Probe.** A train that is faster than the path spreads: the delay grows along it. With length
//! `d`, growth `q` and rate `r` the path carries `r d / (d + q)`. A [`Start`] is tested by one such
//! train, so a true one costs one round trip. The train lasts a sixteenth of the round trip, or 4
//! times the jitter of the hosts if that is longer. Where a sixteenth is the longer one, a start that
//! is n times too high queues n/16 of what the path holds.
//!
//! Without a `Start` the rate of the trains grows fourfold each round trip. Such a train lasts at
//! most an eighth of the round trip, or 5/4 of the jitter if that is longer. So the last of them, on
//! a path of a quarter of its rate or more, queues at most 3/16 of what that holds, up to 3/8 between
//! noisy hosts, and more where the jitter exceeds a tenth of the round trip. Slow start would queue
//! all of it.
//!
//! **Silence.** Where no report comes in time, a train goes out, and after each further timeout one
//! of half the rate. The first report after that says that the receiver is back, and nothing about
//! the path: what it reports has waited in the receiver's socket. What was known of the path is then
//! tested by a train.
//!
//! **Growth** in bytes after t round trips is (2^t - 1) sqrt(w p) / 8 for a share of w and packets
//! of p bytes; beyond a quarter of the window it is a quarter of the window each round trip. So a
//! path with twice the capacity is filled in about 10 round trips whatever it holds. The queue is
//! at most what grows until the first report of it.
//!
//! **Congestion** is a delay of more than base / 16 + jitter + one packet of the flow, or marks
//! (ECN CE) on more than an eighth of the packets of a quarter of a round trip, or drops that the
//! receiver reports, or 2 % of loss beyond the random one together with a quarter of that delay, or
//! 10 % beyond it without (a policer). Less loss alone is no congestion: what is lost while the queue is
//! empty is learned as the random loss of the path.
//!
//! **The cut.** The bytes in flight with a packet, times base over the round trip of that packet,
//! are exactly the flow's share (Little's law). Flows of one bottleneck see the same queue, cut
//! within one round trip of one another, and drain it together. So each cycle shows all of them the
//! true base, and none has to guess it. And they grow by the same law in the same time: if the flow
//! added a bytes while the delay rose by q, then x = a base / q would be its share if it were
//! alone, and x x / share is the share that all have when they are equal. Each cut goes a
//! quarter of the way there: flows do not cut in the same instant, and with larger steps the shares
//! of two flows wander.
//!
//! **Compete.** A queue that does not empty although the flow's window fell belongs to flows that
//! fill it until packets are lost. Beside them the window rises, in at most 8 round trips, to the
//! bytes that the path holds without a queue, as far as the flow has seen it (`peak`). From then on:
//!
//! - A loss is answered as CUBIC answers it, down to half of `peak`.
//! - If packets are lost again within 16 round trips, the others did not yield: the window returns to
//!   `peak`, and losses lower it no more. BBR is such a flow. It ignores loss, and keeps twice the
//!   bytes of its part of the path in flight; so a flow that keeps the bytes of the path has half.
//! - Loss above 30 % halves `peak`, for several flows hold it: when 8 more round trips with losses had
//!   that much than had less.
//! - When the queue is nearly empty, the others are gone, or away for a moment, as BBR is every 10
//!   seconds. A train at 4 times the share tests how much they left. If a queue forms within a second
//!   that does not empty, the flow is back after two attempts.
//!
//! A queue that others keep at its limit is as steady as a longer path. So a delay is taken for a longer
//! path, and becomes the base, only if no packets were lost beyond the random loss, and if the bytes
//! in flight changed by enough to move a queue.
//!
//! The price: beside one BBR flow and a queue of half a path or one path, 17 to 18 % of the packets are
//! lost (`cargo run --release -p farwrite-rate --example grid noisy`). The flow keeps the queue as long as the others do. And it takes more than
//! its part beside several flows.
//!
//! # Why this algorithm
//!
//! - BBR version 3 (draft-ietf-ccwg-bbr) estimates the same two numbers, and its idea that loss
//!   alone is no congestion is used here. Its flows probe at different times, so that their
//!   estimates add up to more than the path carries, and its window of two paths then holds a queue
//!   of up to one round trip. Flows become equal over tens of probing cycles.
//! - Swift (SIGCOMM 2020) and Copa (NSDI 2018) hold a short delay. Swift adds a fixed step each
//!   round trip, too slow for 10^6 packets in flight; Copa's share is proportional to 1 / delay,
//!   which needs a delay of many packets on each path. From Copa come the regular emptying of the
//!   queue, the derivation of the share from a delay that all flows see, and the mode for
//!   flows that fill the queue.
//!
//! Parts were chosen on the grid below. At 1 Gbit/s and 25 ms, slow start instead of trains took 7
//! round trips instead of 3, and queued as much as the path holds. Doubling without a bound queued
//! 0.5 round trips after the capacity had doubled, and with it 0.38.
//!
//! # What was measured
//!
//! `cargo run --release -p farwrite-rate --example grid` prints all cells; `tests/grid.rs` checks a
//! part of them. Paths of 100 Mbit/s to 100 Gbit/s and 0.1 to 300 ms; eight reports a
//! round trip; the queue takes at least eight packets; delays are shares of the round trip. Packets
//! have 4096 bytes, or 1500 on paths of less than 256 KiB; on long paths the simulation sends
//! several at a time. Left out are the paths of one packet (100 Mbit/s, 0.1 ms), where a queue of
//! one packet is a round trip.
//!
//! | part | result | target |
//! |---|---|---|
//! | one flow, buffer 0.2 to 4 paths, loss 0 to 1 % | used 0.95 to 0.99; mean queue 0.02 to 0.23 | 0.9; 0.25 |
//! | one flow, buffer 0.1 | used 0.84 to 0.98; up to 11 % dropped | none |
//! | start, nothing known | 90 % used after 1 to 9 round trips, up to 14 at 0.1 ms | a few |
//! | start, true hint | 2 to 3 round trips | 2 |
//! | start, hint 2 and 10 times too high | 2 to 3 round trips; longest queue 0.77 | bounded |
//! | start, hint of a half and a tenth | 7 to 13, and 13 to 19 round trips: growth finds the rest | none |
//! | capacity halved, doubled | 0, and 2 to 14 (median 7) round trips | 10 |
//! | round trip halved, doubled | 0, and up to 18 (median 12) of the new round trips | 10 |
//! | 2 to 16 equal flows of 8 packets or more | Jain's index: median 0.98, 126 of 144 cells at least 0.9; mean queue: median 0.05 | 0.9; 0.25 |
//! | beside one CUBIC flow, buffer 1 to 4, up to 25 ms | share 0.12 to 0.67, median 0.49 | 0.2 to 0.8 |
//! | beside one Reno flow, buffer 1 to 4, up to 25 ms | share 0.17 to 0.87, median 0.53 | 0.2 to 0.8 |
//! | beside one CUBIC flow, seconds 20 to 80 (part `noisy`), buffer 1, 2, 4 | share 0.54, 0.44, 0.38 | 0.33 to 0.67 |
//! | beside one BBR flow, seconds 20 to 80 (part `noisy`), buffer 1, 2, 4 | share 0.40, 0.39, 0.41 | 0.33 to 0.67 |
//!
//! The part `noisy` is 200 Mbit/s and 40 ms with 1500-byte packets, 1 ms of host noise, and a model of
//! BBR version 1, the `bbr` of Linux.
//!
//! Equal flows start three round trips apart, and are measured for 60 round trips after the first
//! 100.
//!
//! Not met:
//!
//! - Sixteen flows on a path of fewer than eight packets each. Two packets are the least window, so
//!   the queue stays, and up to two thirds of the packets are dropped.
//! - Equality on some long paths with 1 % of loss, where the steps towards it are noisy.
//! - CUBIC and Reno at a buffer of 0.2: the flow mostly takes 0.8 to 0.95, for their window does not fill
//!   the path after a cut. CUBIC at 0.5: the flow mostly gets 0.15 to 0.2, for it still sees the queue run
//!   empty and does not compete.
//! - CUBIC on a path of 8 packets: the flow takes 0.12 at some buffers.
//! - CUBIC at 300 ms and a buffer of 1 to 4: the flow takes 0.72 to 0.75.
//! - BBR at a buffer of 0.25: the flow gets 0.03, for the queue runs empty too often to compete.
//! - At a buffer of 0.25, 4 to 16 equal flows lose 1 to 11 % of their packets (part `many`).
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod adaptive;
mod bucket;
mod control;
mod dcqcn;
mod eqds;
mod fixed;
mod math;
mod notice;
mod pulls;
mod receiver;
mod swift;

pub use adaptive::{Adaptive, AdaptiveOptions, Phase};
pub use bucket::TokenBucket;
pub use control::{Feedback, Limits, Loss, Newest, RateControl, Sent, Start};
pub use dcqcn::{Dcqcn, DcqcnOptions};
pub use eqds::Eqds;
pub use fixed::Fixed;
pub use notice::{Arrival, Notice, NotificationPoint, ReceiverControl};
pub use pulls::PullPacer;
pub use swift::{Swift, SwiftOptions};
