//! Reads: requests are repeated until they are answered, and answered in their order (P3.13).

use farwrite_rng::SplitMix;
use farwrite_sdr::{
    Event, Place, ReadRefusal, ReadSpec, Refusal, SdrError, SdrQp, SendSpec, Terms, Violation,
    Withdrawal,
};
use farwrite_wire::control::{Control, Outcome, ReadRequest, SchemeTag};

use crate::world::RTT_NS;
use crate::{connected, post, post_with, small, tell};

const SCHEME: SchemeTag = SchemeTag {
    id: 6,
    params: [0; 6],
};
/// The first wait before a request is repeated.
const FIRST_WAIT: u64 = RTT_NS / 32;

fn terms() -> Terms {
    Terms {
        exact_length: true,
        scheme: Some(SCHEME),
        accepts_partial: true,
        answers_read: true,
        ..Terms::default()
    }
}

fn spec(length: u64, deadline_ns: Option<u64>) -> ReadSpec {
    ReadSpec {
        region: 3,
        offset: 100,
        length,
        scheme: SCHEME,
        deadline_ns,
    }
}

fn answer(length: u64) -> SendSpec {
    SendSpec {
        length: Some(length),
        scheme: SCHEME,
        is_bounded: true,
        answers_read: true,
        ..SendSpec::default()
    }
}

/// A reader, and the end that it reads from.
fn pair() -> (SdrQp, SdrQp) {
    (connected(small()), connected(small()))
}

/// Posts a read of `length` bytes. Returns the number of its message.
fn read(reader: &mut SdrQp, length: u64, deadline_ns: Option<u64>) -> u64 {
    let bitmap = post_with(reader, length, terms());
    let message = bitmap.message();
    let requested = reader.request_read(message, spec(length, deadline_ns));
    requested.expect("its receive is open");
    message
}

/// Returns the requests that leave now. All other messages are lost.
fn requests(reader: &mut SdrQp, now_ns: u64) -> Vec<ReadRequest> {
    let said = std::iter::from_fn(|| reader.poll_control(now_ns, RTT_NS));
    said.filter_map(|control| match control {
        Control::Read(request) => Some(request),
        _ => None,
    })
    .collect()
}

#[test]
fn a_request_is_repeated_until_its_message_has_started() {
    let (mut reader, mut exposer) = pair();
    let deadline_ns = 10 * RTT_NS;
    read(&mut reader, 600, Some(deadline_ns));
    let mut due_ns = 0;
    for wait_ns in [FIRST_WAIT, RTT_NS / 4, RTT_NS / 2] {
        let [request] = requests(&mut reader, due_ns)[..] else {
            panic!("one request is due at {due_ns}");
        };
        assert_eq!((request.region, request.offset), (3, 100));
        assert_eq!((request.length, request.scheme), (600, SCHEME));
        assert_eq!(request.remaining_ns, deadline_ns - due_ns);
        assert_eq!(requests(&mut reader, due_ns + wait_ns - 1), []);
        due_ns += wait_ns;
    }
    tell(due_ns, &mut reader, &mut exposer);
    let wanted = spec(600, Some(deadline_ns));
    assert_eq!(exposer.next_read(), Some(&wanted));
    exposer.start_send(answer(600)).unwrap();
    assert_eq!(exposer.next_read(), None);
    tell(due_ns, &mut exposer, &mut reader);
    assert_eq!(requests(&mut reader, 25 * RTT_NS), []);
}

#[test]
fn a_request_without_deadline_says_so() {
    let (mut reader, mut exposer) = pair();
    read(&mut reader, 600, None);
    assert_eq!(requests(&mut reader, 0)[0].remaining_ns, u64::MAX);
    tell(FIRST_WAIT, &mut reader, &mut exposer);
    assert_eq!(exposer.next_read(), Some(&spec(600, None)));
}

/// Later requests cannot be answered before the peer has used the number of this one.
#[test]
fn a_read_that_is_over_is_still_requested_until_its_number_is_used() {
    let (mut reader, mut exposer) = pair();
    let first = read(&mut reader, 600, Some(FIRST_WAIT));
    assert_eq!(requests(&mut reader, 0).len(), 1, "and it is lost");
    reader.complete_recv(first, Outcome::Partial).unwrap();
    read(&mut reader, 300, None);
    let said = requests(&mut reader, 1);
    let numbers = said.iter().map(|said| (said.message, said.remaining_ns));
    assert_eq!(numbers.collect::<Vec<_>>(), [(0, 0), (1, u64::MAX)]);
    exposer
        .handle_control(2, &Control::Read(said[1]))
        .expect("it may overtake the first");
    assert_eq!(exposer.next_read(), None, "the first is missing");
    exposer.handle_control(3, &Control::Read(said[0])).unwrap();
    let due = exposer.next_read().and_then(|read| read.deadline_ns);
    assert_eq!(due, Some(3), "it is over");
    let message = exposer.start_send(answer(600)).unwrap();
    exposer.close_send(message, Outcome::Partial);
    assert_eq!(exposer.next_read(), Some(&spec(300, None)));
    tell(4, &mut exposer, &mut reader);
    let left = requests(&mut reader, 50 * FIRST_WAIT);
    assert!(left.iter().all(|request| request.message == 1));
}

/// The end of the read overtakes the offer of its message, so that no other offer follows.
#[test]
fn a_reader_that_has_seen_no_offer_hears_that_its_number_is_used() {
    let (mut reader, mut exposer) = pair();
    let message = read(&mut reader, 600, None);
    tell(0, &mut reader, &mut exposer);
    exposer.start_send(answer(600)).unwrap();
    let lost = std::iter::from_fn(|| exposer.poll_control(0, RTT_NS)).count();
    assert!(lost > 0);
    reader.complete_recv(message, Outcome::Partial).unwrap();
    for now_ns in [1, RTT_NS, 10 * RTT_NS] {
        tell(now_ns, &mut reader, &mut exposer);
        tell(now_ns, &mut exposer, &mut reader);
    }
    assert_eq!(requests(&mut reader, 100 * RTT_NS), []);
    assert_eq!(
        (reader.next_timeout(), exposer.next_timeout()),
        (None, None)
    );
}

#[test]
fn of_two_copies_the_earliest_deadline_holds() {
    let (_, mut exposer) = pair();
    let request = |remaining_ns| {
        Control::Read(ReadRequest {
            message: 0,
            region: 3,
            offset: 100,
            length: 600,
            remaining_ns,
            scheme: SCHEME,
        })
    };
    let due = |exposer: &SdrQp| exposer.next_read().and_then(|read| read.deadline_ns);
    // The first copy took long.
    exposer.handle_control(900, &request(1000)).unwrap();
    assert_eq!(due(&exposer), Some(1900));
    exposer.handle_control(950, &request(500)).unwrap();
    assert_eq!(due(&exposer), Some(1450));
    exposer.handle_control(960, &request(1000)).unwrap();
    assert_eq!(due(&exposer), Some(1450));
}

#[test]
fn requests_of_no_correct_reader_are_refused() {
    let (_, mut exposer) = pair();
    let good = ReadRequest {
        message: 0,
        region: 3,
        offset: u64::MAX,
        length: 4096,
        remaining_ns: u64::MAX - 1,
        scheme: SCHEME,
    };
    let mut say = |request| exposer.handle_control(u64::MAX, &Control::Read(request));
    assert_eq!(
        say(good),
        Ok(()),
        "the end that exposes the region checks the range"
    );
    assert_eq!(say(good), Ok(()));
    let (message, length, max) = (0, 4097, 4096);
    let long = Err(Violation::ReadTooLong {
        message,
        length,
        max,
    });
    assert_eq!(say(ReadRequest { length, ..good }), long);
    for other in [
        ReadRequest { region: 4, ..good },
        ReadRequest { offset: 4, ..good },
        ReadRequest { length: 4, ..good },
        ReadRequest {
            scheme: SchemeTag::NONE,
            ..good
        },
    ] {
        assert_eq!(say(other), Err(Violation::ReadChanged(0)));
    }
    let (message, limit) = (4, 4);
    let far = Err(Violation::MessageOutOfRange { message, limit });
    assert_eq!(say(ReadRequest { message, ..good }), far);
    assert_eq!(say(ReadRequest { message: 3, ..good }), Ok(()));
}

#[test]
fn a_refused_read_says_why_until_its_reader_has_heard_it() {
    let (mut reader, mut exposer) = pair();
    let message = read(&mut reader, 600, None);
    tell(0, &mut reader, &mut exposer);
    let refusal = ReadRefusal::UnknownRegion;
    assert_eq!(exposer.refuse_read(refusal), Ok(Some(message)));
    assert_eq!(exposer.refuse_read(refusal), Ok(None), "there is no other");
    let lost = std::iter::from_fn(|| exposer.poll_control(0, RTT_NS)).count();
    assert_eq!(lost, 1);
    tell(FIRST_WAIT, &mut exposer, &mut reader);
    let withdrawal = Withdrawal::Refused(refusal);
    let withdrawn = Event::Withdrawn {
        message,
        withdrawal,
    };
    assert_eq!(reader.poll_event(), Some(withdrawn));
    reader.complete_recv(message, Outcome::Failed).unwrap();
    tell(FIRST_WAIT, &mut reader, &mut exposer);
    assert_eq!(exposer.next_timeout(), None);
    assert_eq!(exposer.poll_event(), None);
}

#[test]
fn a_message_does_not_pass_for_the_answer_to_a_read() {
    for answers_read in [false, true] {
        let (mut reader, mut exposer) = pair();
        let message = match answers_read {
            true => post(&mut reader, 600).message(),
            false => read(&mut reader, 600, None),
        };
        let send = SendSpec {
            answers_read,
            ..answer(600)
        };
        exposer.start_send(send).unwrap();
        tell(0, &mut reader, &mut exposer);
        tell(0, &mut exposer, &mut reader);
        let refusal = Refusal::Read {
            offered: answers_read,
        };
        let sent = Event::SendRefused { message, refusal };
        assert_eq!(exposer.poll_event(), Some(sent));
        assert!(!exposer.is_clear(message));
        let refused = Event::Refused { message, refusal };
        assert_eq!(reader.poll_event(), Some(refused));
    }
}

#[test]
fn a_read_that_is_requested_twice_has_one_request() {
    let (mut reader, _) = pair();
    let message = read(&mut reader, 600, None);
    assert_eq!(requests(&mut reader, 0).len(), 1);
    reader.request_read(message, spec(600, None)).unwrap();
    assert_eq!(requests(&mut reader, FIRST_WAIT).len(), 1);
    assert_eq!(requests(&mut reader, 2 * FIRST_WAIT).len(), 1);
}

#[test]
fn only_an_open_receive_can_be_requested() {
    let (mut reader, _) = pair();
    let unknown = Err(SdrError::UnknownMessage(0));
    assert_eq!(reader.request_read(0, spec(600, None)), unknown);
}

/// Runs reads over a network that loses most control messages. Every second one is refused.
fn run(seed: u64) {
    let mut rng = SplitMix::new(seed);
    let (mut reader, mut exposer) = pair();
    let (mut posted, mut over, mut answered) = (0, 0, 0);
    let reads = 40;
    let mut now_ns = 0;
    while over < reads {
        now_ns += FIRST_WAIT / 4;
        assert!(now_ns < 4000 * RTT_NS, "{over} reads are over");
        while posted < reads
            && let Ok(place) = reader.next_recv()
        {
            let target = Place {
                rkey: place.generation.into(),
                base: reader.geometry().slot_base(place.slot),
                length: 600,
            };
            reader.post_recv(place, target, terms()).unwrap();
            let message = place.message.data();
            let deadline_ns = rng.chance(0.5).then_some(now_ns + 2 * RTT_NS);
            reader
                .request_read(message, spec(600, deadline_ns))
                .unwrap();
            posted += 1;
        }
        while exposer.next_read().is_some() {
            let started = match answered % 2 {
                0 => exposer.start_send(answer(600)).map(Some),
                _ => exposer.refuse_read(ReadRefusal::OutOfRange),
            };
            let Ok(started) = started else { break };
            assert_eq!(started, Some(answered), "in the order of the receives");
            answered += 1;
        }
        while let Some(control) = reader.poll_control(now_ns, RTT_NS) {
            if rng.chance(0.3) {
                exposer.handle_control(now_ns, &control).unwrap();
            }
        }
        while let Some(control) = exposer.poll_control(now_ns, RTT_NS) {
            if rng.chance(0.3) {
                reader.handle_control(now_ns, &control).unwrap();
            }
        }
        while let Some(event) = exposer.poll_event() {
            // The data of the answer arrives at once.
            if let Event::ClearToSend { message } = event {
                exposer.close_send(message.data(), Outcome::Partial);
            }
        }
        while let Some(event) = reader.poll_event() {
            if let Event::Withdrawn { message, .. } = event {
                reader.complete_recv(message, Outcome::Failed).unwrap();
                over += 1;
            }
        }
        // Its user may end a read at any time.
        let message = rng.within(0..posted.max(1));
        if rng.chance(0.05) && reader.complete_recv(message, Outcome::Failed).is_ok() {
            over += 1;
        }
    }
    // The peer may still have to use the numbers of reads that are over.
    for _ in 0..8 {
        now_ns += 100 * RTT_NS;
        tell(now_ns, &mut reader, &mut exposer);
        while let Ok(Some(_)) = exposer.refuse_read(ReadRefusal::OutOfRange) {
            answered += 1;
        }
        tell(now_ns, &mut exposer, &mut reader);
    }
    assert_eq!(answered, reads, "seed {seed}");
    assert_eq!(reader.next_timeout(), None, "seed {seed}");
    assert_eq!(exposer.next_timeout(), None, "seed {seed}");
}

#[test]
fn reads_end_where_most_control_messages_are_lost() {
    (0..40).for_each(run);
}
