//! Selective repeat, packet by packet: IRN, and EQDS's reaction to trimmed packets.

use std::ops::Range;

use crate::common::{
    ADDR, Ends, RKEY, completions, config, data, message, psns, read, send, write,
};
use farwrite_net::Payload;
use farwrite_rate::{Eqds, EqdsOptions};
use farwrite_rc::{
    Completion, Packet, QpConfig, QueuePair, Recovery, Repair, RequestError, Software,
    SoftwareScope, Unacknowledged,
};
use farwrite_wire::header::Aeth;
use proptest::prelude::*;

const ACKNOWLEDGE: u8 = 0x11;
const SEQUENCE_NAK: u8 = 0x60;
const ACK: u8 = 0x1F;

/// `RTO_high` 1000 ns, `RTO_low` 200 ns up to 3 packets.
fn irn() -> QpConfig {
    QpConfig {
        recovery: Recovery::Irn {
            rto_low_ns: 200,
            rto_low_packets: 3,
            goes_back: false,
        },
        ..config()
    }
}

/// A reordering window of 100 ns, and a probe after 300 ns.
fn rack() -> QpConfig {
    QpConfig {
        recovery: Recovery::Rack {
            reorder_ns: 100,
            probe_ns: 300,
            unit_packets: 1,
        },
        ..irn()
    }
}

/// Units of two packets, and software that takes 40 ns for each packet.
fn uccl() -> QpConfig {
    QpConfig {
        recovery: Recovery::Rack {
            reorder_ns: 100,
            probe_ns: 300,
            unit_packets: 2,
        },
        software: Some(Software {
            scope: SoftwareScope::All,
            delay_ns: 40,
            packet_ns: 5,
        }),
        ..irn()
    }
}

/// IRN with software that takes 40 ns for each packet of a repair.
fn srnic() -> QpConfig {
    QpConfig {
        software: Some(Software {
            scope: SoftwareScope::Repairs,
            delay_ns: 40,
            packet_ns: 0,
        }),
        ..irn()
    }
}

fn trimming() -> QpConfig {
    QpConfig {
        recovery: Recovery::Trimming,
        ..config()
    }
}

/// PSN, syndrome and MSN of acknowledgements.
fn acks(packets: &[Packet]) -> Vec<(u32, u8, u32)> {
    let acks = packets.iter().map(|packet| {
        assert_eq!(packet.header.bth.opcode, ACKNOWLEDGE);
        let aeth = packet.header.aeth.unwrap();
        (packet.header.bth.psn, aeth.syndrome, aeth.msn)
    });
    acks.collect()
}

fn trimmed(packet: &Packet) -> Packet {
    Packet {
        payload: Payload::Trimmed(packet.payload.sent_bytes()),
        ..packet.clone()
    }
}

/// Returns ends of which `a` has sent a WRITE of `packets` packets with PSNs from 0, and these
/// packets.
fn writing(config: QpConfig, packets: usize) -> (Ends, Vec<Packet>) {
    let mut ends = Ends::new(config);
    ends.a
        .post(1, write(0, message(1, packets * 256), None))
        .unwrap();
    let sent = ends.a_sends();
    assert_eq!(sent.len(), packets);
    (ends, sent)
}

#[test]
fn a_nak_names_what_is_expected_and_what_came_and_the_gap_alone_is_repeated() {
    let (mut ends, sent) = writing(irn(), 6);
    ends.b_takes(&[sent[0].clone(), sent[3].clone(), sent[5].clone()]);
    let back = ends.b_sends();
    // The PSN is the expected packet, and the MSN is the packet that arrived.
    let naks = [(1, SEQUENCE_NAK, 3), (1, SEQUENCE_NAK, 5)];
    assert_eq!(acks(&back), [&[(0, ACK, 0)], &naks[..]].concat());
    ends.a_takes(&back[..2]);
    // Packet 4 may still arrive.
    assert_eq!(psns(&ends.a_sends()), [1, 2]);
    ends.a_takes(&back[2..]);
    let again = ends.a_sends();
    assert_eq!(psns(&again), [4]);
    ends.b_takes(&[sent[1].clone(), sent[2].clone(), again[0].clone()]);
    let back = ends.b_sends();
    assert_eq!(acks(&back), [(5, ACK, 1)]);
    ends.a_takes(&back);
    assert_eq!(
        completions(&mut ends.a),
        [Completion::Acknowledged { id: 1 }]
    );
    assert_eq!(
        ends.memory[1].bytes(RKEY).unwrap()[..1536],
        message(1, 1536)
    );
}

#[test]
fn writes_are_placed_before_the_gap_is_closed() {
    let (mut ends, sent) = writing(irn(), 4);
    ends.b_takes(&[sent[0].clone(), sent[3].clone()]);
    let bytes = ends.memory[1].bytes(RKEY).unwrap();
    assert_eq!(bytes[..256], message(1, 1024)[..256]);
    assert_eq!(bytes[256..768], [0; 512]);
    assert_eq!(bytes[768..1024], message(1, 1024)[768..]);
}

/// Without the first packet, the destination of the other packets is unknown: they wait for it.
#[test]
fn packets_of_a_write_without_its_first_one_wait() {
    let (mut ends, sent) = writing(irn(), 4);
    ends.b_takes(&sent[1..]);
    assert_eq!(ends.memory[1].bytes(RKEY).unwrap()[..1024], [0; 1024]);
    ends.b_takes(&sent[..1]);
    assert_eq!(
        ends.memory[1].bytes(RKEY).unwrap()[..1024],
        message(1, 1024)
    );
}

/// A WRITE after a lost one is placed at once, because it carries its own destination.
#[test]
fn a_whole_write_is_placed_although_the_one_before_is_missing() {
    let mut ends = Ends::new(irn());
    ends.a.post(1, write(0, message(1, 256), None)).unwrap();
    ends.a.post(2, write(256, message(2, 512), None)).unwrap();
    let sent = ends.a_sends();
    ends.b_takes(&sent[1..]);
    let bytes = ends.memory[1].bytes(RKEY).unwrap();
    assert_eq!(bytes[256..768], message(2, 512));
}

#[test]
fn an_immediate_is_delivered_once_and_not_before_its_write_is_whole() {
    let mut ends = Ends::new(irn());
    ends.b.post_receive(9, 0).unwrap();
    ends.a.post(1, write(0, message(1, 700), Some(5))).unwrap();
    let sent = ends.a_sends();
    ends.b_takes(&[sent[0].clone(), sent[2].clone(), sent[2].clone()]);
    assert_eq!(completions(&mut ends.b), []);
    ends.b_takes(&[sent[1].clone(), sent[2].clone()]);
    let written = Completion::Written {
        id: 9,
        bytes: 700,
        imm: 5,
    };
    assert_eq!(completions(&mut ends.b), [written]);
}

#[test]
fn new_packets_go_on_while_a_gap_is_repaired_up_to_the_window() {
    let config = QpConfig {
        window_packets: 4,
        ..irn()
    };
    let mut ends = Ends::new(config);
    ends.a.post(1, write(0, message(1, 8 * 256), None)).unwrap();
    let sent = ends.a_sends();
    assert_eq!(psns(&sent), [0, 1, 2, 3]);
    ends.b_takes(&[sent[0].clone(), sent[2].clone()]);
    let back = ends.b_sends();
    ends.a_takes(&back);
    // The gap first, then the packets that the window of four allows from packet 1 on.
    assert_eq!(psns(&ends.a_sends()), [1, 4]);
}

#[test]
fn a_repetition_that_is_lost_waits_for_the_timeout() {
    let (mut ends, sent) = writing(irn(), 5);
    ends.b_takes(&[sent[0].clone(), sent[2].clone()]);
    let back = ends.b_sends();
    ends.a_takes(&back);
    assert_eq!(psns(&ends.a_sends()), [1]);
    ends.b_takes(&sent[3..]);
    let back = ends.b_sends();
    ends.a_takes(&back);
    assert_eq!(psns(&ends.a_sends()), []);
    ends.wait();
    assert_eq!(psns(&ends.a_sends()), [1]);
    assert_eq!(ends.a.counters().timeouts, 1);
}

#[test]
fn the_timeout_is_short_while_few_packets_are_in_flight() {
    for (packets, timeout_ns) in [(3, 200), (4, 1000)] {
        let (mut ends, _) = writing(irn(), packets);
        assert_eq!(ends.wait(), timeout_ns);
        // Nothing else shows that later packets are lost.
        assert_eq!(psns(&ends.a_sends()), [0]);
    }
}

/// A repair of another crate, which repeats nothing.
struct Nothing;

impl Repair for Nothing {
    fn on_arrived(&mut self, _packet: u64, _sent: &Unacknowledged) -> Range<u64> {
        0..0
    }

    fn on_timeout(&mut self, _sent: &Unacknowledged) -> Range<u64> {
        0..0
    }

    fn timeout_ns(&self, _sent: &Unacknowledged) -> u64 {
        1
    }
}

/// As in ns-3. What is known to have arrived is not repeated. IRN ignores a repair of another crate.
#[test]
fn a_timeout_that_goes_back_repeats_the_whole_tail() {
    let mut config = irn();
    if let Recovery::Irn { goes_back, .. } = &mut config.recovery {
        *goes_back = true;
    }
    let (mut ends, sent) = writing(config, 5);
    ends.a.set_repair(Box::new(Nothing));
    ends.b_takes(&[sent[0].clone(), sent[2].clone()]);
    let back = ends.b_sends();
    ends.a_takes(&back);
    assert_eq!(psns(&ends.a_sends()), [1]);
    ends.wait();
    assert_eq!(psns(&ends.a_sends()), [1, 3, 4]);
}

#[test]
fn timeouts_without_progress_end_the_connection() {
    let (mut ends, _) = writing(irn(), 1);
    for _ in 0..7 {
        ends.wait();
        assert_eq!(psns(&ends.a_sends()), [0]);
    }
    ends.wait();
    assert!(ends.a.is_broken());
    let error = RequestError::RetriesExhausted { retries: 7 };
    assert_eq!(
        completions(&mut ends.a),
        [Completion::Failed { id: 1, error }]
    );
}

#[test]
fn a_lost_acknowledgement_costs_one_packet() {
    let (mut ends, sent) = writing(irn(), 3);
    ends.b_takes(&sent);
    ends.b_sends();
    ends.wait();
    let again = ends.a_sends();
    assert_eq!(psns(&again), [0]);
    ends.b_takes(&again);
    let back = ends.b_sends();
    assert_eq!(acks(&back), [(2, ACK, 1)]);
    ends.a_takes(&back);
    assert_eq!(
        completions(&mut ends.a),
        [Completion::Acknowledged { id: 1 }]
    );
}

#[test]
fn only_the_missing_part_of_a_response_is_asked_for_again() {
    let mut ends = Ends::new(irn());
    ends.b_takes(&[]);
    ends.a.post(1, write(0, message(1, 1536), None)).unwrap();
    ends.run();
    ends.a.post(2, read(0, 1536)).unwrap();
    let sent = ends.a_sends();
    ends.b_takes(&sent);
    let response = ends.b_sends();
    assert_eq!(psns(&response), [6, 7, 8, 9, 10, 11]);
    ends.a_takes(&[
        response[0].clone(),
        response[3].clone(),
        response[5].clone(),
    ]);
    let again = ends.a_sends();
    let reth = |packet: &Packet| packet.header.reth.unwrap();
    assert_eq!(psns(&again), [7, 10]);
    assert_eq!(
        (reth(&again[0]).remote_addr, reth(&again[0]).dma_bytes),
        (ADDR + 256, 512)
    );
    assert_eq!(
        (reth(&again[1]).remote_addr, reth(&again[1]).dma_bytes),
        (ADDR + 1024, 256)
    );
    ends.b_takes(&again);
    let response = ends.b_sends();
    assert_eq!(psns(&response), [7, 8, 10]);
    ends.a_takes(&response);
    let done = Completion::Read {
        id: 2,
        data: data(message(1, 1536)),
    };
    assert_eq!(completions(&mut ends.a).last(), Some(&done));
}

/// A READ that arrives after a gap is executed after the gap is closed, so it reads the written
/// bytes.
#[test]
fn a_read_after_a_gap_waits_for_the_write_before_it() {
    let mut ends = Ends::new(irn());
    ends.a.post(1, write(0, message(1, 512), None)).unwrap();
    ends.a.post(2, read(0, 512)).unwrap();
    let sent = ends.a_sends();
    ends.b_takes(&[sent[0].clone(), sent[2].clone()]);
    let back = ends.b_sends();
    assert_eq!(acks(&back), [(0, ACK, 0), (1, SEQUENCE_NAK, 2)]);
    ends.a_takes(&back);
    let again = ends.a_sends();
    assert_eq!(psns(&again), [1]);
    ends.b_takes(&again);
    ends.run();
    let done = Completion::Read {
        id: 2,
        data: data(message(1, 512)),
    };
    let want = [Completion::Acknowledged { id: 1 }, done];
    assert_eq!(completions(&mut ends.a), want);
    assert_eq!(ends.a.counters().repeated, 1);
}

#[test]
fn a_send_without_a_receive_buffer_is_repeated_although_it_was_kept() {
    let mut ends = Ends::new(irn());
    ends.a.post(1, write(0, message(1, 256), None)).unwrap();
    ends.a.post(2, send(message(2, 100))).unwrap();
    let sent = ends.a_sends();
    ends.b_takes(&sent[1..]);
    ends.b_takes(&sent[..1]);
    let back = ends.b_sends();
    ends.a_takes(&back);
    assert_eq!(psns(&ends.a_sends()), []);
    ends.b.post_receive(7, 100).unwrap();
    ends.wait();
    let again = ends.a_sends();
    assert_eq!(psns(&again), [1]);
    ends.b_takes(&again);
    ends.run();
    let received = Completion::Received {
        id: 7,
        data: data(message(2, 100)),
        imm: None,
    };
    assert_eq!(completions(&mut ends.b), [received]);
    let done = [1, 2].map(|id| Completion::Acknowledged { id });
    assert_eq!(completions(&mut ends.a), done);
}

#[test]
fn packets_beyond_the_window_are_not_kept() {
    let (mut ends, sent) = writing(irn(), 6);
    let narrow = QpConfig {
        window_packets: 4,
        ..irn()
    };
    ends.b = QueuePair::new(narrow).unwrap();
    ends.b_takes(&[sent[3].clone(), sent[4].clone(), sent[5].clone()]);
    assert_eq!(acks(&ends.b_sends()), [(0, SEQUENCE_NAK, 3)]);
}

#[test]
fn where_switches_trim_a_gap_is_no_loss_and_a_header_alone_is_one() {
    let (mut ends, sent) = writing(trimming(), 6);
    ends.b_takes(&[sent[0].clone(), sent[4].clone(), trimmed(&sent[2])]);
    let back = ends.b_sends();
    // The NAKs name the packet that arrived without its payload twice.
    let want = [(0, ACK, 0), (1, SEQUENCE_NAK, 4), (2, SEQUENCE_NAK, 2)];
    assert_eq!(acks(&back), want);
    ends.a_takes(&back);
    assert_eq!(psns(&ends.a_sends()), [2]);
    ends.b_takes(&[
        sent[2].clone(),
        sent[5].clone(),
        sent[3].clone(),
        sent[1].clone(),
    ]);
    ends.run();
    assert_eq!(
        completions(&mut ends.a),
        [Completion::Acknowledged { id: 1 }]
    );
    assert_eq!(
        ends.memory[1].bytes(RKEY).unwrap()[..1536],
        message(1, 1536)
    );
}

#[test]
fn a_trimmed_packet_of_a_response_is_asked_for_again() {
    let mut ends = Ends::new(trimming());
    ends.a.post(1, read(0, 1024)).unwrap();
    let sent = ends.a_sends();
    ends.b_takes(&sent);
    let mut response = ends.b_sends();
    response[1] = trimmed(&response[1]);
    ends.a_takes(&response);
    let again = ends.a_sends();
    assert_eq!(
        (psns(&again), again[0].header.reth.unwrap().dma_bytes),
        (vec![1], 256)
    );
    ends.b_takes(&again);
    ends.run();
    let done = Completion::Read {
        id: 1,
        data: data(vec![0; 1024]),
    };
    assert_eq!(completions(&mut ends.a), [done]);
}

#[test]
fn go_back_n_drops_trimmed_packets() {
    let (mut ends, sent) = writing(config(), 2);
    ends.b_takes(&[trimmed(&sent[0])]);
    assert_eq!(psns(&ends.b_sends()), []);
}

/// Acknowledgements carry the total of granted packets in the MSN field.
#[test]
fn credit_travels_in_acknowledgements() {
    let mut ends = Ends::new(trimming());
    // A first window of two packets.
    ends.a.set_control(
        0,
        Box::new(Eqds::new(EqdsOptions {
            line_rate_bps: 1 << 50,
            first_window_bytes: 512,
        })),
    );
    ends.a.post(1, write(0, message(1, 6 * 256), None)).unwrap();
    let mut sent = Vec::new();
    for now_ns in 1..=4 {
        ends.now_ns = now_ns;
        sent.extend(ends.a_sends());
    }
    assert_eq!(psns(&sent), [0, 1]);
    // The sender has more packets: it asks for credit.
    assert!(sent.iter().all(|packet| packet.header.bth.ack_request));
    ends.b_takes(&sent);
    ends.b.grant(1);
    let back = ends.b_sends();
    assert_eq!(acks(&back), [(1, ACK, 1)]);
    ends.a_takes(&back);
    assert_eq!(psns(&ends.a_sends()), [2]);
    ends.b.grant(4);
    ends.b.grant(3);
    let back = ends.b_sends();
    ends.a_takes(&back);
    assert_eq!(psns(&ends.a_sends()), [3, 4]);
    ends.b.grant(9);
    let back = ends.b_sends();
    ends.a_takes(&back);
    let last = ends.a_sends();
    assert!(psns(&last) == [5] && !last[0].header.bth.ack_request);
}

/// A congestion notification of IBTA A17.9.3: opcode 0x81, BECN, 16 bytes of zeros.
#[test]
fn a_notification_has_the_form_of_rocev2() {
    let mut ends = Ends::new(config());
    ends.b.notify_congestion();
    let sent = ends.b_sends();
    assert_eq!(sent.len(), 1);
    let bth = sent[0].header.bth;
    assert_eq!((bth.opcode, bth.becn, bth.dest_qp), (0x81, true, 2));
    assert_eq!(sent[0].payload, data(vec![0; 16]));
    ends.a_takes(&sent);
    assert_eq!(ends.a.counters().notifications, 1);
}

/// Packets with all opcodes and PSNs around those in use, with valid and invalid values in every
/// field.
fn any_packet() -> impl Strategy<Value = Packet> {
    let opcodes: Vec<u8> = (0..=0x11).chain([ACKNOWLEDGE; 8]).chain([0x81]).collect();
    let opcode = prop::sample::select(opcodes);
    let payload = prop_oneof![
        Just(data(vec![1; 256])),
        (0u32..2000).prop_map(Payload::Ghost),
        Just(Payload::Trimmed(256)),
    ];
    let numbers = (0u32..40, 0u32..40, any::<u8>(), 0u32..2000);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (opcode, payload, numbers, flags).prop_map(
        |(opcode, payload, (psn, msn, syndrome, bytes), (ack_request, reth, valid))| {
            let mut ends = Ends::new(config());
            ends.a.post(0, read(0, bytes)).unwrap();
            let mut header = ends.a_sends().remove(0).header;
            (header.bth.opcode, header.bth.psn) = (opcode, psn);
            header.bth.ack_request = ack_request;
            header.aeth = Some(Aeth { syndrome, msn });
            header.reth = header.reth.filter(|_| reth);
            if let Some(reth) = header.reth.as_mut().filter(|_| !valid) {
                reth.remote_addr = u64::MAX;
            }
            Packet { header, payload }
        },
    )
}

proptest! {
    /// For any packet, a queue pair answers or breaks, and never panics.
    #[test]
    fn any_packet_is_survived(
        packets in prop::collection::vec((any_packet(), any::<bool>()), 1..80),
        mode in 0usize..6,
    ) {
        let modes = [config(), irn(), trimming(), rack(), uccl(), srnic()];
        let mut ends = Ends::new(modes[mode]);
        ends.b.set_control(0, Box::new(Eqds::new(EqdsOptions { line_rate_bps: 1 << 40, first_window_bytes: 1 << 20 })));
        for id in 0..4 {
            ends.b.post(id, read(0, 900)).unwrap();
            ends.b.post(id, write(0, message(1, 900), None)).unwrap();
            ends.b.post_receive(id, 300).unwrap();
        }
        for (packet, waits) in packets {
            ends.now_ns += 50;
            ends.b_takes(&[packet]);
            ends.b_sends();
            if waits && let Some(at_ns) = ends.b.next_timeout() {
                ends.now_ns = ends.now_ns.max(at_ns);
                ends.b.handle_timeout(ends.now_ns, &mut ends.memory[1]);
            }
        }
    }

    /// With any pattern of loss, trimming and reordering, each request is executed once and in
    /// order.
    #[test]
    fn every_request_is_done_once(
        fates in prop::collection::vec(0u8..8, 1..300),
        mode in 0usize..5,
    ) {
        let mode = [irn(), trimming(), rack(), uccl(), srnic()][mode];
        let mut ends = Ends::new(QpConfig { retry_limit: Some(255), ..mode });
        let mut fates = fates.into_iter().chain(std::iter::repeat(7));
        for id in 0..12 {
            ends.b.post_receive(id, 1000).unwrap();
        }
        for id in 0..12 {
            let request = match id % 3 {
                0 => send(message(1, 700)),
                1 => write(0, message(2, 900), Some(1)),
                _ => read(0, 900),
            };
            ends.a.post(id, request).unwrap();
        }
        let mut done = (Vec::new(), Vec::new());
        while done.0.len() < 12 {
            let mut meddle = |packets: Vec<Packet>| {
                let mut through = Vec::new();
                for packet in packets {
                    match fates.next() {
                        Some(0) => {}
                        Some(1) => through.push(trimmed(&packet)),
                        Some(2) => through.insert(0, packet),
                        _ => through.push(packet),
                    }
                }
                through
            };
            let there = meddle(ends.a_sends());
            ends.b_takes(&there);
            let back = meddle(ends.b_sends());
            ends.a_takes(&back);
            if there.is_empty() && back.is_empty() {
                ends.wait_for_either();
            }
            prop_assert!(!ends.a.is_broken() && !ends.b.is_broken());
            done.0.extend(completions(&mut ends.a));
            done.1.extend(completions(&mut ends.b));
        }
        for (completion, id) in done.0.iter().zip(0..) {
            let want = match id % 3 {
                2 => Completion::Read { id, data: data(message(2, 900)) },
                _ => Completion::Acknowledged { id },
            };
            prop_assert_eq!(completion, &want);
        }
        prop_assert_eq!(done.1.len(), 8);
    }
}
