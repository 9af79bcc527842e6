//! One queue pair to another rank, for messages that arrive whole and in order.

use farwrite::{
    Endpoint, Error, Fabric, Outcome, QpOptions, QueuePair, RecvOptions, SchemeName, SendOptions,
};

use crate::qp_buffers::{Depth, QpBuffers};
use crate::repair::Repair;
use crate::segment::{HEADER_BYTES, Header};

/// A queue pair whose messages are repaired until they are whole.
#[derive(Debug)]
pub(crate) struct ExactQp {
    buffers: QpBuffers,
    repair: Repair,
    /// Whether a message was released since the last call of `was_heard`.
    heard: bool,
}

impl ExactQp {
    /// Wraps a queue pair with these options that has no messages yet.
    pub(crate) fn new(qp: QueuePair, options: &QpOptions, depth: Depth, repair: Repair) -> Self {
        Self {
            buffers: QpBuffers::new(qp, options, depth, RecvOptions::default()),
            repair,
            heard: false,
        }
    }

    /// The number of receive buffers and of send buffers.
    #[cfg(test)]
    pub(crate) fn buffers(&self) -> [usize; 2] {
        self.buffers.count()
    }

    pub(crate) fn queue_pair(&self) -> QueuePair {
        self.buffers.queue_pair()
    }

    /// Posts the first receives. The queue pair must be connected.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn open<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> Result<(), Error> {
        self.buffers.open(endpoint)
    }

    /// Posts the receives that could not be posted before, and more if the sender waits for
    /// receives. Returns whether it posted any.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn post<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        now_ns: u64,
    ) -> Result<bool, Error> {
        self.buffers.post(endpoint, now_ns)
    }

    /// The bytes of the next message in order; `None` until it has arrived.
    ///
    /// # Errors
    /// How it ended, if it is not whole.
    pub(crate) fn front<'a, F: Fabric>(
        &self,
        endpoint: &'a Endpoint<F>,
    ) -> Result<Option<&'a [u8]>, String> {
        let Some(receive) = self.buffers.receives().next() else {
            return Ok(None);
        };
        let Some(outcome) = receive.handle.outcome() else {
            return Ok(None);
        };
        if outcome != Outcome::Whole {
            return Err(not_whole(outcome));
        }
        let bytes = endpoint
            .memory(receive.region)
            .map_err(|error| error.to_string())?;
        let length = receive
            .handle
            .length()
            .and_then(|length| usize::try_from(length).ok());
        Ok(Some(&bytes[..length.unwrap_or(0).min(bytes.len())]))
    }

    /// The same as a segment: its header, and the bytes after it.
    ///
    /// # Errors
    /// As [`ExactQp::front`], or an error if the message has no header.
    pub(crate) fn front_segment<'a, F: Fabric>(
        &self,
        endpoint: &'a Endpoint<F>,
    ) -> Result<Option<(Header, &'a [u8])>, String> {
        let Some(bytes) = self.front(endpoint)? else {
            return Ok(None);
        };
        let header = Header::decode(bytes).ok_or("a segment has no header")?;
        Ok(Some((header, &bytes[HEADER_BYTES..])))
    }

    /// Releases the front message: its buffer can receive another message.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn release<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        now_ns: u64,
    ) -> Result<(), Error> {
        self.heard = true;
        self.buffers.release();
        self.buffers.post(endpoint, now_ns).map(|_| ())
    }

    /// Whether a message was released since the last call.
    pub(crate) fn was_heard(&mut self) -> bool {
        std::mem::take(&mut self.heard)
    }

    /// Sends a header and the bytes after it as one message. `left` bytes follow the header in this
    /// message and in those after it that belong to the same data. Returns the scheme of the
    /// message, or `None` if no buffer is free.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn send<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        header: &[u8],
        payload: &[u8],
        left: u64,
    ) -> Result<Option<SchemeName>, Error> {
        if !self.buffers.has_room() {
            return Ok(None);
        }
        let bytes = (header.len() + payload.len()) as u64;
        let qp = self.buffers.queue_pair();
        let scheme = self.repair.scheme(endpoint, qp, bytes, left)?;
        let options = SendOptions {
            scheme: scheme.tag(),
            ..SendOptions::default()
        };
        let sent = self.buffers.send(endpoint, &[header, payload], options)?;
        Ok(sent.then_some(scheme))
    }

    /// Whether a message can be sent.
    pub(crate) fn has_room(&self) -> bool {
        self.buffers.has_room()
    }

    /// Reclaims the buffers of messages that have arrived at the other end.
    ///
    /// # Errors
    /// How a message ended that did not arrive.
    pub(crate) fn reclaim(&mut self) -> Result<(), String> {
        let failed = self.buffers.reclaim();
        failed.map_or(Ok(()), |outcome| Err(not_whole(outcome)))
    }

    /// The number of messages that the other end has not confirmed.
    pub(crate) fn in_flight(&self) -> usize {
        self.buffers.in_flight()
    }
}

fn not_whole(outcome: Outcome) -> String {
    format!("a segment ended as {outcome:?}")
}
