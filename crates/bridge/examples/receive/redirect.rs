//! A BPF program that hands all frames of an interface to one `AF_XDP` socket (bpf(2)).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

const MAP_CREATE: i32 = 0;
const MAP_UPDATE_ELEM: i32 = 2;
const PROG_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The program handles frames that lie in several buffers.
const XDP_HAS_FRAGS: u32 = 1 << 5;

/// Where the kernel runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `XDP_FLAGS_SKB_MODE`: in the network stack, as for any driver.
    Generic = 2,
    /// `XDP_FLAGS_DRV_MODE`: in the driver.
    Driver = 4,
}

/// The program while it is attached to an interface.
pub(crate) struct Redirect {
    _link: OwnedFd,
}

#[repr(C)]
#[derive(Default)]
struct MapAttributes {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
struct ElementAttributes<'a> {
    map: u32,
    key: &'a u32,
    value: &'a u32,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramAttributes {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkAttributes {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

impl Redirect {
    /// Attaches the program to an interface, in front of its first queue.
    pub(crate) fn attach(socket: &impl AsFd, interface: u32, mode: Mode) -> io::Result<Self> {
        let map = call_for_fd(
            MAP_CREATE,
            &MapAttributes {
                map_type: MAP_TYPE_XSKMAP,
                key_size: 4,
                value_size: 4,
                max_entries: 1,
            },
        )?;
        let element = ElementAttributes {
            map: number(&map),
            key: &0,
            value: &number(socket),
            flags: 0,
        };
        call(MAP_UPDATE_ELEM, &element)?;
        let instructions = program(number(&map));
        let program = call_for_fd(
            PROG_LOAD,
            &ProgramAttributes {
                program_type: PROG_TYPE_XDP,
                instruction_count: 6,
                instructions: instructions.as_ptr() as u64,
                licence: c"Dual MIT/GPL".as_ptr() as u64,
                flags: XDP_HAS_FRAGS,
                attach_type: ATTACH_XDP,
                ..ProgramAttributes::default()
            },
        )?;
        let link = LinkAttributes {
            program: number(&program),
            interface,
            attach_type: ATTACH_XDP,
            flags: mode as u32,
        };
        Ok(Self {
            _link: call_for_fd(LINK_CREATE, &link)?,
        })
    }
}

/// `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS)`, in instructions of 8 bytes: the
/// operation, two registers, an offset and a value.
fn program(map: u32) -> [u64; 6] {
    let instruction = |operation: u64, registers: u64, offset: u64, value: u32| {
        operation | registers << 8 | offset << 16 | u64::from(value) << 32
    };
    [
        // r2 = ctx->rx_queue_index
        instruction(0x61, 0x12, 16, 0),
        // r1 = &map, in two instructions
        instruction(0x18, 0x11, 0, map),
        0,
        // r3 = XDP_PASS
        instruction(0xB7, 0x03, 0, 2),
        // bpf_redirect_map
        instruction(0x85, 0, 0, 51),
        instruction(0x95, 0, 0, 0),
    ]
}

fn number(fd: &impl AsFd) -> u32 {
    u32::try_from(fd.as_fd().as_raw_fd()).unwrap_or(u32::MAX)
}

fn call_for_fd<T>(command: i32, attributes: &T) -> io::Result<OwnedFd> {
    let fd = call(command, attributes)?;
    // SAFETY: the kernel has just opened this file for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn call<T>(command: i32, attributes: &T) -> io::Result<i32> {
    // SAFETY: the attributes are live, as long as is said, and laid out as `union bpf_attr` is for
    // this command. What they point to is live too.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    match i32::try_from(result) {
        Ok(fd) if fd >= 0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}
