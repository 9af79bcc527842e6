//! Information about paths from the routing table.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use rustix::net::sockopt;

/// Largest IP datagram, in bytes, that the path to `dst` is known to carry: the MTU of the
/// interface, or less if a router has reported less.
///
/// # Errors
/// The error of the operating system if it has no route to `dst`.
pub fn path_mtu(dst: SocketAddr) -> io::Result<u32> {
    let socket = towards(dst)?;
    let mtu = match canonical(dst) {
        SocketAddr::V4(_) => sockopt::ip_mtu(&socket)?,
        SocketAddr::V6(_) => sockopt::ipv6_mtu(&socket)?,
    };
    Ok(mtu)
}

/// The local address from which packets to `dst` are sent.
///
/// # Errors
/// The error of the operating system if it has no route to `dst`.
pub fn source_for(dst: SocketAddr) -> io::Result<IpAddr> {
    Ok(towards(dst)?.local_addr()?.ip())
}

/// The address by which other machines probably know this one: the source address of packets to the
/// default route, or loopback without a default route. `v6` is for an IPv6 socket, which prefers
/// IPv6.
pub(super) fn outward(v6: bool) -> IpAddr {
    // Documentation addresses (RFC 5737, RFC 3849) belong to nobody, so only a default route
    // matches them.
    let v4_source = || source_for(SocketAddr::from(([192, 0, 2, 1], 9)));
    let v6_world = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let v6_source = || source_for(SocketAddr::from((v6_world, 9)));
    let source = if v6 {
        v6_source().or_else(|_| v4_source())
    } else {
        v4_source()
    };
    source.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// A socket connected to `dst`. Connecting looks up the route and sends nothing.
fn towards(dst: SocketAddr) -> io::Result<UdpSocket> {
    let dst = canonical(dst);
    let any = match dst {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(dst)?;
    Ok(socket)
}

/// Converts an IPv4-mapped address to IPv4, the address on the network.
pub(super) fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, addr.port()),
        IpAddr::V6(_) => addr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_a_source_and_an_mtu() {
        for (dst, src) in [
            ("127.0.0.1:9", "127.0.0.1"),
            ("[::1]:9", "::1"),
            ("[::ffff:127.0.0.1]:9", "127.0.0.1"),
        ] {
            let dst = dst.parse().unwrap();
            assert_eq!(source_for(dst).unwrap().to_string(), src);
            assert!(path_mtu(dst).unwrap() >= 1280, "{dst}");
        }
    }
}
