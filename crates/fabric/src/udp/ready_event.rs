//! A descriptor with which programs wait, by `poll` or `epoll`, until something is ready.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use crate::contract::FabricError;

/// A descriptor that is readable while something is ready (level-triggered). It exists once it was asked for:
/// before, a change costs nothing. After, it costs a system call whenever readiness begins or ends.
///
/// Programs wait for it, and never read it.
#[derive(Debug, Default)]
pub struct ReadyEvent(EventState);

#[derive(Debug, Default)]
enum EventState {
    /// Nobody has asked for the descriptor.
    #[default]
    Unasked,
    Asked {
        event: Arc<OwnedFd>,
        is_ready: bool,
    },
    /// Ready for ever.
    Ended,
}

impl ReadyEvent {
    /// Returns the descriptor. `is_ready` is the state now. It stays open as long as the caller holds it, also
    /// after the end of this value.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the system gives no event counter.
    pub fn descriptor(&mut self, is_ready: bool) -> Result<Arc<OwnedFd>, FabricError> {
        if let EventState::Asked { event, .. } = &self.0 {
            return Ok(Arc::clone(event));
        }
        let is_ended = matches!(self.0, EventState::Ended);
        let is_ready = is_ready || is_ended;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = eventfd(u32::from(is_ready), flags).map_err(|error| FabricError::Io {
            what: "making an event counter to wait for".into(),
            source: error.into(),
        })?;
        let event = Arc::new(event);
        if !is_ended {
            self.0 = EventState::Asked {
                event: Arc::clone(&event),
                is_ready,
            };
        }
        Ok(event)
    }

    /// Says whether it is ready now.
    pub fn update(&mut self, now_ready: bool) {
        let EventState::Asked { event, is_ready } = &mut self.0 else {
            return;
        };
        if std::mem::replace(is_ready, now_ready) == now_ready {
            return;
        }
        // Neither can fail: the counter is 0 or 1, as programs do not read it.
        let fd = event.as_fd();
        let _ = match now_ready {
            true => rustix::io::write(fd, &1_u64.to_ne_bytes()),
            false => rustix::io::read(fd, &mut [0; 8]),
        };
    }

    /// Is ready from now on, and keeps the descriptor no longer.
    pub fn end(&mut self) {
        self.update(true);
        self.0 = EventState::Ended;
    }
}

impl Drop for ReadyEvent {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(descriptor: &OwnedFd) -> bool {
        let mut fds = [PollFd::new(descriptor, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).expect("a poll") == 1
    }

    #[test]
    fn the_descriptor_is_readable_while_something_is_ready() {
        let mut event = ReadyEvent::default();
        event.update(false);
        let descriptor = event.descriptor(true).expect("a descriptor");
        assert!(is_readable(&descriptor));
        for is_ready in [true, false, false, true, false] {
            event.update(is_ready);
            assert_eq!(is_readable(&descriptor), is_ready);
        }
        assert!(Arc::ptr_eq(
            &descriptor,
            &event.descriptor(false).expect("the same")
        ));
        event.end();
        event.update(false);
        assert!(is_readable(&descriptor));
        assert_eq!(Arc::strong_count(&descriptor), 1);
        assert!(is_readable(&event.descriptor(false).expect("another one")));
    }
}
