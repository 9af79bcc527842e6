//! The full stack over loopback: one message through endpoints, SDR, a scheme and the UDP fabric.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use farwrite::{
    Cipher, CodingThreads, Endpoint, Error, MemoryRegion, Outcome, QpConfig, QpOptions, QueuePair,
    RateControl, SchemeTag, Sealing, SendOptions, UdpConfig, UdpFabric,
};

use crate::connect::connect;
use crate::meter::{Meter, Moved};

/// Longest sleep of an end before it checks whether the other has finished.
const MAX_WAIT: Duration = Duration::from_millis(5);

/// Two endpoints on loopback, a source at one and a destination at the other.
pub(crate) struct StackPair {
    tx: Side,
    rx: Side,
}

struct Side {
    endpoint: Endpoint<UdpFabric>,
    qp: QueuePair,
    memory: MemoryRegion,
}

impl StackPair {
    /// Registers buffers of equal length, and connects the ends. The receiver has `workers` receive
    /// threads, each with its own port and channel. With 0, its poll receives.
    ///
    /// # Errors
    /// The endpoints'.
    pub(crate) fn new(
        mtu: u32,
        rate_control: RateControl,
        workers: u8,
        sealing: Sealing,
        source: Vec<u8>,
        destination: Vec<u8>,
    ) -> Result<Self, Error> {
        let options = QpOptions {
            rate_control,
            sealing,
            ..QpOptions::default()
        };
        Self::with_options(mtu, options, workers, source, destination)
    }

    /// Same as [`StackPair::new`], with more of the options of queue pairs.
    ///
    /// # Errors
    /// The endpoints'.
    pub(crate) fn with_options(
        mtu: u32,
        options: QpOptions,
        workers: u8,
        source: Vec<u8>,
        destination: Vec<u8>,
    ) -> Result<Self, Error> {
        let channels = workers.max(1);
        let options = QpOptions {
            sdr: QpConfig {
                mtu,
                max_message_bytes: source.len() as u64,
                slots: 4,
                channels,
                ..QpConfig::default()
            },
            initial_rtt: Duration::from_millis(1),
            ..options
        };
        let config = UdpConfig {
            ports: channels.into(),
            ..UdpConfig::new(([127, 0, 0, 1], 0).into())
        };
        let mut tx = Endpoint::over_udp(&config)?;
        let mut rx = Endpoint::over_udp(&config)?;
        if workers > 0 {
            rx.start_workers()?;
        }
        let [tx_qp, rx_qp] = connect(&mut tx, &mut rx, &options)?;
        let side = |mut endpoint: Endpoint<_>, qp, memory| -> Result<Side, Error> {
            let memory = endpoint.register(memory)?;
            Ok(Side {
                endpoint,
                qp,
                memory,
            })
        };
        Ok(Self {
            tx: side(tx, tx_qp, source)?,
            rx: side(rx, rx_qp, destination)?,
        })
    }

    /// Lets both ends code on threads.
    ///
    /// # Errors
    /// The endpoints'.
    pub(crate) fn code_on(&mut self, threads: CodingThreads) -> Result<(), Error> {
        self.tx.endpoint.code_on(threads)?;
        self.rx.endpoint.code_on(threads)
    }

    /// The cipher of data packets; `None` if they are not sealed.
    ///
    /// # Errors
    /// The endpoint's.
    pub(crate) fn cipher(&self) -> Result<Option<Cipher>, Error> {
        self.tx.endpoint.cipher(self.tx.qp)
    }

    /// Moves the whole source once with a scheme, and waits until the sender has the
    /// acknowledgement.
    ///
    /// # Errors
    /// The endpoints'.
    pub(crate) fn run(&mut self, scheme: SchemeTag) -> Result<Moved, Error> {
        let recv = self
            .rx
            .endpoint
            .post_recv(self.rx.qp, self.rx.memory.whole())?;
        let options = SendOptions {
            scheme,
            ..SendOptions::default()
        };
        let send = self
            .tx
            .endpoint
            .post_send(self.tx.qp, self.tx.memory.whole(), options)?;
        let before = (self.tx.endpoint.counters(), self.rx.endpoint.counters());
        let done = AtomicBool::new(false);
        let (tx, rx) = (&mut self.tx.endpoint, &mut self.rx.endpoint);
        let meter = Meter::start();
        thread::scope(|scope| {
            let receiver = scope.spawn(|| -> Result<(), Error> {
                while !done.load(Ordering::Acquire) {
                    rx.poll_and_wait(MAX_WAIT)?;
                }
                Ok(())
            });
            let sent = tx.run_until(|_| send.outcome().is_some());
            done.store(true, Ordering::Release);
            receiver.join().expect("the receiver does not panic")?;
            sent
        })?;
        let usage = meter.read();
        // The receiver's outcome may be later than the sender's, because its workers must first
        // leave their batches.
        rx.run_until(|_| recv.outcome().is_some())?;
        assert_eq!(recv.outcome(), Some(Outcome::Whole), "the message arrived");
        let after = (self.tx.endpoint.counters(), self.rx.endpoint.counters());
        Ok(Moved {
            bytes: self.tx.memory.length(),
            sent: after.0.sent_packets - before.0.sent_packets,
            received: after.1.received_packets - before.1.received_packets,
            usage,
        })
    }
}
