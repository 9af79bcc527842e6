//! Opening a socket and setting its options.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::config::{Granted, SocketConfig};
use super::sys;
use crate::contract::Ecn;

/// A bound, non-blocking UDP socket.
///
/// # Errors
/// The operating system's.
pub(super) fn open(bind: SocketAddr, v6: bool) -> io::Result<UdpSocket> {
    let family = if v6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    if v6 {
        // Not left to the system-wide default, and only the wildcard can speak both.
        sockopt::set_ipv6_v6only(&fd, !bind.ip().is_unspecified())?;
    }
    rustix::net::bind(&fd, &bind)?;
    Ok(fd.into())
}

/// Sets the options without which nothing works.
///
/// # Errors
/// The option that could not be set, and the operating system's answer.
pub(super) fn set_required(fd: BorrowedFd<'_>, v6: bool) -> Result<(), (&'static str, io::Error)> {
    use sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
    // Never fragmented, which the ICRC relies on, but deaf to ICMP's word on the path's MTU: anyone
    // can forge that, and make us unable to send. An IPv6 socket carries IPv4 too, by the IPv4
    // options.
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

/// Sets the options that we can do without.
pub(super) fn set_wanted(fd: BorrowedFd<'_>, config: &SocketConfig) -> Granted {
    // Beyond the system's limit only with CAP_NET_ADMIN; without it the limit is what we get.
    let (recv, send) = (config.recv_buffer_bytes, config.send_buffer_bytes);
    let _ = sockopt::set_socket_recv_buffer_size_force(fd, recv)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(fd, recv));
    let _ = sockopt::set_socket_send_buffer_size_force(fd, send)
        .or_else(|_| sockopt::set_socket_send_buffer_size(fd, send));
    let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    // Congestion bits. A socket of one family refuses the other's option.
    let _ = sys::set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    let _ = sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
    let ecn = config.ecn && mark_capable(fd).is_ok();
    let offload = config.wants_offload();
    // A segment size of 0 is "no segmentation", which is the default: asks only if it is known.
    let gso = offload && sys::set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
    let gro = offload && sys::set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
    // The kernel doubles what it is asked for, to allow for its overhead, and says so.
    Granted {
        recv_buffer_bytes: sockopt::socket_recv_buffer_size(fd).unwrap_or(0) / 2,
        send_buffer_bytes: sockopt::socket_send_buffer_size(fd).unwrap_or(0) / 2,
        gso,
        gro,
        ecn,
    }
}

/// Lets all datagrams of a socket leave with ECT(0). An IPv6 socket may carry IPv4 too, and then
/// takes both options.
fn mark_capable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let tos = Ecn::Ect0.bits();
    let v4 = sockopt::set_ip_tos(fd, tos);
    let v6 = sockopt::set_ipv6_tclass(fd, tos.into());
    Ok(v4.or(v6)?)
}
