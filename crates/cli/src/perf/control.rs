//! What client and server tell each other: lines of JSON over a queue pair of their own.

use std::fmt::Display;
use std::time::Duration;

use farwrite::{QpConfig, QpOptions, SchemeName, SchemeTag, Sealing};
use serde::{Deserialize, Serialize};

use super::args::{Connection, MOST_BYTES, Test, name};
use crate::exit::{Exit, Failure};

/// The name of the queue pair of these lines.
pub(super) const NAME: &str = "perf";
/// The longest line.
pub(super) const MOST_LINE_BYTES: usize = 1 << 16;
/// The highest number of queue pairs, and of messages in flight on each.
const MOST_QUEUE_PAIRS: u16 = 32;
const MOST_DEPTH: u16 = 256;

/// The client asks for this.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Make ready for a measurement. The client then opens the queue pairs.
    Open(Setting),
    /// The client's queue pairs for [`Answer::Apart`].
    Connect { ends: Vec<Vec<u8>> },
    /// Say what has arrived; there is no other measurement.
    Finish,
}

/// What the server answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The server accepts the queue pairs of the setting.
    Accepted,
    /// An end has an RDMA device, or sockets for the data, so these are not on the connection. These are the
    /// server's queue pairs (P6), and the bytes of a packet; the client answers with its own.
    Apart {
        mtu: u32,
        ends: Vec<Vec<u8>>,
        /// Whether an end has a device. Servers of older versions do not say it, and have one.
        #[serde(default = "yes")]
        has_device: bool,
    },
    /// The server is ready. For reads, the memory of each queue pair.
    Opened {
        regions: Vec<u64>,
    },
    /// The server does not do what was asked.
    Refused {
        why: String,
    },
    Finished(Arrived),
}

/// The setting of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Setting {
    pub(super) test: Test,
    pub(super) connection: Connection,
    pub(super) scheme: String,
    pub(super) max_bytes: u64,
    pub(super) queue_pairs: u16,
    pub(super) tx_depth: u16,
    pub(super) mtu: u32,
    pub(super) packets_per_chunk: u32,
    /// Whether the client has an RDMA device. Older versions do not know it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_device: bool,
    /// Whether the client wants sockets of their own for the data. Older versions do not know it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) has_sockets: bool,
    /// Channels of each queue pair.
    #[serde(default = "one")]
    pub(super) channels: u8,
}

fn yes() -> bool {
    true
}

fn one() -> u8 {
    1
}

/// What has arrived at the server.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Arrived {
    /// Messages of which all has arrived.
    pub(super) whole: u64,
    /// Messages of which a part is missing.
    pub(super) partial: u64,
    /// Messages that have failed.
    pub(super) failed: u64,
    pub(super) bytes: u64,
}

impl Setting {
    /// Checks what a peer has sent.
    pub(super) fn check(&self, test: Test) -> Result<(), Failure> {
        if self.test != test {
            return Err(unfit(format_args!(
                "the server measures {}, and the client {}: start both with the same test",
                name(test),
                name(self.test)
            )));
        }
        let buffers = u64::from(self.queue_pairs) * self.buffers();
        let is_fit = (1..=MOST_QUEUE_PAIRS).contains(&self.queue_pairs)
            && (1..=MOST_DEPTH).contains(&self.tx_depth)
            && (1..=MOST_BYTES).contains(&self.max_bytes)
            && buffers.saturating_mul(self.max_bytes) <= 4 * MOST_BYTES;
        if !is_fit {
            return Err(unfit(format_args!(
                "{} queue pairs, {} messages in flight and messages of {} bytes need too much memory at the \
                 server: {buffers} buffers, which may have 4 GiB together; give a smaller -s, -q or -t",
                self.queue_pairs, self.tx_depth, self.max_bytes
            )));
        }
        self.options().map(drop)
    }

    /// Buffers of a queue pair at the server.
    pub(super) fn buffers(&self) -> u64 {
        match self.test {
            Test::SendBw => self.tx_depth.into(),
            Test::WriteBw | Test::WriteLat | Test::ReadBw => 1,
        }
    }

    pub(super) fn scheme(&self) -> Result<SchemeTag, Failure> {
        let scheme = self.scheme.parse::<SchemeName>();
        scheme.map(SchemeName::tag).map_err(unfit)
    }

    /// The options of each queue pair, which are the same at both ends.
    pub(super) fn options(&self) -> Result<QpOptions, Failure> {
        let sdr = QpConfig {
            mtu: self.mtu,
            packets_per_chunk: self.packets_per_chunk,
            // Twice as many as messages are in flight, so that receives are posted ahead.
            slots: (2 * u32::from(self.tx_depth)).next_power_of_two(),
            // More than the messages have, because parity counts too.
            max_message_bytes: MOST_BYTES.min(u64::from(self.mtu) << 18),
            channels: self.channels,
            ..QpConfig::default()
        };
        sdr.validate().map_err(unfit)?;
        if self.max_bytes > sdr.max_message_bytes {
            return Err(unfit(format_args!(
                "a message of {} bytes is too long: with packets of {} bytes, it has at most {}",
                self.max_bytes, self.mtu, sdr.max_message_bytes
            )));
        }
        Ok(QpOptions {
            sdr,
            expected_scheme: self.scheme()?,
            initial_rtt: Duration::from_millis(1),
            max_answers: u32::from(self.tx_depth),
            // RDMA devices do not seal.
            sealing: Sealing::Preferred,
            ..QpOptions::default()
        })
    }
}

/// A setting that the two ends cannot have.
fn unfit(why: impl Display) -> Failure {
    Failure::new(Exit::Mismatch, why)
}
