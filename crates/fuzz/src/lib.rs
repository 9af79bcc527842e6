//! The fuzz targets: one module for each crate, and one function for each target. Each function takes any
//! bytes, and panics if a property does not hold.
//!
//! `cargo test` runs each target on its seeds in `fuzz/seeds/` and on inputs made from them. `make fuzz` runs
//! each with guidance by coverage. `fuzz/README.md` lists the inputs.
#![allow(
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    reason = "small numbers of a test, which fails by a panic"
)]

pub mod boxes;
pub mod capi;
pub mod cli;
pub mod codes;
pub mod collectives;
pub mod connection;
pub mod experiment;
pub mod fabric;
pub mod files;
pub mod http;
pub mod keys;
pub mod link;
pub mod nccl;
pub mod probe;
pub mod route;
pub mod sdr;
pub mod stream;
pub mod transfer;
pub mod units;
pub mod wire;

#[cfg(test)]
mod bounded;

/// Reads any bytes, and panics if a property does not hold.
pub type Target = fn(&[u8]);

/// Lists the targets. Each becomes a row of [`TARGETS`] and a test.
macro_rules! targets {
    ($($name:ident: $run:path,)*) => {
        /// All targets, with their names.
        pub const TARGETS: &[(&str, Target)] = &[$((stringify!($name), $run)),*];

        #[cfg(test)]
        mod bounded_runs {
            $(
                #[test]
                fn $name() {
                    crate::bounded::run(stringify!($name), $run);
                }
            )*
        }
    };
}

targets! {
    boxes_lowar: crate::boxes::lowar,
    boxes_netrt: crate::boxes::netrt,
    capi_info: crate::capi::info,
    cli_link_file: crate::cli::link_file,
    cli_paths: crate::cli::paths,
    cli_peers: crate::cli::peers,
    cli_trace: crate::cli::trace,
    codes_decode: crate::codes::decode,
    codes_name: crate::codes::name,
    collectives_messages: crate::collectives::messages,
    collectives_record: crate::collectives::record,
    collectives_rendezvous: crate::collectives::rendezvous,
    connection_datagram: crate::connection::datagram,
    connection_known_peers: crate::connection::known_peers,
    connection_message: crate::connection::message,
    files_interrupted_name: crate::files::interrupted_name,
    files_manifest: crate::files::manifest,
    files_message: crate::files::message,
    htsim_connections: crate::experiment::htsim_connections,
    htsim_topology: crate::experiment::htsim_topology,
    http_exchange: crate::http::exchange,
    link_trace: crate::link::trace,
    nccl_handle: crate::nccl::handle,
    net_network: crate::experiment::network,
    nic_receive: crate::fabric::nic_receive,
    ns3_flows: crate::experiment::ns3_flows,
    ns3_sizes: crate::experiment::ns3_sizes,
    ns3_topology: crate::experiment::ns3_topology,
    route_receive: crate::route::receive,
    peer_times: crate::experiment::peer_times,
    probe_datagram: crate::probe::datagram,
    probe_messages: crate::probe::messages,
    sdr_qp_info: crate::sdr::qp_info,
    sdr_qp_info_fields: crate::sdr::qp_info_fields,
    keys_address: crate::keys::address,
    keys_code: crate::keys::code,
    keys_psk: crate::keys::psk,
    stream_message: crate::stream::message,
    sim_plan: crate::experiment::plan,
    transfer_channel: crate::transfer::channel,
    units_text: crate::units::text,
    wire_control_messages: crate::wire::control_messages,
    wire_control_open: crate::wire::control_open,
    wire_icrc: crate::wire::icrc,
    wire_packet: crate::wire::packet,
}

/// The target with this name.
#[must_use]
pub fn find(name: &str) -> Option<Target> {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.map(|(_, run)| *run)
}
