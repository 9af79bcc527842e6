//! Runs `farwrite send` and `farwrite recv` as users do, over real sockets on loopback.

mod crowds;
mod cutover;
mod documented;
mod hostile;
mod keys;
mod liar;
mod lost;
mod measured;
mod memory;
mod moving;
mod ports;
mod refused;
mod rig;
mod terminals;
mod traced;
mod vanished;
