//! Runs `farwrite send`, `farwrite recv` and `farwrite perf` as users do, over real sockets on loopback.

mod changed_files;
mod copies;
mod cutover;
mod forwards;
mod hostile;
mod hostile_sender;
mod interrupted;
mod json_page;
mod keys;
mod many_connections;
mod many_senders;
mod memory;
mod metrics;
mod moving;
mod perf;
mod pipes;
mod ports;
mod refused;
mod remote_shell;
mod resumed;
mod rig;
mod service;
mod terminals;
mod traces;
