//! Opcodes of the operations that a queue pair serves (IBTA, table of opcodes).

use farwrite_wire::opcode::{Position, lookup};

/// The operation that a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Send,
    Write,
    ReadRequest,
    ReadResponse,
    Acknowledge,
    Notification,
}

pub(crate) const READ_REQUEST: u8 = 0x0C;
pub(crate) const ACKNOWLEDGE: u8 = 0x11;
/// The opcode of a congestion notification, which only RoCEv2 has (IBTA A17.9.3).
pub const NOTIFICATION: u8 = 0x81;
const SEND_FIRST: u8 = 0x00;
const WRITE_FIRST: u8 = 0x06;
const READ_RESPONSE_FIRST: u8 = 0x0D;

/// The operation of an opcode, and the position of the packet in its message; `None` if the queue
/// pair does not serve the opcode.
pub(crate) fn parse(opcode: u8) -> Option<(Operation, Position)> {
    let operation = match opcode {
        0x00..=0x05 => Operation::Send,
        0x06..=0x0B => Operation::Write,
        READ_REQUEST => Operation::ReadRequest,
        0x0D..=0x10 => Operation::ReadResponse,
        ACKNOWLEDGE => Operation::Acknowledge,
        NOTIFICATION => Operation::Notification,
        _ => return None,
    };
    Some((operation, lookup(opcode)?.position))
}

pub(crate) fn send(position: Position, imm: bool) -> u8 {
    SEND_FIRST + request_offset(position, imm)
}

pub(crate) fn write(position: Position, imm: bool) -> u8 {
    WRITE_FIRST + request_offset(position, imm)
}

pub(crate) fn read_response(position: Position) -> u8 {
    READ_RESPONSE_FIRST
        + match position {
            Position::First => 0,
            Position::Middle => 1,
            Position::Last => 2,
            Position::Only => 3,
        }
}

/// The position of a packet, by whether it is the first and whether it is the last of its message.
pub(crate) fn position(first: bool, last: bool) -> Position {
    match (first, last) {
        (true, true) => Position::Only,
        (true, false) => Position::First,
        (false, true) => Position::Last,
        (false, false) => Position::Middle,
    }
}

fn request_offset(position: Position, imm: bool) -> u8 {
    match position {
        Position::First => 0,
        Position::Middle => 1,
        Position::Last => 2 + u8::from(imm),
        Position::Only => 4 + u8::from(imm),
    }
}
