//! What a receiver returns to a sender in an acknowledgement, beside the acknowledgement itself.

use alloc::boxed::Box;

use farwrite_net::Telemetry;

/// What a packet brought with it from the network.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathNote {
    pub(crate) marked: bool,
    pub(crate) telemetry: Option<Box<Telemetry>>,
}

/// Marks and telemetry of the packets that an acknowledgement stands for. A receiver returns them if its own controller
/// reads them, since both ends of a connection have the same kind.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    /// Whether one of the packets had a mark.
    pub(crate) marked: bool,
    /// That of the newest packet.
    pub(crate) telemetry: Option<Box<Telemetry>>,
}

impl Echo {
    /// Adds what a packet brought.
    pub(crate) fn note(&mut self, note: PathNote) {
        self.marked |= note.marked;
        if let Some(telemetry) = note.telemetry {
            self.telemetry = Some(Box::new(telemetry.returned()));
        }
    }
}
