//! Tests of the public interface, as one program: it links once.

mod sim;
mod udp_fabric;
mod udp_peers;
mod udp_socket;
mod waiting;
mod workers;
