//! `farwrite send` and `farwrite recv`, run as users run them, over real sockets on loopback.

mod hostile;
mod liar;
mod lost;
mod moving;
mod refused;
mod rig;
