//! What can repair the losses of RDMA NICs on the path: the NICs, or boxes beside them.

use farwrite_model::plan::{self, Question};
use farwrite_model::{Loss, ModelError, Scheme};
use serde::Serialize;

use super::answer::LeftOut;

/// Packets in the bitmap of a NetRT box (docs/protocol.md P11).
const NETRT_PACKETS: f64 = 128.0;

/// The ways to repair the losses of RDMA NICs.
#[derive(Debug, Serialize)]
pub(super) struct Nics {
    /// Packets in a bandwidth-delay product.
    pub(super) packets_in_flight: f64,
    pub(super) ways: Vec<Way>,
    pub(super) left_out: Vec<LeftOut>,
}

/// One of them.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Way {
    /// `gbn`, `lowar`, `netrt` or `irn`.
    pub(super) name: &'static str,
    /// Data packets for each repair packet, with LoWAR.
    pub(super) class_packets: Option<u32>,
    pub(super) objective_s: f64,
    pub(super) mean_s: f64,
    pub(super) p99_s: f64,
    pub(super) p999_s: f64,
    pub(super) parity_overhead: f64,
}

impl Nics {
    /// `question` counts packets instead of chunks.
    pub(super) fn new(question: &Question) -> Self {
        let packet_bits = 8.0 * question.chunk_bytes;
        let mut nics = Self {
            packets_in_flight: question.bandwidth_bps * question.rtt_s / packet_bits,
            ways: Vec::new(),
            left_out: Vec::new(),
        };
        nics.add("gbn", own_repair(question, Scheme::GoBackN));
        nics.add("lowar", lowar(question));
        let irn = own_repair(question, Scheme::SrNack);
        if nics.packets_in_flight <= NETRT_PACKETS {
            // Each loss costs a round trip between the boxes, as it does between NICs with
            // selective repeat.
            nics.add("netrt", irn.clone());
        } else {
            let packets = nics.packets_in_flight;
            let reason =
                format!("its bitmap covers {NETRT_PACKETS} of {packets:.0} packets in flight");
            nics.add("netrt", Err(reason));
        }
        nics.add("irn", irn);
        nics
    }

    fn add(&mut self, name: &'static str, way: Result<Way, String>) {
        match way {
            Ok(way) => self.ways.push(Way { name, ..way }),
            Err(reason) => self.left_out.push(LeftOut {
                scheme: name.to_owned(),
                reason,
            }),
        }
    }
}

/// NICs that repair losses without help.
fn own_repair(question: &Question, scheme: Scheme) -> Result<Way, String> {
    let alone = Question {
        candidates: vec![scheme],
        ..question.clone()
    };
    let plan = alone.plan().map_err(reason)?;
    let left_out = plan.left_out().first();
    if let Some((_, error)) = left_out {
        return Err(error.to_string());
    }
    let cost = plan.best();
    Ok(Way {
        name: "",
        class_packets: None,
        objective_s: cost.objective_s,
        mean_s: cost.mean_s,
        p99_s: cost.p99_s,
        p999_s: cost.p999_s,
        parity_overhead: 0.0,
    })
}

fn lowar(question: &Question) -> Result<Way, String> {
    let boxes: Option<plan::Lowar> = question.lowar().map_err(reason)?;
    let Some(boxes) = boxes else {
        let why = match question.loss {
            Loss::Markov { .. } => {
                "a block repairs bursts of as many packets as it has repair packets"
            }
            Loss::Iid { .. } => "the parity budget has no room",
        };
        return Err(why.to_owned());
    };
    Ok(Way {
        name: "",
        class_packets: Some(boxes.class_packets),
        objective_s: boxes.objective_s,
        mean_s: boxes.mean_s,
        p99_s: boxes.p99_s,
        p999_s: boxes.p999_s,
        parity_overhead: boxes.parity_overhead,
    })
}

fn reason(error: ModelError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(question: &Question) -> Vec<&'static str> {
        let nics = Nics::new(question);
        nics.ways.iter().map(|way| way.name).collect()
    }

    #[test]
    fn netrt_covers_short_paths_only() {
        // 104 packets of 1 KiB are in flight, then 1040.
        let short = Question {
            chunk_bytes: 1024.0,
            ..Question::new(1e6, 10e9, 85e-6, 1e-3)
        };
        assert_eq!(names(&short), ["gbn", "lowar", "netrt", "irn"]);
        let long = Question {
            rtt_s: 850e-6,
            ..short
        };
        assert_eq!(names(&long), ["gbn", "lowar", "irn"]);
        let reason = &Nics::new(&long).left_out[0].reason;
        assert_eq!(reason, "its bitmap covers 128 of 1038 packets in flight");
    }

    #[test]
    fn each_way_to_repair_is_faster_than_going_back() {
        let question = Question {
            chunk_bytes: 1024.0,
            ..Question::new(5e6, 10e9, 0.04, 1e-4)
        };
        let nics = Nics::new(&question);
        let gbn = &nics.ways[0];
        assert!(
            nics.ways[1..].iter().all(|way| way.mean_s < gbn.mean_s),
            "{nics:?}"
        );
    }
}
