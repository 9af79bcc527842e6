//! The writing half of the channel, which several threads use, and the hellos.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farwrite::QpInfo;
use farwrite_session::{Error, Hello, Message, QpBlob, Reader, Text, Writer};

use super::failure::{cause, sort};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;

/// Between two looks at whether the user wants to end.
const GLANCE: Duration = Duration::from_millis(100);
/// For the last word to a peer that may have stopped listening.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Says things to the peer.
#[derive(Clone)]
pub(super) struct Voice(Arc<Mutex<Writer>>);

impl Voice {
    /// `timeout` is for a peer that takes nothing.
    pub(super) fn new(mut writer: Writer, timeout: Duration) -> Result<Self, Error> {
        writer.set_timeout(Some(timeout))?;
        Ok(Self(Arc::new(Mutex::new(writer))))
    }

    /// Sends a message.
    pub(super) fn say(&self, message: &Message) -> Result<(), Error> {
        self.writer().send(message)
    }

    /// Sends a message unless another thread is sending one.
    pub(super) fn say_by_the_way(&self, message: &Message) {
        if let Ok(mut writer) = self.0.try_lock() {
            // The listener hears of a broken channel too.
            let _ = writer.send(message);
        }
    }

    /// Does something that takes the writer itself.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Writer) -> T) -> T {
        act(&mut self.writer())
    }

    /// Tells the peer why this end gives up. Whether it hears that is no matter any more.
    fn abort(&self, failure: &Failure) {
        let mut writer = self.writer();
        if writer.set_timeout(Some(LAST_WORD)).is_ok() {
            let _ = writer.send(&Message::Abort {
                cause: cause(failure),
                reason: Text::new(failure),
            });
        }
    }

    /// Ends the channel, and so the listener. The peer is told why if that is a failure here.
    pub(super) fn end<T>(&self, result: &Result<T, Failure>) {
        if let Err(failure) = result {
            self.abort(failure);
        }
        self.writer().close();
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A thread that panicked leaves at worst a channel that the peer refuses.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What this end says first.
pub(super) fn hello() -> Message {
    Message::Hello(Hello {
        software: Text::new(concat!("farwrite ", env!("CARGO_PKG_VERSION"))),
        capabilities: 0,
    })
}

/// Waits for the peer's hello.
pub(super) fn meet(
    reader: &mut Reader,
    interrupt: &Interrupt,
    patience: Duration,
) -> Result<Hello, Failure> {
    expect(
        reader,
        interrupt,
        patience,
        "a hello",
        |message| match message {
            Message::Hello(hello) => Ok(hello),
            other => Err(other),
        },
    )
}

/// Waits for the one message that is due, and looks now and then whether the user wants to end.
pub(super) fn expect<T>(
    reader: &mut Reader,
    interrupt: &Interrupt,
    patience: Duration,
    want: &'static str,
    pick: impl Fn(Message) -> Result<T, Message>,
) -> Result<T, Failure> {
    let failed = |error| sort("setting the transfer up", &error);
    let start = Instant::now();
    reader.set_timeout(Some(GLANCE)).map_err(failed)?;
    loop {
        interrupt.check()?;
        match reader.recv_expected(want, &pick) {
            Err(Error::Timeout { .. }) if start.elapsed() < patience => {}
            Err(Error::Timeout { doing, .. }) => {
                let after = patience;
                return Err(failed(Error::Timeout { doing, after }));
            }
            other => return other.map_err(failed),
        }
    }
}

/// Tells the peer how to reach this end's queue pair.
pub(super) fn say_info(voice: &Voice, info: &QpInfo) -> Result<(), Failure> {
    let bytes = info
        .encode()
        .map_err(|error| Failure::caused(Exit::Other, "describing the queue pair", &error))?;
    voice
        .say(&Message::QpInfo(QpBlob(bytes)))
        .map_err(|error| sort("setting the transfer up", &error))
}

/// Waits for how to reach the peer's queue pair.
pub(super) fn expect_info(
    reader: &mut Reader,
    interrupt: &Interrupt,
    patience: Duration,
) -> Result<QpInfo, Failure> {
    let want = "queue-pair information";
    let blob = expect(reader, interrupt, patience, want, |message| match message {
        Message::QpInfo(blob) => Ok(blob),
        other => Err(other),
    })?;
    QpInfo::decode(&blob.0)
        .map_err(|error| Failure::caused(Exit::Mismatch, "the peer's queue pair", &error))
}
