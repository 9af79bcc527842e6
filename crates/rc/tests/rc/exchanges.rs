//! Two queue pairs, packet by packet.

use crate::common::{
    BYTES, Ends, RKEY, completions, config, data, message, place, psns, read, send, write,
};
use farwrite_link::Rng;
use farwrite_net::Payload;
use farwrite_net::header::Roce;
use farwrite_rc::{
    Completion, Nak, Packet, PostError, QpConfig, Remote, Request, RequestError, RnrTimer, Syndrome,
};
use farwrite_wire::header::{Aeth, Bth, Reth};

const SIZES: [usize; 7] = [0, 1, 255, 256, 257, 512, 1000];

fn aeth(packet: &Packet) -> (Syndrome, u32) {
    let aeth = packet.header.aeth.unwrap();
    (Syndrome::from_byte(aeth.syndrome).unwrap(), aeth.msn)
}

#[test]
fn sends_come_whole_with_and_without_immediate() {
    let mut ends = Ends::new(config());
    for (id, bytes) in (0..).zip(SIZES) {
        for imm in [None, Some(9)] {
            ends.b.post_receive(id, 1000).unwrap();
            let sent = data(message(bytes, bytes));
            let request = Request::Send {
                data: sent.clone(),
                imm,
            };
            ends.a.post(id, request).unwrap();
            let opcodes = ends.run();
            let last = 0x11;
            match (bytes, imm) {
                (0..=256, None) => assert_eq!(opcodes, [0x04, last]),
                (0..=256, _) => assert_eq!(opcodes, [0x05, last]),
                (1000, None) => assert_eq!(opcodes, [0x00, 0x01, 0x01, 0x02, last]),
                (1000, _) => assert_eq!(opcodes, [0x00, 0x01, 0x01, 0x03, last]),
                (_, None) => assert_eq!(opcodes, [0x00, 0x02, last]),
                (_, _) => assert_eq!(opcodes, [0x00, 0x03, last]),
            }
            let received = Completion::Received {
                id,
                data: sent,
                imm,
            };
            assert_eq!(completions(&mut ends.b), [received]);
            assert_eq!(completions(&mut ends.a), [Completion::Acknowledged { id }]);
        }
    }
}

#[test]
fn writes_land_where_they_say_and_reads_bring_them_back() {
    let mut ends = Ends::new(config());
    for (id, bytes) in (0..).zip(SIZES) {
        for imm in [None, Some(9)] {
            if imm.is_some() {
                ends.b.post_receive(id, 0).unwrap();
            }
            let wrote = message(bytes, bytes);
            ends.a.post(id, write(100, wrote.clone(), imm)).unwrap();
            ends.run();
            assert_eq!(ends.memory[1].bytes(RKEY).unwrap()[100..][..bytes], wrote);
            let length = u32::try_from(bytes).unwrap();
            let written = |imm| Completion::Written {
                id,
                bytes: length,
                imm,
            };
            let expected: Vec<_> = imm.into_iter().map(written).collect();
            assert_eq!(completions(&mut ends.b), expected);
            assert_eq!(completions(&mut ends.a), [Completion::Acknowledged { id }]);
            ends.a.post(id, read(100, length)).unwrap();
            let opcodes = ends.run();
            if bytes == 1000 {
                assert_eq!(opcodes, [0x0C, 0x0D, 0x0E, 0x0E, 0x0F]);
            }
            let data = data(wrote);
            assert_eq!(completions(&mut ends.a), [Completion::Read { id, data }]);
        }
    }
}

#[test]
fn ghosts_take_the_same_course() {
    let mut ends = Ends::new(config());
    ends.b.post_receive(1, 1000).unwrap();
    let ghost = Request::Send {
        data: Payload::Ghost(1000),
        imm: None,
    };
    ends.a.post(0, ghost).unwrap();
    assert_eq!(ends.run(), [0x00, 0x01, 0x01, 0x02, 0x11]);
    let received = Completion::Received {
        id: 1,
        data: Payload::Ghost(1000),
        imm: None,
    };
    assert_eq!(completions(&mut ends.b), [received]);
}

#[test]
fn one_acknowledgement_covers_many_messages_and_counts_them() {
    let mut ends = Ends::new(config());
    for id in 0..5 {
        ends.a.post(id, write(0, message(0, 600), None)).unwrap();
    }
    let packets = ends.a_sends();
    assert_eq!(psns(&packets), (0..15).collect::<Vec<_>>());
    ends.b_takes(&packets);
    let acks = ends.b_sends();
    assert_eq!(
        (psns(&acks), aeth(&acks[0])),
        (vec![14], (Syndrome::Ack, 5))
    );
    ends.a_takes(&acks);
    assert_eq!(completions(&mut ends.a).len(), 5);
    assert_eq!(ends.a.next_timeout(), None);
}

/// Packet 3 of 8 is lost: the responder drops 4 to 7 and sends one NAK, and the requester
/// retransmits 3 to 7.
#[test]
fn go_back_n_repeats_everything_from_the_hole() {
    let mut ends = Ends::new(config());
    ends.a.post(0, write(0, message(1, 2048), None)).unwrap();
    let mut packets = ends.a_sends();
    assert_eq!(psns(&packets), [0, 1, 2, 3, 4, 5, 6, 7]);
    packets.remove(3);
    ends.b_takes(&packets);
    let nak = ends.b_sends();
    assert_eq!(psns(&nak), [3]);
    assert_eq!(aeth(&nak[0]), (Syndrome::Nak(Nak::Sequence), 0));
    ends.a_takes(&nak);
    let again = ends.a_sends();
    assert_eq!(psns(&again), [3, 4, 5, 6, 7]);
    let opcodes: Vec<_> = again.iter().map(|p| p.header.bth.opcode).collect();
    assert_eq!(opcodes, [0x07, 0x07, 0x07, 0x07, 0x08]);
    ends.b_takes(&again);
    let ack = ends.b_sends();
    assert_eq!((psns(&ack), aeth(&ack[0])), (vec![7], (Syndrome::Ack, 1)));
    ends.a_takes(&ack);
    assert_eq!(completions(&mut ends.a).len(), 1);
    assert_eq!(
        ends.memory[1].bytes(RKEY).unwrap()[..2048],
        message(1, 2048)
    );
    let (asked, answered) = (ends.a.counters(), ends.b.counters());
    assert_eq!((asked.sent, asked.repeated, asked.timeouts), (13, 5, 0));
    assert_eq!((answered.out_of_order, answered.refusals), (4, 1));
}

/// Packet 1 of the response is lost. The rest of the response is an implied NAK, and only the
/// missing part is read again.
#[test]
fn a_hole_in_a_response_is_read_again_from_there() {
    let mut ends = Ends::new(config());
    ends.a.post(0, write(0, message(1, 1024), None)).unwrap();
    ends.run();
    completions(&mut ends.a);
    ends.a.post(1, read(0, 1024)).unwrap();
    let request = ends.a_sends();
    assert_eq!(psns(&request), [4]);
    ends.b_takes(&request);
    let mut response = ends.b_sends();
    assert_eq!(psns(&response), [4, 5, 6, 7]);
    assert_eq!(aeth(&response[0]), (Syndrome::Ack, 2));
    response.remove(1);
    ends.a_takes(&response);
    let again = ends.a_sends();
    assert_eq!(psns(&again), [5]);
    let reth = again[0].header.reth.unwrap();
    assert_eq!((reth.remote_addr, reth.dma_bytes), (place(256).addr, 768));
    ends.b_takes(&again);
    let rest = ends.b_sends();
    assert_eq!(psns(&rest), [5, 6, 7]);
    ends.a_takes(&rest);
    let data = data(message(1, 1024));
    assert_eq!(completions(&mut ends.a), [Completion::Read { id: 1, data }]);
}

#[test]
fn a_lost_acknowledgement_is_asked_for_again_and_nothing_comes_twice() {
    let mut ends = Ends::new(config());
    ends.b.post_receive(7, 600).unwrap();
    ends.a.post(0, send(message(1, 600))).unwrap();
    let packets = ends.a_sends();
    ends.b_takes(&packets);
    assert_eq!(ends.b_sends().len(), 1);
    assert_eq!(ends.wait(), 1000);
    assert_eq!(ends.run(), [0x00, 0x01, 0x02, 0x11]);
    assert_eq!(
        completions(&mut ends.a),
        [Completion::Acknowledged { id: 0 }]
    );
    assert_eq!(completions(&mut ends.b).len(), 1);
    assert_eq!(ends.b.counters().duplicates, 3);
}

#[test]
fn without_a_receive_buffer_the_sender_waits_for_the_peers_timer() {
    let rnr_timer = RnrTimer::from_code(12).unwrap();
    let config = QpConfig {
        rnr_timer,
        rnr_retry_limit: Some(1),
        ..config()
    };
    let mut ends = Ends::new(config);
    ends.a.post(0, send(message(1, 600))).unwrap();
    let packets = ends.a_sends();
    ends.b_takes(&packets);
    let nak = ends.b_sends();
    assert_eq!(psns(&nak), [0]);
    assert_eq!(aeth(&nak[0]), (Syndrome::NotReady(rnr_timer), 0));
    // A duplicate of the NAK counts once.
    ends.a_takes(&[nak[0].clone(), nak[0].clone()]);
    assert!(ends.a_sends().is_empty());
    assert_eq!(ends.wait(), 640_000);
    ends.b.post_receive(5, 600).unwrap();
    ends.run();
    assert_eq!(completions(&mut ends.b).len(), 1);
    assert_eq!(
        completions(&mut ends.a),
        [Completion::Acknowledged { id: 0 }]
    );
    // The retry count started again from zero, and then the limit applies.
    ends.a.post(1, write(0, message(1, 600), Some(3))).unwrap();
    assert_eq!(ends.run(), [0x06, 0x07, 0x09, 0x11]);
    ends.wait();
    // Only the immediate has waited.
    assert_eq!(ends.run(), [0x09, 0x11]);
    let error = RequestError::NotReady { retries: 1 };
    assert_eq!(
        completions(&mut ends.a),
        [Completion::Failed { id: 1, error }]
    );
}

#[test]
fn silence_ends_in_an_error_after_the_retries() {
    let config = QpConfig {
        retry_limit: Some(3),
        ..config()
    };
    let mut ends = Ends::new(config);
    ends.a.post(0, send(message(1, 600))).unwrap();
    ends.a.post(1, read(0, 1)).unwrap();
    ends.a.post_receive(2, 0).unwrap();
    for attempt in 0..4 {
        assert_eq!(psns(&ends.a_sends()), [0, 1, 2, 3], "{attempt}");
        assert_eq!(ends.wait(), (attempt + 1) * 1000);
    }
    let error = RequestError::RetriesExhausted { retries: 3 };
    let expected = [
        Completion::Failed { id: 0, error },
        Completion::Failed {
            id: 1,
            error: RequestError::Flushed,
        },
        Completion::Unused { id: 2 },
    ];
    assert_eq!(completions(&mut ends.a), expected);
    assert!(ends.a_sends().is_empty() && ends.a.next_timeout().is_none());
    assert_eq!(ends.a.post(3, read(0, 1)), Err(PostError::Broken));
    assert!(ends.a.is_broken());
    assert_eq!(ends.a.counters().acknowledged, 0);
}

#[test]
fn what_the_peer_must_not_do_is_refused() {
    let beyond = u64::try_from(BYTES).unwrap();
    let unknown = Request::Read {
        from: Remote { rkey: 1, addr: 0 },
        bytes: 1,
    };
    let cases = [
        (write(beyond - 599, message(1, 600), None), Nak::Access),
        (read(beyond, 1), Nak::Access),
        (unknown, Nak::Access),
        (send(message(1, 600)), Nak::InvalidRequest),
    ];
    for (request, nak) in cases {
        let mut ends = Ends::new(config());
        ends.b.post_receive(9, 599).unwrap();
        ends.a.post(0, request).unwrap();
        ends.run();
        let error = RequestError::Refused(nak);
        assert_eq!(
            completions(&mut ends.a),
            [Completion::Failed { id: 0, error }]
        );
        assert_eq!(completions(&mut ends.b), [Completion::Unused { id: 9 }]);
        assert!(ends.a.is_broken() && ends.b.is_broken());
        assert!(
            ends.memory[1]
                .bytes(RKEY)
                .unwrap()
                .iter()
                .all(|byte| *byte == 0)
        );
    }
}

#[test]
fn psns_wrap() {
    let config = QpConfig {
        send_psn: 0xFF_FFFE,
        recv_psn: 0xFF_FFFF,
        ..config()
    };
    let mut ends = Ends::new(config);
    ends.a.post(0, write(0, message(1, 1024), None)).unwrap();
    ends.a.post(1, read(0, 1024)).unwrap();
    let mut packets = ends.a_sends();
    assert_eq!(psns(&packets), [0xFF_FFFE, 0xFF_FFFF, 0, 1, 2]);
    packets.remove(2);
    ends.b_takes(&packets);
    let nak = ends.b_sends();
    assert_eq!(psns(&nak), [0]);
    ends.a_takes(&nak);
    assert_eq!(ends.run(), [0x07, 0x08, 0x0C, 0x11, 0x0D, 0x0E, 0x0E, 0x0F]);
    let data = data(message(1, 1024));
    let expected = [
        Completion::Acknowledged { id: 0 },
        Completion::Read { id: 1, data },
    ];
    assert_eq!(completions(&mut ends.a), expected);
}

#[test]
fn the_window_and_the_number_of_reads_limit_what_is_under_way() {
    let config = QpConfig {
        window_packets: 4,
        max_reads: 2,
        ..config()
    };
    let mut ends = Ends::new(config);
    ends.a.post(0, write(0, message(1, 1536), None)).unwrap();
    let packets = ends.a_sends();
    assert_eq!(psns(&packets), [0, 1, 2, 3]);
    // The last packet of the window asks for an acknowledgement.
    let asks: Vec<_> = packets.iter().map(|p| p.header.bth.ack_request).collect();
    assert_eq!(asks, [false, false, false, true]);
    ends.b_takes(&packets);
    ends.run();
    for id in 1..=3 {
        ends.a.post(id, read(0, 10)).unwrap();
    }
    assert_eq!(psns(&ends.a_sends()), [6, 7]);
}

#[test]
fn a_copy_does_not_take_the_place_of_a_nak() {
    let config = QpConfig {
        ack_every_packets: 1,
        ..config()
    };
    let mut ends = Ends::new(config);
    ends.a.post(0, write(0, message(1, 600), None)).unwrap();
    let packets = ends.a_sends();
    let [first, _, last] = &packets[..] else {
        panic!("{packets:?}");
    };
    ends.b_takes(&[first.clone(), last.clone(), first.clone()]);
    let replies = ends.b_sends();
    assert_eq!(psns(&replies), [1]);
    assert_eq!(aeth(&replies[0]), (Syndrome::Nak(Nak::Sequence), 0));
}

/// The number of sequence NAKs for each packet after a gap, sent 1000 ns apart.
fn naks_after_a_gap(nak_every_ns: Option<u64>) -> Vec<usize> {
    let mut ends = Ends::new(QpConfig {
        nak_every_ns,
        ..config()
    });
    ends.a.post(0, write(0, message(1, 1500), None)).unwrap();
    let packets = ends.a_sends();
    let naks = packets[1..].iter().map(|packet| {
        ends.b_takes(std::slice::from_ref(packet));
        ends.now_ns += 1000;
        let replies = ends.b_sends();
        let gap = (Syndrome::Nak(Nak::Sequence), 0);
        assert!(replies.iter().all(|reply| aeth(reply) == gap));
        replies.len()
    });
    naks.collect()
}

#[test]
fn a_nak_is_repeated_if_the_settings_say_so() {
    assert_eq!(naks_after_a_gap(None), [1, 0, 0, 0, 0]);
    assert_eq!(naks_after_a_gap(Some(2000)), [1, 0, 1, 0, 1]);
    assert_eq!(naks_after_a_gap(Some(0)), [1; 5]);
}

#[test]
fn repeated_naks_do_not_exhaust_the_retries() {
    let mut ends = Ends::new(QpConfig {
        nak_every_ns: Some(0),
        retry_limit: Some(2),
        ..config()
    });
    ends.a.post(0, write(0, message(1, 1500), None)).unwrap();
    for _ in 0..5 {
        // The first packet is lost again and again. All others bring a NAK.
        let packets = ends.a_sends();
        assert_eq!(psns(&packets), [0, 1, 2, 3, 4, 5]);
        ends.b_takes(&packets[1..]);
        let naks = ends.b_sends();
        assert!(!naks.is_empty());
        ends.a_takes(&naks);
    }
    ends.run();
    assert_eq!(
        completions(&mut ends.a),
        [Completion::Acknowledged { id: 0 }]
    );
}

/// An RNR NAK asks the sender to wait. Packets after it do not bring a NAK.
#[test]
fn packets_after_an_rnr_nak_bring_no_nak() {
    let mut ends = Ends::new(QpConfig {
        nak_every_ns: Some(0),
        ..config()
    });
    for id in 0..2 {
        ends.a.post(id, send(message(1, 10))).unwrap();
    }
    let packets = ends.a_sends();
    ends.b_takes(&packets);
    let replies = ends.b_sends();
    assert_eq!(psns(&replies), [0]);
    assert!(matches!(aeth(&replies[0]).0, Syndrome::NotReady(_)));
}

#[test]
fn a_copy_of_a_read_is_answered_once_if_the_response_still_waits() {
    let mut ends = Ends::new(config());
    ends.a.post(0, read(0, 600)).unwrap();
    let request = ends.a_sends();
    ends.b_takes(&request);
    ends.b_takes(&request);
    assert_eq!(psns(&ends.b_sends()), [0, 1, 2]);
    // Later, the READ is answered again, but with no more than it asked for.
    ends.b_takes(&request);
    assert_eq!(psns(&ends.b_sends()), [0, 1, 2]);
    let mut longer = request[0].clone();
    longer.header.reth.as_mut().unwrap().dma_bytes = 769;
    ends.b_takes(&[longer]);
    assert_eq!(ends.b_sends(), []);
}

#[test]
fn a_copy_of_a_read_leaves_room_for_a_new_one() {
    let config = QpConfig {
        max_reads: 1,
        ..config()
    };
    let mut ends = Ends::new(config);
    ends.a.post(0, read(0, 10)).unwrap();
    let first = ends.a_sends();
    ends.b_takes(&first);
    let response = ends.b_sends();
    ends.a_takes(&response);
    ends.a.post(1, read(0, 10)).unwrap();
    let second = ends.a_sends();
    ends.b_takes(&first);
    ends.b_takes(&second);
    assert_eq!(psns(&ends.b_sends()), [0, 1]);
    assert!(!ends.b.is_broken());
}

#[test]
fn what_was_not_sent_cannot_be_acknowledged() {
    let config = QpConfig {
        window_packets: 2,
        ..config()
    };
    let mut ends = Ends::new(config);
    ends.a.post(0, write(0, message(1, 600), None)).unwrap();
    let packets = ends.a_sends();
    ends.b_takes(&packets);
    let mut ack = ends.b_sends();
    assert_eq!(psns(&ack), [1]);
    ack[0].header.bth.psn = 2;
    ends.a_takes(&ack);
    assert_eq!(completions(&mut ends.a), []);
    assert_eq!(ends.a_sends(), []);
}

#[test]
fn requests_and_responses_take_turns() {
    let mut ends = Ends::new(config());
    ends.a.post(0, read(0, 768)).unwrap();
    let request = ends.a_sends();
    ends.b.post(0, write(0, message(1, 768), None)).unwrap();
    ends.b_takes(&request);
    let sent = ends.b_sends();
    let opcodes: Vec<_> = sent.iter().map(|p| p.header.bth.opcode).collect();
    assert_eq!(opcodes, [0x0D, 0x06, 0x0E, 0x07, 0x0F, 0x08]);
}

/// Headers of peers with arbitrary content.
#[test]
fn no_packet_breaks_a_queue_pair() {
    let mut rng = Rng::new(1);
    let mut below = |limit: usize| u32::try_from(rng.below(limit)).unwrap();
    let mut answers = 0;
    for _ in 0..300 {
        let mut ends = Ends::new(config());
        ends.b.post_receive(0, 2000).unwrap();
        ends.b.post(0, write(0, message(0, 2000), None)).unwrap();
        ends.b.post(1, read(0, 2000)).unwrap();
        ends.b_sends();
        for _ in 0..100 {
            let mut bth = Bth::parse(&[0, 0x40, 0xFF, 0xFF, 0, 0, 0, 2, 0x80, 0, 0, 0]);
            bth.opcode = u8::try_from(below(0x13)).unwrap();
            bth.psn = below(24).wrapping_sub(4) & 0xFF_FFFF;
            let mut header = Roce::new(bth);
            header.reth = (below(8) > 0).then_some(Reth {
                remote_addr: u64::MAX - 100 * u64::from(below(2)),
                rkey: RKEY * below(2),
                dma_bytes: [0, 256, 700, u32::MAX][below(4) as usize],
            });
            header.aeth = (below(8) > 0).then_some(Aeth {
                syndrome: u8::try_from(below(256)).unwrap(),
                msn: 0,
            });
            let payload = Payload::Ghost([0, 1, 256, 257][below(4) as usize]);
            ends.b_takes(&[Packet { header, payload }]);
            answers += ends.b_sends().len();
        }
    }
    assert!(answers > 500, "{answers}");
}

#[test]
fn a_slow_restart_begins_with_few_packets_and_doubles() {
    let mut ends = Ends::new(QpConfig {
        slow_restart_packets: Some(2),
        ..config()
    });
    ends.a.post(1, write(0, message(1, 5120), None)).unwrap();
    let sent = ends.a_sends();
    assert_eq!(sent.len(), 20, "the whole window before a loss");
    ends.b_takes(&sent[1..]);
    let mut flights = Vec::new();
    loop {
        let back = ends.b_sends();
        ends.a_takes(&back);
        let sent = ends.a_sends();
        if sent.is_empty() {
            break;
        }
        flights.push(sent.len());
        ends.b_takes(&sent);
    }
    assert_eq!(flights, [2, 4, 8, 6]);
    let done = completions(&mut ends.a);
    assert_eq!(done, [Completion::Acknowledged { id: 1 }]);
}

#[test]
fn timeouts_grow_from_the_first_one_to_the_longest() {
    let mut ends = Ends::new(QpConfig {
        first_timeout_ns: Some(100),
        ..config()
    });
    ends.a.post(1, write(0, message(1, 256), None)).unwrap();
    let mut waits = Vec::new();
    for _ in 0..6 {
        assert_eq!(ends.a_sends().len(), 1);
        let before_ns = ends.now_ns;
        waits.push(ends.wait() - before_ns);
    }
    assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
    // Progress makes them short again.
    ends.run();
    ends.a.post(2, write(0, message(1, 256), None)).unwrap();
    assert_eq!(ends.a_sends().len(), 1);
    let before_ns = ends.now_ns;
    assert_eq!(ends.wait() - before_ns, 100);
}
