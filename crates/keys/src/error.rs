//! What fails besides keys and addresses.

use std::io;

/// Why a name was not found, or bytes of a peer are not what they should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host name has no address, or the network interface does not exist.
    #[error("cannot find the address of {host}: {source}")]
    Resolve {
        /// The requested host and port.
        host: String,
        /// Whether a later lookup may succeed, because no name server answered (`EAI_AGAIN`).
        is_temporary: bool,
        /// The cause.
        source: io::Error,
    },
    /// A message of the exchange about a code that no code gives.
    #[error("the exchange about the code is malformed")]
    BadExchange,
    /// A message longer than the limit of its type. The message is refused before it is stored.
    #[error("a {name} of {came} bytes, at most {max} are allowed")]
    TooLong {
        /// The type.
        name: &'static str,
        /// The length.
        came: usize,
        /// The limit.
        max: usize,
    },
    /// Bytes that are not a message of the type.
    #[error("the peer sent {came_bytes} bytes that are no {name}: {why}")]
    Malformed {
        /// The type.
        name: &'static str,
        /// How many bytes there were.
        came_bytes: usize,
        /// What is wrong.
        why: String,
    },
}
