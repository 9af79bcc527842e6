//! Memory of C programs.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io::Error;
use std::ptr;
use std::sync::Arc;

use farwrite::fabric::contract::FabricError;
use farwrite::{MemoryRegion, MrSlice, Region};

use crate::context::Context;
use crate::failure::Failure;

/// A registered region.
pub(crate) struct Registration {
    context: Arc<Context>,
    region: MemoryRegion,
}

/// The address of a region in a C program, which owns the memory.
#[derive(Clone, Copy)]
pub(crate) struct Mapped {
    base: u64,
    pub(crate) region: MemoryRegion,
}

impl Mapped {
    /// The part of the region at an address.
    pub(crate) fn slice(&self, address: u64, length: u64) -> Result<MrSlice, Failure> {
        let offset = address.checked_sub(self.base);
        let end = offset.and_then(|offset| offset.checked_add(length));
        match (offset, end) {
            (Some(offset), Some(end)) if end <= self.region.length() => {
                Ok(self.region.slice(offset..end))
            }
            _ => Err(Failure::new(format!(
                "{length} bytes at {address:#x} leave the region of {} bytes at {:#x}",
                self.region.length(),
                self.base
            ))),
        }
    }
}

impl Registration {
    /// Registers `length` bytes at `addr`. The pages are brought into memory, as a network card needs
    /// them; memory that is not mapped, or may not be written, is refused.
    pub(crate) fn new(
        context: &Arc<Context>,
        addr: *mut c_void,
        length: usize,
    ) -> Result<Self, Failure> {
        let region = raw_region(addr, length, Access::Write)?;
        let region = context.call(move |endpoint| endpoint.register_region(region))??;
        let base = addr.addr() as u64;
        context.add_region(Mapped { base, region });
        Ok(Self {
            context: Arc::clone(context),
            region,
        })
    }

    pub(crate) fn key(&self) -> u32 {
        self.region.lkey().0
    }

    /// Ends the registration, unless a message uses the memory. After a failure of the endpoint it succeeds.
    pub(crate) fn end(&self) -> Result<(), Failure> {
        let region = self.region;
        let ended = self.context.end(move |endpoint| {
            // Dropping the region does not free the memory.
            endpoint.deregister(region).map(drop)
        });
        match ended.unwrap_or(Ok(())) {
            Ok(()) => {
                self.context.remove_region(self.key());
                Ok(())
            }
            Err(farwrite::Error::Fabric(FabricError::InUse(_))) => Err(Failure::new(
                "a message is received into the region or sent from it: complete it, or destroy its \
                 queue pair first",
            )),
            Err(error) => Err(error.into()),
        }
    }
}

/// What is done with memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It is only sent.
    Read,
    /// Peers write into it.
    Write,
}

/// Makes a region of memory that a program owns. Its pages are brought into memory.
pub(crate) fn raw_region(
    addr: *mut c_void,
    length: usize,
    access: Access,
) -> Result<Region, Failure> {
    if addr.is_null() {
        return Err(Failure::new("the address of the memory is NULL"));
    }
    let base = addr.addr();
    let end = base.checked_add(length);
    if length == 0 || end.is_none_or(|end| isize::try_from(end).is_err()) {
        return Err(Failure::new(format!(
            "length = {length}: memory has at least one byte, and ends within the address space"
        )));
    }
    populate(base, length, access)?;
    // SAFETY: the memory is mapped, and writable if peers write into it. The program promises that it
    // stays so until the region is deregistered or the endpoint ends, and that it does not change what is
    // being sent, nor sends what is being received; the headers say so. Of memory that peers write into no
    // reference is made: this crate does not call `Endpoint::memory`, and drops regions without looking at
    // them.
    Ok(unsafe {
        match access {
            Access::Write => Region::from_raw_parts(addr.cast(), length),
            Access::Read => Region::read_only_from_raw_parts(addr.cast(), length),
        }
    })
}

/// Brings pages into memory. Linux before 5.14 cannot: then nothing is checked.
fn populate(base: usize, length: usize, access: Access) -> Result<(), Failure> {
    // SAFETY: asks for a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let start = base / page * page;
    let end = (base + length).div_ceil(page) * page;
    let start: *mut c_void = ptr::without_provenance_mut(start);
    let length_of_pages = end - base / page * page;
    let populate = |advice| {
        // SAFETY: the call changes no bytes: it does what an access to each page would do, and returns
        // an error where that would be a fault.
        let result = unsafe { libc::madvise(start, length_of_pages, advice) };
        (result == 0).then_some(()).ok_or_else(Error::last_os_error)
    };
    let wanted = match access {
        Access::Read => libc::MADV_POPULATE_READ,
        Access::Write => libc::MADV_POPULATE_WRITE,
    };
    let Err(error) = populate(wanted) else {
        return Ok(());
    };
    let is_refused = match error.raw_os_error() {
        Some(libc::EFAULT | libc::ENOMEM) => true,
        // Memory that can only be read, or else a kernel or memory for which this cannot be asked.
        Some(libc::EINVAL) => access == Access::Write && populate(libc::MADV_POPULATE_READ).is_ok(),
        _ => false,
    };
    let accessible = match access {
        Access::Read => "readable",
        Access::Write => "writable",
    };
    match is_refused {
        true => Err(Failure::new(format!(
            "{length} bytes at {base:#x} are not all mapped and {accessible}: {error}"
        ))),
        false => Ok(()),
    }
}
