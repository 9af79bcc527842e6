//! Messages that the library repairs, for `farwrite.h`.

use std::ffi::{c_int, c_void};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use farwrite::fabric::udp::ReadyEvent;
use farwrite::{
    Endpoint, MemoryRegion, Outcome, RealTime, RecvHandle, RecvOptions, SchemeName, SendHandle,
    SendOptions, TaskState, UdpFabric,
};
use farwrite_connection::Error;

use crate::connections::{Opened, gone, late, limit};
use crate::descriptors::Descriptor;
use crate::failure::Failure;
use crate::memory::{Access, raw_region};

/// How long the fabric may hold packets of a message that was cancelled.
const DEPARTURE_LIMIT: Duration = Duration::from_secs(5);

/// How a message is sent or received.
#[derive(Clone, Default)]
pub(crate) struct Terms {
    pub(crate) scheme: Option<String>,
    /// 0: none.
    pub(crate) deadline_ms: u32,
    pub(crate) accepts_partial: bool,
}

impl Terms {
    fn scheme(&self) -> Result<Option<SchemeName>, Failure> {
        let parse = |name: &String| {
            SchemeName::from_str(name)
                .map_err(|error| Failure::new(format!("scheme = {name:?}: {error}")))
        };
        self.scheme.as_ref().map(parse).transpose()
    }

    fn deadline_ns(&self, endpoint: &Endpoint<UdpFabric>) -> Option<u64> {
        let from_now = u64::from(self.deadline_ms) * 1_000_000;
        (from_now > 0).then(|| endpoint.fabric().now_ns() + from_now)
    }
}

#[derive(Clone)]
enum Side {
    Send(SendHandle),
    Receive(RecvHandle),
}

impl Side {
    fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Send(send) => send.outcome(),
            Self::Receive(recv) => recv.outcome(),
        }
    }
}

/// What `farwrite_message` names.
pub(crate) struct Message {
    qp: Arc<Opened>,
    side: Side,
    region: MemoryRegion,
    bytes: u64,
    descriptor: Descriptor,
}

/// How a message ended.
pub(crate) struct Ending {
    pub(crate) outcome: Outcome,
    pub(crate) length: u64,
    pub(crate) arrived_bytes: u64,
}

impl Message {
    pub(crate) fn send(
        qp: &Arc<Opened>,
        addr: *mut c_void,
        length: usize,
        terms: &Terms,
    ) -> Result<Self, Failure> {
        let mut options = SendOptions::default();
        if let Some(scheme) = terms.scheme()? {
            options.scheme = scheme.tag();
        }
        let terms = terms.clone();
        Self::start(
            qp,
            addr,
            length,
            Access::Read,
            move |endpoint, qp, region| {
                options.deadline_ns = terms.deadline_ns(endpoint);
                let send = endpoint.post_send(qp, region.whole(), options)?;
                Ok(Side::Send(send))
            },
        )
    }

    pub(crate) fn receive(
        qp: &Arc<Opened>,
        addr: *mut c_void,
        length: usize,
        terms: &Terms,
    ) -> Result<Self, Failure> {
        let mut options = RecvOptions {
            scheme: terms.scheme()?.map(SchemeName::tag),
            accept_partial: terms.accepts_partial,
            ..RecvOptions::default()
        };
        let terms = terms.clone();
        Self::start(
            qp,
            addr,
            length,
            Access::Write,
            move |endpoint, qp, region| {
                options.deadline_ns = terms.deadline_ns(endpoint);
                let recv = endpoint.post_recv_with(qp, region.whole(), options)?;
                Ok(Side::Receive(recv))
            },
        )
    }

    fn start(
        qp: &Arc<Opened>,
        addr: *mut c_void,
        length: usize,
        access: Access,
        post: impl FnOnce(
            &mut Endpoint<UdpFabric>,
            farwrite::QueuePair,
            MemoryRegion,
        ) -> Result<Side, farwrite::Error>
        + Send
        + 'static,
    ) -> Result<Self, Failure> {
        let region = raw_region(addr, length, access)?;
        let started = qp.0.call(move |endpoint, name| {
            let region = endpoint.register_region(region)?;
            match post(endpoint, name, region) {
                Ok(side) => Ok((side, region)),
                Err(error) => {
                    endpoint.deregister(region)?;
                    Err(error)
                }
            }
        })?;
        let (side, region) = started.map_err(|error| gone(qp.0.connection(), error))?;
        Ok(Self {
            qp: Arc::clone(qp),
            side,
            region,
            bytes: length as u64,
            descriptor: Descriptor::default(),
        })
    }

    /// How the message ended; [`Failure::Retry`] if it is still open after the limit.
    pub(crate) fn wait(&self, timeout_ms: u32) -> Result<Ending, Failure> {
        let outcome = match self.side.outcome() {
            Some(outcome) => outcome,
            None if timeout_ms == 0 => return Err(Failure::Retry(String::new())),
            None => {
                let thread = self.qp.0.connection().thread();
                let waited = thread.wait(limit(timeout_ms), || self.side.outcome())?;
                waited.ok_or_else(late)?
            }
        };
        let (length, partial_bytes) = match &self.side {
            Side::Send(_) => (self.bytes, 0),
            Side::Receive(recv) => {
                let partial = recv.partial().map_or(0, farwrite::Partial::bytes);
                (recv.length().unwrap_or(0), partial)
            }
        };
        Ok(Ending {
            outcome,
            length,
            arrived_bytes: match outcome {
                Outcome::Whole => length,
                Outcome::Partial => partial_bytes,
                Outcome::Failed => 0,
            },
        })
    }

    /// A descriptor that is readable once the message has ended.
    pub(crate) fn descriptor(&self) -> Result<c_int, Failure> {
        self.descriptor.number(|| {
            let mut ready = ReadyEvent::default();
            let descriptor = ready.descriptor(false).map_err(farwrite::Error::from)?;
            let (side, opened) = (self.side.clone(), &self.qp.0);
            // The end of the task ends `ready`, whatever the reason.
            let run = move |_: &mut _| match side.outcome() {
                None => TaskState::Idle,
                Some(_) => {
                    ready.end();
                    TaskState::Done
                }
            };
            let thread = opened.connection().thread();
            thread.add_task_of(opened.queue_pair(), run)?;
            Ok::<_, farwrite::Error>(descriptor)
        })
    }

    /// The bits of a receive, their bytes, and the bytes of a chunk.
    pub(crate) fn bitmap(&self) -> Result<(*mut u8, usize, u32), Failure> {
        let Side::Receive(recv) = &self.side else {
            return Err(Failure::new(
                "the message is a send: only a receive has a bitmap",
            ));
        };
        let bitmap = recv.bitmap();
        let mtu = self.qp.0.connection().mtu();
        let bytes = bitmap.len().div_ceil(8) as usize;
        Ok((bitmap.as_ptr().cast_mut(), bytes, mtu))
    }

    /// Ends the message, if it is open. When this returns, its memory belongs to the program.
    pub(crate) fn close(&self) -> Result<(), Failure> {
        let side = self.side.clone();
        let ended = self.qp.0.call(move |endpoint, _| match &side {
            _ if side.outcome().is_some() => Ok(()),
            Side::Send(send) => endpoint.cancel_send(send),
            Side::Receive(recv) => endpoint.complete_recv(recv, Outcome::Failed),
        });
        match ended {
            // The connection is over, and all of its messages with it.
            Ok(
                Ok(())
                | Err(
                    farwrite::Error::NoSuchQueuePair(_)
                    | farwrite::Error::BrokenQueuePair { .. }
                    | farwrite::Error::NoSuchMessage(_),
                ),
            )
            | Err(Error::Over(_)) => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(error) => return Err(error.into()),
        }
        let thread = self.qp.0.connection().thread();
        thread.wait(DEPARTURE_LIMIT, || self.side.outcome())?;
        let region = self.region;
        // Dropping the region does not free the memory.
        Ok(thread.call(move |endpoint| endpoint.deregister(region).map(drop))??)
    }
}
