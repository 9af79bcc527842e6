//! Errors of sockets.

use std::io;
use std::net::SocketAddr;

use crate::contract::FabricError;

/// Why a socket call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The address cannot be bound.
    #[error("binding UDP {addr}: {source}")]
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The system does not support an option that RoCEv2 over UDP sockets needs.
    #[error("setting {option} on UDP {addr}: {source}")]
    Option {
        /// Name of the socket option.
        option: &'static str,
        /// Address of the socket.
        addr: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A packet exceeds the path MTU, and must not be fragmented.
    #[error(
        "a UDP datagram of {bytes} bytes does not fit the path to {dst}, which carries IP \
         datagrams of at most {path_mtu} bytes: use a smaller MTU"
    )]
    TooLarge {
        /// UDP payload of the packet.
        bytes: usize,
        /// The destination.
        dst: SocketAddr,
        /// The path MTU, IP header included; 0 if the system does not report it.
        path_mtu: u32,
    },
    /// The system does not send to this address from this socket. Others are not concerned.
    #[error("sending from UDP {local} to {dst}: {source}")]
    Refused {
        /// Address of the socket.
        local: SocketAddr,
        /// The destination.
        dst: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The system failed to send or receive.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The error of the operating system.
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
            SocketError::Refused { local, dst, source } => Self::BadAttribute {
                name: "address of the peer",
                value: dst.to_string(),
                want: format!("an address that UDP {local} can send to ({source})"),
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
