//! The link model: what a long path does to datagrams, in virtual or real time.
#![no_std]

extern crate alloc;
