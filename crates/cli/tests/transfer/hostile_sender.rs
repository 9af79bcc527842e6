//! A sender that has the key and sends arbitrary messages.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farwrite::{
    Endpoint, Outcome, QpConfig, QpInfo, QpOptions, QueuePair, SchemeName, SendHandle, SendOptions,
    UdpConfig, UdpFabric,
};
use farwrite_files::{Entry, Hello, Kind, Message, OfferedSockets, QpBlob, Time, TransferPlan};
use farwrite_keys::{Key, Text};
use farwrite_transfer::{Cancel, Channel, ChannelError, connect_first};

use crate::rig::Rig;

const PATIENCE: Duration = Duration::from_secs(60);

/// Why a receiver takes no offer.
pub(crate) type Refused = Box<dyn std::error::Error + Send + Sync>;
pub(crate) const SEGMENT: usize = 64 << 10;
pub(crate) const SEGMENT_BYTES: u64 = SEGMENT as u64;

pub(crate) struct HostileSender {
    pub(crate) channel: Channel,
    pub(crate) endpoint: Endpoint<UdpFabric>,
    pub(crate) qp: QueuePair,
}

/// Returns the plan that an honest sender of these entries would offer.
pub(crate) fn plan(entries: &[Entry]) -> TransferPlan {
    let bytes = entries.iter().map(|entry| match entry.kind {
        Kind::File { bytes, .. } => bytes,
        _ => 0,
    });
    TransferPlan {
        scheme: Text::new("sr-nack"),
        segment_bytes: SEGMENT_BYTES,
        entries: u32::try_from(entries.len()).expect("few"),
        stream_bytes: bytes.sum(),
    }
}

pub(crate) fn config() -> QpConfig {
    QpConfig {
        slots: 8,
        max_message_bytes: SEGMENT_BYTES,
        ..QpConfig::default()
    }
}

pub(crate) fn file(name: impl AsRef<[u8]>, bytes: u64) -> Entry {
    Entry {
        parent: None,
        name: name.as_ref().to_vec(),
        kind: Kind::File {
            bytes,
            sparse: false,
        },
        mode: 0o644,
        modified: Time::default(),
    }
}

/// Opens the channel of a transfer.
pub(crate) fn dial(rig: &Rig, addr: SocketAddr) -> Channel {
    let key = Key::PreShared(rig.psk.clone());
    let channel = connect_first(&[addr], &key, PATIENCE, &Cancel::default());
    let mut channel = channel.expect("the key fits");
    channel.set_read_timeout(Some(PATIENCE));
    channel
}

impl HostileSender {
    /// Completes the handshake and sends hello. Its queue pair has this shape.
    pub(crate) fn meet(rig: &Rig, addr: SocketAddr, sdr: QpConfig) -> Self {
        let mut channel = dial(rig, addr);
        let hello = Hello {
            software: Text::new("liar"),
            // All capabilities of later versions, except those that make it another session.
            capabilities: !Hello::DRY_RUNS,
        };
        channel.send(&Message::Hello(hello)).expect("sent");
        assert!(matches!(channel.recv(), Ok(Message::Hello(_))));
        let mut bind = channel.local_addr();
        bind.set_port(0);
        let mut endpoint = Endpoint::over_udp(&UdpConfig::new(bind)).expect("socket");
        let options = QpOptions {
            sdr,
            ..QpOptions::default()
        };
        let qp = endpoint.create_qp(options).expect("queue pair");
        let mut liar = Self {
            channel,
            endpoint,
            qp,
        };
        liar.offer_path();
        liar
    }

    /// Claims to be an end with the queue pairs of an RDMA NIC, and processes the offer of the
    /// receiver.
    fn offer_path(&mut self) {
        let offer = OfferedSockets {
            key: None,
            addresses: vec![self.info().control.into()],
        };
        self.say(&Message::Route(offer));
        let theirs = self.hear();
        assert!(matches!(theirs, Ok(Message::Route(_))), "{theirs:?}");
    }

    /// Returns the information about its queue pair that it would send if it were honest.
    pub(crate) fn info(&self) -> QpInfo {
        self.endpoint.qp_info(self.qp).expect("queue pair")
    }

    pub(crate) fn say(&mut self, message: &Message) {
        // The channel may be closed, because the receiver has already failed.
        let _ = self.channel.send(message);
    }

    /// Sends the plan, the manifest and the queue pair. Connects to the queue pair of the receiver
    /// if the receiver accepts.
    pub(crate) fn offer(&mut self, plan: TransferPlan, entries: Vec<Entry>) -> Result<(), Refused> {
        let info = self.info();
        self.offer_info(plan, entries, &info)
    }

    pub(crate) fn offer_info(
        &mut self,
        plan: TransferPlan,
        entries: Vec<Entry>,
        info: &QpInfo,
    ) -> Result<(), Refused> {
        self.say(&Message::Plan(plan));
        if !entries.is_empty() {
            self.say(&Message::Entries(entries));
        }
        self.say(&Message::QpInfo(QpBlob(info.encode().expect("encoded"))));
        match self.hear()? {
            Message::QpInfo(blob) => {
                let theirs = QpInfo::decode(&blob.0).expect("decoded");
                self.endpoint.connect_qp(self.qp, &theirs).expect("fits");
                Ok(())
            }
            other => Err(other.unexpected("queue-pair information").into()),
        }
    }

    /// Starts to send a message.
    pub(crate) fn post(&mut self, bytes: Vec<u8>) -> SendHandle {
        let region = self.endpoint.register(bytes).expect("memory");
        let options = SendOptions {
            scheme: SchemeName::SrNack.scheme().tag(),
            ..SendOptions::default()
        };
        let posted = self.endpoint.post_send(self.qp, region.whole(), options);
        posted.expect("a slot")
    }

    /// Polls until a message has ended, or until this time has passed.
    pub(crate) fn drive(&mut self, send: &SendHandle, at_most: Duration) -> Option<Outcome> {
        let start = Instant::now();
        let done = |_: &mut Endpoint<_>| send.outcome().is_some() || start.elapsed() > at_most;
        self.endpoint.run_until(done).expect("socket");
        send.outcome()
    }

    /// Returns the next message of the receiver that is not a progress report.
    pub(crate) fn hear(&mut self) -> Result<Message, ChannelError> {
        loop {
            match self.channel.recv()? {
                Message::Progress(_) => {}
                other => return Ok(other),
            }
        }
    }

    /// Returns the reason why the receiver gave up.
    pub(crate) fn hear_why(&mut self) -> String {
        loop {
            match self.hear() {
                Ok(Message::Abort { reason, .. }) => return reason.to_string(),
                Ok(_) => {}
                Err(error) => return error.to_string(),
            }
        }
    }
}
