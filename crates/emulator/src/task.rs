//! What emulators ask of the operating system.

/// What an emulator asks of the operating system, besides its devices and sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Task {
    /// To make the eventfd that wakes or stops its threads.
    #[error("making an eventfd")]
    Eventfd,
    /// To start a thread.
    #[error("starting a thread")]
    Thread,
    /// To wait until packets arrive.
    #[error("waiting for packets")]
    Wait,
    /// To read the counters of TUN devices.
    #[error("reading /proc/thread-self/net/dev")]
    Counters,
}
