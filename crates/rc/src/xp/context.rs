//! What a NIC keeps of a queue pair.

use super::dcqcn::DcqcnContext;

/// Message numbers have 24 bits, as many as the PSN that carries them.
const SEQ_MASK: u32 = (1 << 24) - 1;
/// Half of the message numbers: those before this distance are later messages, the others earlier ones.
const SEQ_HALF: u32 = 1 << 23;
/// Place of the logarithm of the MTU in [`Context::peer`].
const MTU_SHIFT: u32 = 24;
const MTU_BITS: u32 = 0xF;
/// In [`Context::peer`]: a congestion notification waits to be sent.
const NOTIFIES: u32 = 1 << 31;

/// The state of a queue pair in the memory of a NIC. Celeris has the same sizes (III.A and IV.A).
///
/// ```
/// use farwrite_rc::xp::Context;
/// assert_eq!(size_of::<Context>(), 52);
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Context {
    /// Number of the peer's queue pair (24 bits), the logarithm of the MTU (4 bits), and [`NOTIFIES`].
    peer: u32,
    /// Number of the message that is sent now, or next.
    sending: u32,
    /// Number of the active message of the receiver.
    expected: u32,
    /// Bytes of the message `sending` that have left.
    pub(super) sent_bytes: u32,
    /// Payload bytes of the message `expected` that were placed.
    pub(super) placed_bytes: u32,
    pub(super) dcqcn: DcqcnContext,
}

impl Context {
    /// Bytes of the transport.
    pub const TRANSPORT_BYTES: usize = size_of::<Self>() - size_of::<DcqcnContext>();

    /// The state of a new queue pair. `mtu_bytes` is a power of two up to 2^15.
    pub(super) fn new(peer_qpn: u32, mtu_bytes: u32, dcqcn: DcqcnContext) -> Self {
        Self {
            peer: peer_qpn & SEQ_MASK | (mtu_bytes.trailing_zeros() & MTU_BITS) << MTU_SHIFT,
            sending: 0,
            expected: 0,
            sent_bytes: 0,
            placed_bytes: 0,
            dcqcn,
        }
    }

    /// The words of the context in the order of its memory: what hardware is compared with, word by word.
    #[must_use]
    pub fn words(&self) -> [u32; 13] {
        let [peer, sending, expected] = [self.peer, self.sending, self.expected];
        let transport = [peer, sending, expected, self.sent_bytes, self.placed_bytes];
        let dcqcn = self.dcqcn.words();
        core::array::from_fn(|at| {
            transport
                .get(at)
                .copied()
                .unwrap_or_else(|| dcqcn[at - transport.len()])
        })
    }

    pub(super) fn peer_qpn(&self) -> u32 {
        self.peer & SEQ_MASK
    }

    pub(super) fn mtu_bytes(&self) -> u32 {
        1 << (self.peer >> MTU_SHIFT & MTU_BITS)
    }

    pub(super) fn sending(&self) -> u32 {
        self.sending
    }

    /// How many messages a packet is after the active one; `None` if its message is an earlier one.
    pub(super) fn ahead(&self, seq: u32) -> Option<u32> {
        distance(seq, self.expected)
    }

    /// Number of the active message of the receiver.
    pub(super) fn expected(&self) -> u32 {
        self.expected
    }

    pub(super) fn end_send(&mut self) {
        self.sending = (self.sending + 1) & SEQ_MASK;
        self.sent_bytes = 0;
    }

    pub(super) fn end_receive(&mut self) {
        self.expected = (self.expected + 1) & SEQ_MASK;
        self.placed_bytes = 0;
    }

    pub(super) fn notify(&mut self) {
        self.peer |= NOTIFIES;
    }

    pub(super) fn notifies(&self) -> bool {
        self.peer & NOTIFIES != 0
    }

    /// Whether a notification waits. It does not wait any more.
    pub(super) fn take_notification(&mut self) -> bool {
        let notifies = self.notifies();
        self.peer &= !NOTIFIES;
        notifies
    }
}

/// How many messages one is after another one; `None` if it is an earlier one.
pub(super) fn distance(seq: u32, from: u32) -> Option<u32> {
    let distance = seq.wrapping_sub(from) & SEQ_MASK;
    (distance < SEQ_HALF).then_some(distance)
}

const _: () = assert!(Context::TRANSPORT_BYTES <= 20);
const _: () = assert!(size_of::<DcqcnContext>() <= 32);
const _: () = assert!(size_of::<Context>() <= 52);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_has_the_bytes_of_the_papers_table() {
        assert_eq!(Context::TRANSPORT_BYTES, 20);
        assert_eq!(size_of::<DcqcnContext>(), 32);
        assert_eq!(size_of::<Context>(), 52);
    }

    #[test]
    fn fields_that_share_a_word_do_not_change_each_other() {
        let mut context = Context::new(SEQ_MASK, 4096, DcqcnContext::new(1_000_000_000));
        context.notify();
        assert_eq!((context.peer_qpn(), context.mtu_bytes()), (SEQ_MASK, 4096));
        assert!(context.take_notification() && !context.take_notification());
        assert_eq!((context.peer_qpn(), context.mtu_bytes()), (SEQ_MASK, 4096));
    }

    #[test]
    fn later_messages_are_known_across_the_wrap_of_numbers() {
        let mut context = Context::new(1, 256, DcqcnContext::new(1_000_000_000));
        context.expected = SEQ_MASK;
        assert_eq!(context.ahead(SEQ_MASK), Some(0));
        assert_eq!(context.ahead(2), Some(3));
        assert_eq!(context.ahead(SEQ_MASK - 1), None);
        context.end_receive();
        assert_eq!((context.ahead(0), context.ahead(SEQ_MASK)), (Some(0), None));
        assert_eq!(
            (context.ahead(SEQ_HALF - 1), context.ahead(SEQ_HALF)),
            (Some(SEQ_HALF - 1), None)
        );
    }
}
