//! Partial message completion: messages, chunk bitmaps, generations, channels (sans-IO).
#![no_std]

extern crate alloc;
