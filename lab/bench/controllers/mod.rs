//! Published controllers that the adaptive one is compared with: BBR version 3 and Copa.
#![allow(dead_code, reason = "each program uses some of it")]
// Times and bytes of a simulation are far below 2^52.
#![allow(clippy::cast_possible_truncation)]

pub(crate) mod bbr3;
pub(crate) mod copa;
mod delivery;

use crate::common::case::{FlowKind, OtherController};

/// BBR version 3.
pub(crate) const BBR3: FlowKind = FlowKind::Other(OtherController {
    name: "BBR 3",
    new: |packet_bytes| Box::new(bbr3::Bbr3::new(packet_bytes)),
});

/// Copa.
pub(crate) const COPA: FlowKind = FlowKind::Other(OtherController {
    name: "Copa",
    new: |packet_bytes| Box::new(copa::Copa::new(packet_bytes)),
});
