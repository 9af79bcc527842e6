//! The names of messages that an end waits for, for [`Message::unexpected`](crate::Message::unexpected).

/// [`Message::Hello`](crate::Message::Hello).
pub const HELLO: &str = "a hello";
/// [`Message::Plan`](crate::Message::Plan).
pub const PLAN: &str = "a transfer plan";
/// [`Message::QpInfo`](crate::Message::QpInfo).
pub const QP_INFO: &str = "queue-pair information";
/// [`Message::Entries`](crate::Message::Entries).
pub const ENTRIES: &str = "manifest entries";
/// [`Message::Progress`](crate::Message::Progress).
pub const LIFE: &str = "a sign of life";
/// [`Message::StreamEnd`](crate::Message::StreamEnd).
pub const STREAM_END: &str = "the end of the stream";
/// [`Message::Done`](crate::Message::Done).
pub const DONE: &str = "the end of the transfer";
/// [`Message::Route`](crate::Message::Route).
pub const ROUTE: &str = "the addresses of UDP sockets";
/// Any message about a file or the end of all files.
pub const ABOUT_FILES: &str = "a message about files";
