//! What can repair the losses of RDMA NICs on the path: the NICs, or boxes beside them.

use farwrite_model::plan::{self, Question};
use farwrite_model::{ModelError, Scheme};
use serde::Serialize;

use super::answer::LeftOut;

/// Bits of the bitmap of a NetRT box: at least those of the paper, and at most what
/// `farwrite netrt --bitmap` takes.
const MIN_BITMAP_BITS: u32 = 128;
const MAX_BITMAP_BITS: u32 = 1_000_000;
/// Copies that a NetRT box keeps, in bandwidth-delay products: those of the packets that are in
/// flight, and, while a lost repeat is requested again, of those behind them (docs/boxes.md).
const NETRT_POOL_PRODUCTS: f64 = 2.0;

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
    /// Data packets and repair packets of a block, with LoWAR.
    pub(super) block: Option<[u32; 2]>,
    /// Packets in the bitmap of a flow, and memory of a box for copies and held packets in bytes,
    /// with NetRT.
    pub(super) bitmap_bits: Option<u32>,
    pub(super) box_bytes: Option<f64>,
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
        // Each loss costs a round trip between the boxes, as it does between NICs with selective
        // repeat, if the bitmap covers the packets in flight.
        let netrt = bitmap_bits(nics.packets_in_flight).and_then(|bits| {
            let products =
                (NETRT_POOL_PRODUCTS + 1.0) * question.bandwidth_bps * question.rtt_s / 8.0;
            Ok(Way {
                bitmap_bits: Some(bits),
                box_bytes: Some(products),
                ..irn.clone()?
            })
        });
        nics.add("netrt", netrt);
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
        block: None,
        bitmap_bits: None,
        box_bytes: None,
        objective_s: cost.objective_s,
        mean_s: cost.mean_s,
        p99_s: cost.p99_s,
        p999_s: cost.p999_s,
        parity_overhead: 0.0,
    })
}

/// The bits of a NetRT bitmap that cover this number of packets: a power of two.
fn bitmap_bits(packets: f64) -> Result<u32, String> {
    if packets > f64::from(MAX_BITMAP_BITS) {
        return Err(format!(
            "{packets:.0} packets are in flight, and its bitmap has at most {MAX_BITMAP_BITS} bits"
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most MAX_BITMAP_BITS"
    )]
    let packets = packets.ceil() as u32;
    Ok(packets
        .next_power_of_two()
        .clamp(MIN_BITMAP_BITS, MAX_BITMAP_BITS))
}

fn lowar(question: &Question) -> Result<Way, String> {
    let boxes: Option<plan::Lowar> = question.lowar().map_err(reason)?;
    let boxes = boxes.ok_or_else(|| "the parity budget has no room".to_owned())?;
    Ok(Way {
        name: "",
        block: Some([boxes.block_packets, boxes.repair_packets]),
        bitmap_bits: None,
        box_bytes: None,
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
    use farwrite_model::Loss;

    use super::*;

    fn names(question: &Question) -> Vec<&'static str> {
        let nics = Nics::new(question);
        nics.ways.iter().map(|way| way.name).collect()
    }

    #[test]
    fn the_bitmap_of_netrt_covers_the_packets_in_flight() {
        // 104 packets of 1 KiB are in flight, then 1038, then 10,376,000.
        let netrt = |rtt_s| {
            let question = Question {
                chunk_bytes: 1024.0,
                ..Question::new(1e6, 10e9, rtt_s, 1e-3)
            };
            let nics = Nics::new(&question);
            let netrt = nics.ways.into_iter().find(|way| way.name == "netrt");
            netrt.ok_or_else(|| nics.left_out[0].reason.clone())
        };
        assert_eq!(netrt(85e-6).expect("covered").bitmap_bits, Some(128));
        let long = netrt(850e-6).expect("covered");
        assert_eq!(long.bitmap_bits, Some(2048));
        // Two bandwidth-delay products of copies, and one that is held.
        let bytes = long.box_bytes.expect("netrt keeps copies");
        assert!((bytes - 3.0 * 1_062_500.0).abs() < 1.0, "{bytes}");
        assert_eq!(
            netrt(8.5).expect_err("too long"),
            "10375977 packets are in flight, and its bitmap has at most 1000000 bits"
        );
    }

    #[test]
    fn bursts_have_an_answer_for_each_way() {
        let question = Question {
            chunk_bytes: 1024.0,
            loss: Loss::Markov {
                p_good_to_bad: 1e-5,
                p_bad_to_good: 0.25,
                loss_good: 0.0,
                loss_bad: 1.0,
                packets_per_chunk: 1,
            },
            ..Question::new(1e6, 10e9, 0.01, 0.0)
        };
        assert_eq!(names(&question), ["gbn", "lowar", "netrt", "irn"]);
        let [packets, repairs] = Nics::new(&question).ways[1].block.expect("a block");
        assert!(repairs > 1 && packets > repairs);
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
