//! What can repair the losses of RDMA NICs on the path: the NICs, or boxes beside them.

use std::time::Duration;

use farwrite_boxes::lowar::Config;
use farwrite_model::plan::Question;
use farwrite_model::{Scheme, Variant};
use farwrite_units::show::{Percent, Time, whole};
use serde::Serialize;

use super::answer::LeftOut;

/// Bits of the bitmap of a NetRT box: at least those of the paper, and at most what
/// `farwrite netrt --bitmap` takes.
const MIN_BITMAP_BITS: u32 = 128;
const MAX_BITMAP_BITS: u32 = 1_000_000;
/// Copies that a NetRT box keeps, in bandwidth-delay products: those of the packets that are in
/// flight, and, while a lost repeat is requested again, of those behind them (docs/boxes.md).
const NETRT_POOL_PRODUCTS: f64 = 2.0;

/// The longest round trip of a path where NetRT boxes and pauses can help if full queues lose the
/// packets: a data center (docs/boxes.md).
const DATACENTER_RTT_S: f64 = 1e-3;

/// The ways to repair the losses of RDMA NICs.
#[derive(Debug, Serialize)]
pub(super) struct Nics {
    /// Packets in a bandwidth-delay product.
    pub(super) packets_in_flight: f64,
    pub(super) ways: Vec<Way>,
    pub(super) left_out: Vec<LeftOut>,
    /// What to use with unmodified NICs; `None` if the model has no answer for Go-Back-N.
    pub(super) unmodified: Option<Advice>,
}

/// What to use with unmodified NICs, which repair losses by Go-Back-N.
#[derive(Debug, Serialize)]
pub(super) struct Advice {
    /// `lowar` or `netrt`, or `gbn` where boxes do not help.
    #[serde(rename = "use")]
    pub(super) name: &'static str,
    /// The objective of Go-Back-N without boxes, divided by that of the answer.
    pub(super) speedup: f64,
    /// These two objectives, in seconds.
    #[serde(skip)]
    pub(super) without_s: f64,
    #[serde(skip)]
    pub(super) with_s: f64,
    /// What helps instead if full queues lose the packets: `window`, a limit of one bandwidth-delay
    /// product on the bytes in flight; `pfc`; `netrt`, with a pool for the longest queueing delay.
    pub(super) in_full_queues: &'static [&'static str],
}

#[derive(Clone, Debug, Default, Serialize)]
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
            unmodified: None,
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
        nics.unmodified = nics.advice(question);
        nics
    }

    /// The first of Go-Back-N alone, LoWAR and NetRT whose objective is close to the least of them:
    /// no boxes are cheaper than boxes, and LoWAR needs less memory than NetRT.
    fn advice(&self, question: &Question) -> Option<Advice> {
        let alone = self.ways.first().filter(|way| way.name == "gbn")?;
        let without_s = alone.objective_s;
        let mut ways = self.ways.iter().filter(|way| way.name != "irn");
        let objectives = ways.clone().map(|way| way.objective_s);
        let close_s = objectives.fold(without_s, f64::min) * (1.0 + question.close);
        let chosen = ways.find(|way| way.objective_s <= close_s)?;
        Some(Advice {
            name: chosen.name,
            speedup: without_s / chosen.objective_s,
            without_s,
            with_s: chosen.objective_s,
            in_full_queues: if question.rtt_s <= DATACENTER_RTT_S {
                &["window", "pfc", "netrt"]
            } else {
                &[]
            },
        })
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
        // NICs do not have the waits of our protocol.
        variant: Variant::Serial,
        ..question.clone()
    };
    let plan = alone.plan().map_err(|error| error.to_string())?;
    if let Some((_, error)) = plan.left_out().first() {
        return Err(error.to_string());
    }
    let cost = plan.best();
    Ok(Way {
        objective_s: cost.objective_s,
        mean_s: cost.mean_s,
        p99_s: cost.p99_s,
        p999_s: cost.p999_s,
        ..Way::default()
    })
}

/// The bits of a NetRT bitmap that cover this number of packets: a power of two.
fn bitmap_bits(packets: f64) -> Result<u32, String> {
    if packets > f64::from(MAX_BITMAP_BITS) {
        return Err(format!(
            "{packets:.0} packets are in flight, and its bitmap has at most {MAX_BITMAP_BITS} bits"
        ));
    }
    let packets = u32::try_from(whole(packets.ceil())).unwrap_or(MAX_BITMAP_BITS);
    let bits = packets.next_power_of_two();
    Ok(bits.clamp(MIN_BITMAP_BITS, MAX_BITMAP_BITS))
}

/// LoWAR boxes with the times that `farwrite lowar` has without options.
fn lowar(question: &Question) -> Result<Way, String> {
    let config = Config::default();
    let longest = Duration::from_nanos(config.silence_ns - config.probe_ns);
    if question.rtt_s > longest.as_secs_f64() {
        let longest = Time(longest);
        return Err(format!(
            "a box sends no repair packets where an answer takes more than {longest}"
        ));
    }
    // As the controller of boxes limits blocks.
    let max_block = Duration::from_nanos(config.hold_ns / 2);
    let boxes = question.lowar(max_block.as_secs_f64());
    let boxes = boxes.map_err(|error| error.to_string())?.ok_or_else(|| {
        let (budget, max_block) = (Percent(question.max_parity_overhead), Time(max_block));
        format!("no block of at most {max_block} has at most {budget} of repair packets")
    })?;
    Ok(Way {
        block: Some([boxes.block_packets, boxes.repair_packets]),
        objective_s: boxes.objective_s,
        mean_s: boxes.mean_s,
        p99_s: boxes.p99_s,
        p999_s: boxes.p999_s,
        parity_overhead: boxes.parity_overhead,
        ..Way::default()
    })
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
            let nics = Nics::new(&asked(10e9, rtt_s, 1e-3));
            let netrt = nics.ways.into_iter().find(|way| way.name == "netrt");
            let left_out = |out: &LeftOut| (out.scheme == "netrt").then(|| out.reason.clone());
            netrt.ok_or_else(|| nics.left_out.iter().find_map(left_out).expect("a reason"))
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

    /// A message of 5 MB in packets of 1 KiB.
    fn asked(rate_bps: f64, rtt_s: f64, loss: f64) -> Question {
        Question {
            chunk_bytes: 1024.0,
            ..Question::new(5e6, rate_bps, rtt_s, loss)
        }
    }

    #[test]
    fn where_lowar_cannot_work_netrt_is_left() {
        // Two packets of 1 KiB take 1.6 ms at 10 Mbit/s.
        let slow = Nics::new(&asked(10e6, 0.04, 1e-2));
        let reason = &slow.left_out[0].reason;
        let told = "no block of at most 2 ms has at most 25 % of repair packets";
        assert_eq!(reason, told);
        assert_eq!(slow.unmodified.expect("an answer").name, "netrt");
    }

    #[test]
    fn lowar_needs_an_answer_within_the_silence_that_ends_it() {
        assert!(names(&asked(1e9, 0.98, 1e-4)).contains(&"lowar"));
        let nics = Nics::new(&asked(1e9, 1.0, 1e-4));
        assert_eq!(nics.left_out[0].scheme, "lowar");
        let reason = &nics.left_out[0].reason;
        assert!(reason.contains("takes more than 990 ms"), "{reason}");
    }

    fn bursts(mean_burst: f64) -> Question {
        Question {
            loss: Loss::Markov {
                p_good_to_bad: 1e-5,
                p_bad_to_good: 1.0 / mean_burst,
                loss_good: 0.0,
                loss_bad: 1.0,
                packets_per_chunk: 1,
            },
            ..asked(10e9, 0.01, 0.0)
        }
    }

    #[test]
    fn long_bursts_are_not_for_lowar() {
        let advised = |mean_burst| Nics::new(&bursts(mean_burst)).unmodified;
        let is_lowar = |mean_burst| advised(mean_burst).expect("an answer").name == "lowar";
        // LoWAR repairs 16 packets in a row.
        assert!(is_lowar(4.0) && !is_lowar(100.0));
    }

    #[test]
    fn bursts_have_an_answer_for_each_way() {
        let question = bursts(4.0);
        assert_eq!(names(&question), ["gbn", "lowar", "netrt", "irn"]);
        let [packets, repairs] = Nics::new(&question).ways[1].block.expect("a block");
        assert!(repairs > 1 && packets > repairs);
    }

    #[test]
    fn each_way_to_repair_is_faster_than_going_back() {
        let nics = Nics::new(&asked(10e9, 0.04, 1e-4));
        let gbn = &nics.ways[0];
        assert!(
            nics.ways[1..].iter().all(|way| way.mean_s < gbn.mean_s),
            "{nics:?}"
        );
    }
}
