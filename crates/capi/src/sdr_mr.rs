//! `sdr_mr.h`: memory regions.
#![allow(unsafe_code, non_camel_case_types)]

use std::ffi::{c_int, c_void};

use crate::context::Context;
use crate::failure::Failure;
use crate::ffi::{CEnum, Out, c_header};
use crate::memory::Registration;
use crate::sdr::{sdr_access_flags, sdr_context, sdr_mr};
use crate::table::{self, number};

c_header! {
    fn sdr_mr_reg(
        ctx: *mut sdr_context,
        addr: *mut c_void,
        length: usize,
        flags: CEnum<sdr_access_flags>,
    ) -> *mut sdr_mr {
        if flags.value() != sdr_access_flags::SDR_ACCESS_REMOTE_WRITE as u32 {
            return Err(Failure::new(format!(
                "flags = {}: not a value of enum sdr_access_flags",
                flags.value()
            )));
        }
        let context = table::find::<Context>(number(ctx))?;
        let registration = Registration::new(&context, addr, length)?;
        table::publish(registration)
    }
    fn sdr_mr_dereg(mr: *mut sdr_mr) -> c_int {
        table::find::<Registration>(number(mr))?.end()?;
        table::remove::<Registration>(number(mr)).map(drop)
    }
    fn sdr_mr_lkey_get(mr: *mut sdr_mr, lkey: Out<u32>) -> c_int {
        lkey.check("lkey")?;
        lkey.write(table::find::<Registration>(number(mr))?.key());
        Ok(())
    }
    fn sdr_mr_rkey_get(mr: *mut sdr_mr, rkey: Out<u32>) -> c_int {
        rkey.check("rkey")?;
        rkey.write(table::find::<Registration>(number(mr))?.key());
        Ok(())
    }
}
