//! Tests of two ends of a route behind address translation, and of attacks between them.

mod attacks;
mod mapping;
mod packets;
mod world;
