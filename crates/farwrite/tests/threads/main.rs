//! Endpoints with threads: receive workers, and a thread that polls.

mod coding;
mod ends;
mod late;
mod progress;
mod workers;
