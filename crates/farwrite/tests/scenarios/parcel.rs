//! Messages between two ends, and the checks of their results.

use farwrite::{
    CriticalRanges, Error, MemoryRegion, Outcome, RecvHandle, RecvOptions, SchemeTag, SendHandle,
    SendOptions,
};

use crate::world::{MS, SECOND, Way, World};

/// The initial bytes of all memory, in buffers and around them.
pub(crate) const UNTOUCHED: u8 = 0xee;
/// Bytes watched on both sides of a buffer.
const GUARD: usize = 96;

/// A message to send.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) way: Way,
    pub(crate) bytes: Vec<u8>,
    pub(crate) scheme: SchemeTag,
    pub(crate) immediate: Option<u32>,
    /// Deadline of the send.
    pub(crate) deadline_ns: Option<u64>,
    pub(crate) critical: CriticalRanges,
    /// Bytes by which the buffer is longer than the message.
    pub(crate) spare: usize,
}

impl Order {
    pub(crate) fn new(bytes: Vec<u8>, scheme: SchemeTag) -> Self {
        Self {
            way: Way::Forth,
            bytes,
            scheme,
            immediate: None,
            deadline_ns: None,
            critical: CriticalRanges::NONE,
            spare: 0,
        }
    }
}

/// A posted send and its memory.
pub(crate) struct Outbound {
    pub(crate) send: SendHandle,
    source: MemoryRegion,
}

/// A posted receive and its memory.
pub(crate) struct Inbound {
    pub(crate) recv: RecvHandle,
    target: MemoryRegion,
}

/// A message with both of its ends.
pub(crate) struct Parcel {
    pub(crate) order: Order,
    pub(crate) out: Outbound,
    pub(crate) inn: Inbound,
}

impl World {
    /// Posts a send of the order's bytes.
    pub(crate) fn post_send(&mut self, order: &Order) -> Result<Outbound, Error> {
        let end = self.sender(order.way);
        let source = end.endpoint.register(order.bytes.clone())?;
        let options = SendOptions {
            scheme: order.scheme,
            immediate: order.immediate,
            first_chunk: 0,
            deadline_ns: order.deadline_ns,
            critical: order.critical,
        };
        match end.endpoint.post_send(end.qp, source.whole(), options) {
            Ok(send) => Ok(Outbound { send, source }),
            Err(error) => {
                end.endpoint.deregister(source)?;
                Err(error)
            }
        }
    }

    /// Posts a receive of `capacity` bytes, with guard bytes around it.
    pub(crate) fn post_recv(&mut self, way: Way, capacity: usize) -> Result<Inbound, Error> {
        self.post_recv_with(way, capacity, RecvOptions::default())
    }

    /// Posts a receive with terms or a deadline.
    pub(crate) fn post_recv_with(
        &mut self,
        way: Way,
        capacity: usize,
        options: RecvOptions,
    ) -> Result<Inbound, Error> {
        let end = self.receiver(way);
        let target = end
            .endpoint
            .register(vec![UNTOUCHED; capacity + 2 * GUARD])?;
        let buffer = target.slice(GUARD as u64..(GUARD + capacity) as u64);
        match end.endpoint.post_recv_with(end.qp, buffer, options) {
            Ok(recv) => Ok(Inbound { recv, target }),
            Err(error) => {
                end.endpoint.deregister(target)?;
                Err(error)
            }
        }
    }

    /// Posts both sides of a message.
    pub(crate) fn ship(&mut self, order: Order) -> Parcel {
        self.ship_to(order, RecvOptions::default())
    }

    /// Posts both sides of a message, with terms or a deadline for the receive.
    pub(crate) fn ship_to(&mut self, order: Order, options: RecvOptions) -> Parcel {
        let capacity = order.bytes.len() + order.spare;
        let inn = self.post_recv_with(order.way, capacity, options);
        let inn = inn.expect("a free slot");
        let out = self.post_send(&order).expect("a free slot");
        Parcel { order, out, inn }
    }

    /// Runs until the sender of every message knows its outcome. Returns the time that this took.
    ///
    /// # Panics
    /// If it takes longer than `limit_ns`.
    pub(crate) fn deliver(&mut self, parcels: &[Parcel], limit_ns: u64) -> u64 {
        let start_ns = self.now_ns();
        let open = |parcel: &&Parcel| parcel.out.send.outcome().is_none();
        let done = self.run_until(start_ns + limit_ns, |_| !parcels.iter().any(|p| open(&p)));
        if !done {
            let late: Vec<_> = parcels.iter().filter(open).map(Parcel::describe).collect();
            panic!("not over after {} ms: {late:#?}", limit_ns / MS);
        }
        self.now_ns() - start_ns
    }

    /// Returns the bytes of a posted receive's buffer.
    ///
    /// # Panics
    /// If a guard byte was overwritten.
    pub(crate) fn buffer(&mut self, way: Way, inn: &Inbound) -> Vec<u8> {
        let mut memory = vec![0; usize::try_from(inn.target.length()).expect("in memory")];
        let endpoint = &self.receiver(way).endpoint;
        let read = endpoint.read_memory(inn.target, 0, &mut memory);
        read.expect("registered");
        let (before, rest) = memory.split_at(GUARD);
        let (buffer, after) = rest.split_at(rest.len() - GUARD);
        let untouched = |bytes: &[u8]| bytes.iter().all(|&byte| byte == UNTOUCHED);
        assert!(untouched(before), "something was written before a buffer");
        assert!(untouched(after), "something was written behind a buffer");
        buffer.to_vec()
    }

    /// Checks that a message arrived whole, and that nothing else was written.
    pub(crate) fn check(&mut self, parcel: &Parcel) {
        let name = parcel.describe();
        let Parcel { order, out, inn } = parcel;
        assert_eq!(out.send.outcome(), Some(Outcome::Whole), "{name}");
        assert_eq!(inn.recv.outcome(), Some(Outcome::Whole), "{name}");
        assert_eq!(inn.recv.length(), Some(order.bytes.len() as u64), "{name}");
        assert_eq!(inn.recv.immediate(), order.immediate, "{name}");
        assert_eq!(out.send.message(), inn.recv.message(), "{name}");
        let buffer = self.buffer(order.way, inn);
        let (buffer, rest) = buffer.split_at(order.bytes.len());
        assert!(buffer == order.bytes, "{name}: wrong bytes");
        assert!(rest.iter().all(|&b| b == UNTOUCHED), "{name}: bytes behind");
    }

    /// Checks that a message ended as partial, and that its bitmap names exactly the chunks that
    /// arrived. Each chunk must be one packet of `mtu` bytes.
    pub(crate) fn check_part(&mut self, parcel: &Parcel, mtu: usize) {
        let name = parcel.describe();
        let Parcel { order, inn, .. } = parcel;
        assert_eq!(inn.recv.outcome(), Some(Outcome::Partial), "{name}");
        let partial = inn.recv.partial().expect("an outcome of partial").clone();
        let buffer = self.buffer(order.way, inn);
        let (buffer, rest) = buffer.split_at(order.bytes.len());
        assert!(rest.iter().all(|&b| b == UNTOUCHED), "{name}: bytes behind");
        let mut bytes = 0;
        for (chunk, (is, sent)) in (0..).zip(buffer.chunks(mtu).zip(order.bytes.chunks(mtu))) {
            if partial.has_chunk(chunk) {
                bytes += sent.len() as u64;
                assert!(is == sent, "{name}: wrong bytes in chunk {chunk}");
            } else {
                let untouched = is.iter().all(|&b| b == UNTOUCHED);
                assert!(untouched, "{name}: chunk {chunk} is there, and not named");
            }
        }
        assert_eq!(partial.bytes(), bytes, "{name}");
        let named: u32 = partial.bits().iter().map(|byte| byte.count_ones()).sum();
        assert!(named <= partial.chunks(), "{name}");
    }

    /// Checks messages, and that they leave nothing behind: their memory can be deregistered,
    /// nothing more is sent and no timer runs.
    pub(crate) fn finish(mut self, parcels: Vec<Parcel>) {
        for parcel in &parcels {
            self.check(parcel);
        }
        let (outs, inns) = parcels
            .into_iter()
            .map(|Parcel { order, out, inn }| ((order.way, out), (order.way, inn)))
            .unzip();
        self.close(outs, inns);
    }

    /// Deregisters the memory of a message that has ended.
    pub(crate) fn forget(&mut self, parcel: Parcel) {
        let Parcel { order, out, inn } = parcel;
        self.take_back(vec![(order.way, out)], vec![(order.way, inn)]);
    }

    /// Like [`World::finish`], for messages that may not have arrived.
    pub(crate) fn close(mut self, outs: Vec<(Way, Outbound)>, inns: Vec<(Way, Inbound)>) {
        self.take_back(outs, inns);
        self.expect_silence();
        for end in [&mut self.a, &mut self.b] {
            end.endpoint.destroy_qp(end.qp).expect("it is there");
        }
    }

    fn take_back(&mut self, outs: Vec<(Way, Outbound)>, inns: Vec<(Way, Inbound)>) {
        for (way, out) in outs {
            assert!(
                out.send.outcome().is_some(),
                "message {} is open",
                out.send.message()
            );
            let back = self.sender(way).endpoint.deregister(out.source);
            back.expect("nothing is sent from it any more");
        }
        for (way, inn) in inns {
            assert!(
                inn.recv.outcome().is_some(),
                "receive {} is open",
                inn.recv.message()
            );
            let back = self.receiver(way).endpoint.deregister(inn.target);
            back.expect("nothing is received into it any more");
        }
    }

    /// Checks that both ends become silent within seconds after all messages have ended, and stay
    /// silent.
    pub(crate) fn expect_silence(&mut self) {
        self.traffic.pass_all();
        self.run_for(5 * SECOND);
        let (tally, polls) = (self.traffic.tally(), self.idle_polls);
        self.run_for(60 * SECOND);
        assert_eq!(
            self.traffic.tally(),
            tally,
            "an idle queue pair is not silent"
        );
        assert!(
            self.idle_polls - polls <= 2,
            "timers run in an idle queue pair"
        );
    }
}

impl Parcel {
    pub(crate) fn outcomes(&self) -> [Option<Outcome>; 2] {
        [self.out.send.outcome(), self.inn.recv.outcome()]
    }

    pub(crate) fn describe(&self) -> String {
        let Order {
            way, bytes, scheme, ..
        } = &self.order;
        let message = self.out.send.message();
        let bytes = bytes.len();
        format!(
            "message {message} {way:?}, {bytes} bytes, scheme {}",
            scheme.id
        )
    }
}
