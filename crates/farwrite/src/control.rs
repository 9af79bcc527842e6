//! The control path of a queue pair: seals and opens control packets, and times the round trip.

use farwrite_wire::control::{self, Builder, Control, Echo, Header, ReplayWindow};

/// Keys, counters and timestamps of one queue pair's control packets (P4.1, P4.2).
pub(crate) struct ControlPath {
    /// Seals what goes to the peer; the peer made it.
    send_key: Option<[u8; 32]>,
    /// Opens what comes from the peer; made here.
    recv_key: [u8; 32],
    counter: u64,
    replay: ReplayWindow,
    /// The newest timestamp of the peer, and when it came.
    heard: Option<(u64, u64)>,
    builder: Builder,
    last_sent_ns: u64,
    /// When the peer was heard last, or spoken to first.
    silent_since_ns: Option<u64>,
}

/// A packet that was opened.
pub(crate) struct Opened<'a> {
    /// Our timestamp that the peer had last, and how long it held it.
    pub(crate) echo: Option<Echo>,
    pub(crate) messages: control::Messages<'a>,
}

impl ControlPath {
    pub(crate) fn new(recv_key: [u8; 32], max_bytes: usize) -> Self {
        Self {
            send_key: None,
            recv_key,
            counter: 0,
            replay: ReplayWindow::default(),
            heard: None,
            builder: Builder::new(max_bytes),
            last_sent_ns: 0,
            silent_since_ns: None,
        }
    }

    pub(crate) fn recv_key(&self) -> [u8; 32] {
        self.recv_key
    }

    pub(crate) fn connect(&mut self, send_key: [u8; 32]) {
        self.send_key = Some(send_key);
    }

    /// Checks tag and counter, and takes the timestamps in. `None` for a packet that is not to be
    /// believed: forged, replayed or malformed.
    pub(crate) fn open<'a>(&mut self, now_ns: u64, bytes: &'a [u8]) -> Option<Opened<'a>> {
        let (header, messages) = control::open(&self.recv_key, bytes).ok()?;
        if !self.replay.accept(header.counter) {
            return None;
        }
        self.silent_since_ns = Some(now_ns);
        // An older packet that was overtaken must not move the echo back.
        if self
            .heard
            .is_none_or(|(newest, _)| header.timestamp_ns > newest)
        {
            self.heard = Some((header.timestamp_ns, now_ns));
        }
        Some(Opened {
            echo: header.echo,
            messages,
        })
    }

    /// Puts a message into the packet under construction; false where it does not fit.
    pub(crate) fn push(&mut self, message: &Control) -> bool {
        self.builder.push(message)
    }

    /// Bytes that the body of one more message may have.
    pub(crate) fn room(&self) -> usize {
        self.builder.remaining()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    pub(crate) fn last_sent_ns(&self) -> u64 {
        self.last_sent_ns
    }

    /// How long nothing had been heard when the last packet was sent.
    pub(crate) fn silence_ns(&self) -> u64 {
        let since_ns = self.silent_since_ns.unwrap_or(self.last_sent_ns);
        self.last_sent_ns.saturating_sub(since_ns)
    }

    /// Ends the packet under construction, which may be an empty one (a ping). `None` before the
    /// queue pair is connected.
    pub(crate) fn seal(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        let key = self.send_key?;
        self.counter += 1;
        self.last_sent_ns = now_ns;
        self.silent_since_ns.get_or_insert(now_ns);
        let header = Header {
            counter: self.counter,
            timestamp_ns: now_ns,
            echo: self.heard.map(|(timestamp_ns, came_ns)| Echo {
                timestamp_ns,
                hold_ns: now_ns.saturating_sub(came_ns),
            }),
        };
        Some(self.builder.seal(&header, &key))
    }
}
