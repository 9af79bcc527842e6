//! Opening a socket and setting its options.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::config::{Granted, SocketConfig};
use super::reserved_port::ReservedPort;
use super::sys;
use crate::contract::Ecn;

/// A bound, non-blocking UDP socket.
///
/// # Errors
/// Those of the operating system.
pub(super) fn open(bind: SocketAddr, v6: bool) -> io::Result<UdpSocket> {
    let socket = unbound(bind, v6)?;
    rustix::net::bind(&socket, &bind)?;
    Ok(socket)
}

/// Same as [`open`], at a port that is held. Afterwards no other socket can share the port.
///
/// # Errors
/// Those of the operating system.
pub(super) fn open_beside(
    bind: SocketAddr,
    v6: bool,
    held: &ReservedPort,
) -> io::Result<UdpSocket> {
    let socket = unbound(bind, v6)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    held.share(|| Ok(rustix::net::bind(&socket, &bind)?))?;
    sockopt::set_socket_reuseaddr(&socket, false)?;
    Ok(socket)
}

/// A non-blocking UDP socket that is connected to `peer`, at a port that other sockets share.
///
/// # Errors
/// Those of the operating system.
pub(super) fn open_connected(
    bind: SocketAddr,
    peer: SocketAddr,
    v6: bool,
) -> io::Result<UdpSocket> {
    let socket = unbound(bind, v6)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &bind)?;
    let peer = match peer {
        SocketAddr::V4(peer) if v6 => (peer.ip().to_ipv6_mapped(), peer.port()).into(),
        peer => peer,
    };
    rustix::net::connect(&socket, &peer)?;
    Ok(socket)
}

fn unbound(bind: SocketAddr, v6: bool) -> io::Result<UdpSocket> {
    let family = if v6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    if v6 {
        // Set explicitly, because the default is a system setting. Only a wildcard socket can use
        // both versions.
        sockopt::set_ipv6_v6only(&fd, !bind.ip().is_unspecified())?;
    }
    Ok(fd.into())
}

/// # Errors
/// The option that could not be set, and the error of the operating system.
pub(super) fn set_required(fd: BorrowedFd<'_>, v6: bool) -> Result<(), (&'static str, io::Error)> {
    use sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
    // Packets must never be fragmented, because the ICRC covers the fragment fields. But the kernel
    // must ignore path MTUs from ICMP: anyone can forge them and make this end unable to send. An
    // IPv6 socket also carries IPv4, by the IPv4 options.
    sockopt::set_ip_mtu_discover(fd, Ipv4PathMtuDiscovery::PROBE)
        .map_err(|e| ("IP_MTU_DISCOVER", e.into()))?;
    if v6 {
        sockopt::set_ipv6_mtu_discover(fd, Ipv6PathMtuDiscovery::PROBE)
            .map_err(|e| ("IPV6_MTU_DISCOVER", e.into()))?;
        return sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)
            .map_err(|e| ("IPV6_RECVPKTINFO", e));
    }
    sys::set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1).map_err(|e| ("IP_PKTINFO", e))
}

/// Returns what the system granted.
pub(super) fn set_wanted(fd: BorrowedFd<'_>, config: &SocketConfig) -> Granted {
    // Only CAP_NET_ADMIN allows buffers beyond the system's limit. Without it, the buffer gets the
    // limit.
    let (recv, send) = (config.recv_buffer_bytes, config.send_buffer_bytes);
    let _ = sockopt::set_socket_recv_buffer_size_force(fd, recv)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(fd, recv));
    let _ = sockopt::set_socket_send_buffer_size_force(fd, send)
        .or_else(|_| sockopt::set_socket_send_buffer_size(fd, send));
    let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
    // Receive the ECN bits. A socket of one family refuses the option of the other.
    let _ = sys::set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    let _ = sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
    let ecn = config.ecn && mark_capable(fd).is_ok();
    let offload = config.wants_offload();
    // A segment size of 0 means "no segmentation", the default. This call only tests whether the
    // kernel supports GSO.
    let gso = offload && sys::set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
    let gro = offload && sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
    // The kernel doubles the requested size for its overhead, and reports the doubled value.
    Granted {
        recv_buffer_bytes: sockopt::socket_recv_buffer_size(fd).unwrap_or(0) / 2,
        send_buffer_bytes: sockopt::socket_send_buffer_size(fd).unwrap_or(0) / 2,
        gso,
        gro,
        ecn,
    }
}

/// Sends all datagrams of a socket with ECT(0). An IPv6 socket may carry IPv4 too, so it gets both
/// options.
fn mark_capable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let tos = Ecn::Ect0.bits();
    let v4 = sockopt::set_ip_tos(fd, tos);
    let v6 = sockopt::set_ipv6_tclass(fd, tos.into());
    Ok(v4.or(v6)?)
}
