//! `farwrite send` and `farwrite recv`, run as users run them, over real sockets on loopback.

mod crowds;
mod documented;
mod hostile;
mod liar;
mod lost;
mod measured;
mod memory;
mod moving;
mod refused;
mod resumed;
mod rig;
mod terminals;
mod traced;
mod vanished;
