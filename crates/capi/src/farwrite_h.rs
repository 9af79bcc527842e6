//! `farwrite.h`: what `sdr.h` does not have.
#![allow(unsafe_code, non_camel_case_types)]

use std::ffi::{c_char, c_int};

use crate::failure;
use crate::ffi::{Out, c_header};
use crate::messages::Receive;
use crate::sdr::{number, sdr_recv_handle};
use crate::table;

c_header! {
    fn farwrite_version() -> *const c_char {
        Ok(concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast())
    }
    fn farwrite_last_error() -> *const c_char {
        Ok(failure::last_text())
    }
    fn farwrite_recv_packets(
        handle: *mut sdr_recv_handle,
        chunk: u32,
        word: u32,
        bitmap: Out<u64>,
    ) -> c_int {
        bitmap.check("bitmap")?;
        bitmap.write(table::find::<Receive>(number(handle))?.packets(chunk, word)?);
        Ok(())
    }
}
