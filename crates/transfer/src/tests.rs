//! Both ends in one process, with an emulated link between their UDP sockets.

mod file_reports;
mod lies;
mod memory;
mod notices;
mod progress;
mod shrinking;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use farwrite::{
    Endpoint, Fabric as _, QpInfo, QpOptions, ReservedPort, SchemeName, Sealing, UdpConfig,
};
use farwrite_connection::{ByeCause, Connection, Ended, Keys, Listener, Purpose};
use farwrite_emulator::udp::{PortPair, Side, UdpEmulator, UdpEmulatorConfig};
use farwrite_files::{Message, Policy, ScanOptions, Source};
use farwrite_keys::{Key, Psk, Text};
use farwrite_link::{LinkConfig, Loss};

use crate::{
    Cancel, Channel, Client, ErrorKind, Event, Observer, RateControl, ReceiveSettings, RouteShrunk,
    SETUP, SchemeSetting, SendSettings, TransferHooks, TransferReport, Unfinished, connect_first,
    connection_options, receive, send,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A receiver at a free port of loopback.
pub(crate) struct Meeting {
    key: Key,
    port: ReservedPort,
    listener: Listener,
}

impl Meeting {
    pub(crate) fn new() -> Self {
        let psk = Psk::generate().expect("key");
        let port = ReservedPort::bind(([127, 0, 0, 1], 0).into()).expect("loopback");
        let mut options = connection_options(TIMEOUT);
        options.serves = vec![Purpose::FILES];
        let listener = Listener::bind_beside(&port, &Keys::of_psk(&psk), &options);
        Self {
            key: (&psk).into(),
            port,
            listener: listener.expect("loopback"),
        }
    }

    pub(crate) fn accept(&self) -> Connection {
        let accepted = self.listener.accept(TIMEOUT).expect("the port works");
        accepted.expect("a sender comes")
    }

    pub(crate) fn connect(&self) -> Channel {
        self.connect_at(self.port.local_addr())
    }

    fn connect_at(&self, at: SocketAddr) -> Channel {
        connect_first(&[at], &self.key, SETUP, &Cancel::default()).expect("a channel")
    }

    /// Both ends of a channel, the first of which `connect` makes.
    pub(crate) fn channels(&self, connect: impl FnOnce() -> Channel + Send) -> [Channel; 2] {
        thread::scope(|scope| {
            let near = scope.spawn(connect);
            let far = Channel::accept(&self.accept(), TIMEOUT).expect("no error");
            [near.join().expect("no panic"), far.expect("in time")]
        })
    }
}

/// Keeps what both ends report of paths that shrink, and their progress.
#[derive(Default)]
struct Reports {
    shrunk: Mutex<Vec<RouteShrunk>>,
    /// `sending` or `receiving`, and the bytes that had arrived.
    progress: Mutex<Vec<(&'static str, u64)>>,
}

impl Observer for Reports {
    fn observe(&self, event: Event) {
        match event {
            Event::RouteShrunk(shrunk) => self.shrunk.lock().expect("no panic").push(shrunk),
            Event::Progress {
                label, done_bytes, ..
            } => {
                let mut progress = self.progress.lock().expect("no panic");
                progress.push((label, done_bytes));
            }
            _ => {}
        }
    }
}

/// The hooks of an end of a transfer. A receiver has a meeting.
fn hooks<'a>(
    meeting: Option<&'a Meeting>,
    cancel: &'a Cancel,
    observer: &'a Reports,
) -> TransferHooks<'a> {
    TransferHooks {
        redirect: &crate::unchanged,
        cancel,
        observer,
        port: meeting.map(|meeting| &meeting.port),
        device: None,
        memory: None,
        max_rate: None,
        when_blocked: None,
    }
}

/// A file in a directory of its own.
fn one_file(bytes: &[u8]) -> (tempfile::TempDir, Source) {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("file");
    fs::write(&path, bytes).expect("write");
    let source = Source::scan(&[path], &ScanOptions::default()).expect("a file");
    (directory, source)
}

/// A link with this delay in each direction.
fn delayed(ms: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(ms),
        ..LinkConfig::default()
    }
}

/// A link that starts when the receiver learns the address of the sender.
struct Link {
    config: LinkConfig,
    receiver: SocketAddr,
    emulator: OnceLock<UdpEmulator>,
}

impl Link {
    fn emulator(&self, sender: SocketAddr) -> &UdpEmulator {
        self.emulator.get_or_init(|| {
            let config = UdpEmulatorConfig {
                forward: self.config,
                backward: self.config,
                seed: 7,
                channels: vec![PortPair {
                    a: Side::facing(sender),
                    b: Side::facing(self.receiver),
                }],
                ..UdpEmulatorConfig::default()
            };
            UdpEmulator::start(&config).expect("a link that can be")
        })
    }
}

/// Moves bytes across a link. Calls `meddle` while they are in transit.
fn cross(
    config: LinkConfig,
    scheme: SchemeSetting,
    rate_bps: u64,
    bytes: &[u8],
    meddle: impl Fn(&UdpEmulator) + Sync,
) -> [TransferReport; 2] {
    let settings = SendSettings {
        scheme,
        rate_control: RateControl::Fixed { rate_bps },
        ..adaptive_settings()
    };
    cross_as(config, settings, bytes, meddle)
}

/// Like [`cross`], with the settings of the sender.
fn cross_as(
    config: LinkConfig,
    settings: SendSettings,
    bytes: &[u8],
    meddle: impl Fn(&UdpEmulator) + Sync,
) -> [TransferReport; 2] {
    let crossing = attempt(config, settings, bytes, meddle);
    assert!(crossing.has_arrived);
    crossing
        .results
        .map(|result| result.unwrap_or_else(|failure| panic!("{failure}")))
}

/// How a transfer ended at the sender and at the receiver.
struct Crossing {
    results: [Result<TransferReport, Unfinished>; 2],
    /// Whether the receiver has the file.
    has_arrived: bool,
    /// What both ends reported of the path in between.
    shrunk: Vec<RouteShrunk>,
    /// See [`Reports`].
    progress: Vec<(&'static str, u64)>,
}

/// Like [`cross_as`], but the transfer may fail.
fn attempt(
    config: LinkConfig,
    settings: SendSettings,
    bytes: &[u8],
    meddle: impl Fn(&UdpEmulator) + Sync,
) -> Crossing {
    let (_from, source) = one_file(bytes);
    let to = tempfile::tempdir().expect("directory");
    let (cancel, observer) = (Cancel::default(), Reports::default());
    let results = travel(
        config,
        settings,
        (source, to.path()),
        (&cancel, &observer),
        meddle,
    );
    Crossing {
        results,
        has_arrived: fs::read(to.path().join("file")).is_ok_and(|arrived| arrived == bytes),
        shrunk: observer.shrunk.into_inner().expect("no panic"),
        progress: observer.progress.into_inner().expect("no panic"),
    }
}

/// Sends the files of a source across a link into a directory. Returns the results of the sender and of
/// the receiver.
fn travel(
    config: LinkConfig,
    settings: SendSettings,
    (source, to): (Source, &Path),
    (cancel, observer): (&Cancel, &Reports),
    meddle: impl Fn(&UdpEmulator) + Sync,
) -> [Result<TransferReport, Unfinished>; 2] {
    let meeting = Meeting::new();
    let link = Link {
        config,
        receiver: meeting.port.local_addr(),
        emulator: OnceLock::new(),
    };
    let limits = receive_settings(match settings.rate_control {
        RateControl::Eqds(options) => Some(options.line_rate_bps),
        _ => None,
    });
    let results = thread::scope(|scope| {
        let receives = scope.spawn(|| {
            let connection = meeting.accept();
            let redirect = |sender| Ok(link.emulator(sender).addresses()[0][1]);
            let hooks = TransferHooks {
                redirect: &redirect,
                ..hooks(Some(&meeting), cancel, observer)
            };
            let sender = Client::accept(&connection, cancel).expect("a hello");
            receive(sender, to, &limits, &hooks)
        });
        let channel = meeting.connect();
        let redirect = |_| {
            let emulator = link.emulator.wait();
            scope.spawn(|| meddle(emulator));
            Ok(emulator.addresses()[0][0])
        };
        let hooks = TransferHooks {
            redirect: &redirect,
            ..hooks(None, cancel, observer)
        };
        let sent = send(channel, &meeting.key, source, &settings, &hooks);
        [sent, receives.join().expect("no panic")]
    });
    // Each end names the address that it sends to, not the address that the peer knows as its own.
    let seen = link.emulator.wait().addresses()[0];
    for shrunk in observer.shrunk.lock().expect("no panic").iter() {
        assert!(seen.contains(&shrunk.peer), "{shrunk}: {seen:?}");
    }
    results
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| (i * 31 % 251).to_le_bytes()[0])
        .collect()
}

#[test]
fn files_cross_a_long_lossy_link_with_every_scheme() {
    let config = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.01 },
        ..delayed(10)
    };
    for scheme in SchemeName::EXACT {
        let reports = cross(
            config,
            SchemeSetting::Named(scheme),
            100_000_000,
            &pattern(1_500_000),
            |_| {},
        );
        let [sent, received] = reports.map(|report| serde_json::to_value(report).expect("JSON"));
        let again = sent["retransmitted_share"].as_f64().expect("a share");
        let rebuilt = received["rebuilt_chunks"].as_u64().expect("a count");
        // About one of 100 chunks is lost, of 1072 in total.
        match scheme {
            SchemeName::Ec(_) => assert!(rebuilt > 0, "{received}"),
            _ => assert!(rebuilt == 0 && again > 0.002, "{sent} {received}"),
        }
        let [told, measured] = [&sent["send_loss"], &received["receive_loss"]].map(|loss| {
            let share = loss["loss_chunk"].as_f64().expect("a share");
            assert!((0.0..0.05).contains(&share), "{loss}");
            loss["judged_chunks"].as_u64().expect("a count")
        });
        // Chunks before a pause are not judged, and a busy machine pauses.
        assert!(told <= measured && told > 100, "{told} of {measured}");
        // The peers' own measurement, through the link. The channel uses the direct way, which takes much
        // less than the link. A busy machine adds to its delay.
        let rtt_ms = sent["rtt_ms"].as_f64().expect("a time");
        assert!((20.0..400.0).contains(&rtt_ms), "{sent}");
        assert_eq!(
            (&sent["failed_files"], &received["files"]),
            (&0.into(), &1.into())
        );
    }
}

/// Waits until this number of packets has crossed the link from the sender.
fn until_delivered(link: &UdpEmulator, packets: u64) {
    let start = Instant::now();
    while link.counters().forward.link.delivered < packets {
        assert!(start.elapsed() < TIMEOUT, "{:?}", link.counters());
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_link_dead_for_five_seconds_is_survived() {
    const OUTAGE: Duration = Duration::from_secs(5);
    let start = Instant::now();
    cross(
        delayed(5),
        SchemeSetting::Named(SchemeName::SrNack),
        50_000_000,
        &pattern(6_000_000),
        |link| {
            // The transfer has more than 4000 packets.
            until_delivered(link, 300);
            link.set_down(true);
            thread::sleep(OUTAGE);
            link.set_down(false);
        },
    );
    let elapsed = start.elapsed();
    assert!(elapsed > OUTAGE, "it was over before: {elapsed:?}");
    assert!(elapsed < 6 * OUTAGE, "it took {elapsed:?} to come back");
}

/// Until then, the receiver keeps a place for the sender.
#[test]
fn a_receiver_learns_that_the_user_interrupts_a_sender_that_connects() {
    let meeting = Meeting::new();
    let flag = Arc::<AtomicBool>::default();
    let cancel = Cancel::watching(Arc::clone(&flag));
    thread::scope(|scope| {
        let connect = || connect_first(&[meeting.port.local_addr()], &meeting.key, SETUP, &cancel);
        let sender = scope.spawn(connect);
        // The channel is not accepted, so the sender still connects.
        let connection = meeting.accept();
        flag.store(true, Ordering::Relaxed);
        let ended = connection.wait_ended(TIMEOUT).expect("no failure");
        let told = matches!(
            ended,
            Some(Ended::ByPeer {
                cause: ByeCause::Closed,
                ..
            })
        );
        assert!(told, "{ended:?}");
        let error = sender.join().expect("no panic").expect_err("interrupted");
        assert_eq!(error.kind(), ErrorKind::Interrupted);
    });
}

/// Returns the number of messages by scheme, and the last scheme that was chosen.
fn choices(sent: &TransferReport) -> (serde_json::Map<String, serde_json::Value>, String) {
    let sent = serde_json::to_value(sent).expect("JSON");
    assert_eq!(sent["scheme"], "auto");
    let auto = &sent["auto"];
    let last = auto["last_changes"].as_array().expect("changes").last();
    let last = last.expect("a first choice")["scheme"]
        .as_str()
        .expect("a name");
    (
        auto["messages"].as_object().expect("messages").clone(),
        last.to_owned(),
    )
}

#[test]
fn auto_codes_where_a_long_path_loses_much() {
    let config = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.02 },
        ..delayed(50)
    };
    let reports = cross(
        config,
        SchemeSetting::Auto,
        100_000_000,
        &pattern(6_000_000),
        |_| {},
    );
    let (messages, last) = choices(&reports[0]);
    assert!(last.starts_with("ec-"), "{messages:?}");
    assert!(reports[0].line().len() <= 80, "{}", reports[0].line());
    let details = reports[0].details().join("\n");
    for said in ["round trip: ", "lost by the path: ", "sent again: ", &last] {
        assert!(details.contains(said), "{said:?} is not in {details}");
    }
    let [sent, received] = [0, 1].map(|end| serde_json::to_value(&reports[end]).expect("JSON"));
    // A busy machine adds to the delay of 2 x 50 ms.
    let rtt_ms = sent["rtt_ms"].as_f64().expect("a number");
    assert!((100.0..2000.0).contains(&rtt_ms), "{rtt_ms} ms");
    assert_eq!(received["scheme"], "auto");
    assert!(received["auto"].is_null());
    assert!(received["rebuilt_chunks"].as_u64() > Some(3), "{received}");
}

#[test]
fn auto_repeats_where_nothing_is_lost() {
    let reports = cross(
        delayed(50),
        SchemeSetting::Auto,
        100_000_000,
        &pattern(6_000_000),
        |_| {},
    );
    let (messages, last) = choices(&reports[0]);
    assert_eq!(
        (messages.len(), last.as_str()),
        (1, "sr-nack"),
        "{messages:?}"
    );
}

#[test]
fn reports_of_more_than_was_sent_are_shown() {
    for (duplicate, is_shown) in [(0.0, false), (1.0, true)] {
        let config = LinkConfig {
            duplicate,
            ..delayed(5)
        };
        let scheme = SchemeSetting::Named(SchemeName::SrNack);
        let settings = SendSettings {
            scheme,
            // Copies of sealed packets are not reported.
            sealing: Sealing::Off,
            ..adaptive_settings()
        };
        let [sent, _] = cross_as(config, settings, &pattern(2_000_000), |_| {});
        let details = sent.details().join("\n");
        let said = "reports of the receiver of more than was sent: ";
        assert_eq!(details.contains(said), is_shown, "{details}");
        let sent = serde_json::to_value(sent).expect("JSON");
        assert_eq!(sent["excess_feedback"].as_u64() > Some(0), is_shown);
        assert_eq!(sent["refused_feedback"], 0);
    }
}

fn adaptive_settings() -> SendSettings {
    SendSettings {
        compare: farwrite_files::Compare::Time,
        delete: None,
        scheme: SchemeSetting::Auto,
        rate_control: adaptive(),
        expected_loss: None,
        mtu: Some(1400),
        largest_mtu: None,
        sealing: Sealing::Preferred,
        memory_bytes: 1 << 26,
        timeout: TIMEOUT,
    }
}

fn receive_settings(credit_bps: Option<u64>) -> ReceiveSettings {
    ReceiveSettings {
        memory_bytes: 1 << 26,
        timeout: TIMEOUT,
        credit_bps,
        sealing: Sealing::Preferred,
        max_bytes: None,
        max_file_bytes: None,
        max_files: None,
        names: None,
        max_delete: None,
        policy: Policy::default(),
    }
}

fn adaptive() -> RateControl {
    RateControl::Adaptive {
        max_bps: Some(100_000_000),
        start: None,
    }
}
