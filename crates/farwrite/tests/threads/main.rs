//! Endpoints with threads: receive workers, threads that send, and a thread that polls.

mod coding;
mod ends;
mod late;
mod progress;
mod sending;
mod workers;
