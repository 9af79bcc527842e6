//! The sending half of a channel (P7.4).

use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::net::sockopt::set_tcp_user_timeout;

use crate::records::RecordSealer;
use crate::socket::Socket;
use crate::time_limit::TimeLimit;
use crate::{Activity, ChannelMessage, Error};

/// The sending half of a [`Channel`](crate::Channel).
pub struct Writer {
    socket: Arc<Socket>,
    outgoing: RecordSealer,
    timeout: Option<Duration>,
    over: bool,
}

impl Writer {
    pub(crate) fn new(socket: Arc<Socket>, outgoing: RecordSealer) -> Self {
        Self {
            socket,
            outgoing,
            timeout: None,
            over: false,
        }
    }

    /// Limits how long one call of [`Writer::send`] takes in total, even if the peer reads slowly;
    /// `None` is forever.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Keeps the connection for this time while the peer acknowledges nothing, instead of the time of
    /// the operating system, which is 15 minutes on many.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn outlive(&self, silence: Duration) -> Result<(), Error> {
        let millis = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
        // The kernel stores a signed number.
        let millis = millis.min(u32::MAX / 2);
        set_tcp_user_timeout(&*self.socket, millis).map_err(|errno| Error::Io {
            doing: Activity::SettingUp,
            source: errno.into(),
        })
    }

    /// Sends a message. Returns when the operating system has accepted it.
    ///
    /// # Errors
    /// [`Error::TooLong`] for more than [`ChannelMessage::MAX_BYTES`]: nothing is sent.
    /// [`Error::Timeout`] and [`Error::Io`]: later calls return only [`Error::Over`].
    /// [`Error::Over`] also when a [`CloseHandle`](crate::CloseHandle) ended the channel.
    pub fn send<T: ChannelMessage>(&mut self, message: &T) -> Result<(), Error> {
        if self.over || self.socket.is_closed() {
            return Err(Error::Over);
        }
        let sent = self
            .outgoing
            .seal(message)
            .and_then(|records| self.write(&records));
        self.over = !matches!(sent, Ok(()) | Err(Error::TooLong { .. }));
        if sent.is_err() && self.socket.is_closed() {
            return Err(Error::Over);
        }
        sent
    }

    fn write(&self, mut records: &[u8]) -> Result<(), Error> {
        let limit = TimeLimit::new(self.timeout);
        while !records.is_empty() {
            match self.socket.write(records) {
                Ok(written) => {
                    records = records.get(written..).unwrap_or_default();
                    if !records.is_empty() {
                        limit.check(Activity::Sending)?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    limit.wait(&*self.socket, PollFlags::OUT, Activity::Sending)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(Error::Io {
                        doing: Activity::Sending,
                        source,
                    });
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}
