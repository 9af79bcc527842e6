//! The control path of a queue pair: seals and opens control packets, and times the round trip.

use std::collections::VecDeque;

use farwrite_wire::control::{
    self, ACK_OVERHEAD_BYTES, Builder, Control, Echo, Header, ReplayWindow,
};

/// Most bytes of a control packet, whatever the MTU of the data (P4): enough for a report worth
/// having, one of RoCE's MTUs, and no more than passes any path (RFC 8200 section 5: 1280 bytes with
/// all headers).
pub(crate) const MTU: u32 = 1024;
/// Packets kept while the fabric is full; older ones are dropped, as a network would.
const MAX_SEALED: usize = 64;
/// Least room for a report that is worth a place in the packet under construction.
const MIN_REPORT_BYTES: usize = 256;

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
    /// Packets not yet sent.
    sealed: VecDeque<Vec<u8>>,
}

/// A packet that was opened.
pub(crate) struct Opened<'a> {
    /// Our timestamp that the peer had last, and how long it held it.
    pub(crate) echo: Option<Echo>,
    pub(crate) messages: control::Messages<'a>,
}

impl ControlPath {
    pub(crate) fn new(recv_key: [u8; 32]) -> Self {
        Self {
            send_key: None,
            recv_key,
            counter: 0,
            replay: ReplayWindow::default(),
            heard: None,
            builder: Builder::new(MTU as usize),
            last_sent_ns: 0,
            silent_since_ns: None,
            sealed: VecDeque::new(),
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

    /// Puts a message into the packet under construction, or into a new one.
    pub(crate) fn push(&mut self, now_ns: u64, message: &Control) {
        if self.builder.push(message) {
            return;
        }
        self.seal(now_ns);
        let fits = self.builder.push(message);
        debug_assert!(fits, "a control message larger than a packet: {message:?}");
    }

    /// Bytes of bits or ranges that the next report may have. A packet without room worth having is
    /// sealed: small pieces of a bitmap would take many packets to tell it.
    pub(crate) fn report_room(&mut self, now_ns: u64) -> usize {
        let room = |builder: &Builder| builder.remaining().saturating_sub(ACK_OVERHEAD_BYTES);
        if room(&self.builder) < MIN_REPORT_BYTES {
            self.seal(now_ns);
        }
        room(&self.builder)
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

    /// Ends the packet under construction, which may be an empty one (a ping).
    pub(crate) fn seal(&mut self, now_ns: u64) {
        let Some(key) = self.send_key else { return };
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
        if self.sealed.len() == MAX_SEALED {
            self.sealed.pop_front();
        }
        self.sealed.push_back(self.builder.seal(&header, &key));
    }

    /// Whether so many sealed packets wait that more might cost the oldest.
    pub(crate) fn is_crowded(&self) -> bool {
        self.sealed.len() >= MAX_SEALED / 2
    }

    /// The oldest sealed packet that was not sent.
    pub(crate) fn sealed(&self) -> Option<&[u8]> {
        self.sealed.front().map(Vec::as_slice)
    }

    /// Forgets the oldest sealed packet.
    pub(crate) fn sealed_was_sent(&mut self) {
        self.sealed.pop_front();
    }
}
