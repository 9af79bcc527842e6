//! Two ends of a path behind address translation, and what someone between them can do.

mod attacks;
mod mapping;
mod packets;
mod world;
