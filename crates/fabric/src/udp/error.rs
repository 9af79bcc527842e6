//! What can go wrong with a socket.

use std::io;
use std::net::SocketAddr;

use crate::contract::FabricError;

/// Why a socket call failed.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The address could not be had.
    #[error("binding UDP {addr}: {source}")]
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// The system lacks something without which RoCEv2 over UDP sockets does not work.
    #[error("setting {option} on UDP {addr}: {source}")]
    Option {
        /// Which socket option.
        option: &'static str,
        /// The socket's address.
        addr: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// A packet exceeds the path MTU and may not be fragmented.
    #[error(
        "a UDP datagram of {bytes} bytes does not fit the path to {dst}, which carries IP \
         datagrams of at most {path_mtu} bytes: use a smaller MTU"
    )]
    TooLarge {
        /// UDP payload of the packet.
        bytes: usize,
        /// Where to.
        dst: SocketAddr,
        /// What the path carries, IP header included; 0 where the system does not say.
        path_mtu: u32,
    },
    /// The system refused to send or receive.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Its answer.
        source: io::Error,
    },
}

impl From<SocketError> for FabricError {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::TooLarge {
                bytes,
                dst,
                path_mtu,
            } => Self::BadAttribute {
                name: "mtu",
                value: format!("{bytes} bytes of UDP datagram to {dst}"),
                want: format!("IP datagrams of at most {path_mtu} bytes, the path MTU"),
            },
            SocketError::Io { what, source } => Self::Io { what, source },
            SocketError::Bind { addr, source } => Self::Io {
                what: format!("binding UDP {addr}"),
                source,
            },
            SocketError::Option {
                option,
                addr,
                source,
            } => Self::Io {
                what: format!("setting {option} on UDP {addr}"),
                source,
            },
        }
    }
}
