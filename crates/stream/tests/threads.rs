//! Streams over loopback sockets, with threads.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::thread::{scope, sleep, spawn};
use std::time::Duration;

use farwrite::{Endpoint, ProgressThread, QpOptions, UdpConfig, UdpFabric};
use farwrite_rng::SplitMix;
use farwrite_stream::{Stream, StreamOptions, StreamTask};

type Progress = ProgressThread<UdpFabric>;

fn endpoint() -> Endpoint<UdpFabric> {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Endpoint::over_udp(&UdpConfig::new(loopback)).expect("sockets")
}

fn run(endpoint: Endpoint<UdpFabric>, tasks: Vec<StreamTask>) -> Progress {
    let thread = endpoint.start_thread().expect("a thread");
    for mut task in tasks {
        thread
            .add_task_of(task.queue_pair(), move |endpoint| task.run(endpoint))
            .expect("it runs");
    }
    thread
}

/// Two endpoints with some streams between them.
fn joined(options: &StreamOptions, streams: usize) -> (Vec<[Stream; 2]>, [Progress; 2]) {
    let (mut a, mut b) = (endpoint(), endpoint());
    let (mut pairs, mut tasks) = (Vec::new(), [Vec::new(), Vec::new()]);
    for _ in 0..streams {
        let base = QpOptions::default();
        let (stream_a, task_a) = Stream::create(&mut a, options, &base).expect("good options");
        let (stream_b, task_b) = Stream::create(&mut b, options, &base).expect("good options");
        let (qa, qb) = (task_a.queue_pair(), task_b.queue_pair());
        let (info_a, info_b) = (a.qp_info(qa).expect("own"), b.qp_info(qb).expect("own"));
        a.connect_qp(qa, &info_b).expect("equal options");
        b.connect_qp(qb, &info_a).expect("equal options");
        pairs.push([stream_a, stream_b]);
        tasks[0].push(task_a);
        tasks[1].push(task_b);
    }
    let [tasks_a, tasks_b] = tasks;
    (pairs, [run(a, tasks_a), run(b, tasks_b)])
}

#[test]
fn streams_echo_at_once() {
    let (pairs, _threads) = joined(&StreamOptions::default(), 4);
    scope(|threads| {
        for (seed, [a, b]) in (0_u64..).zip(pairs) {
            threads.spawn(move || {
                let (mut reader, mut writer) = b.split();
                io::copy(&mut reader, &mut writer).expect("an echo");
            });
            let (mut reader, mut writer) = a.split();
            let data = SplitMix::new(seed).bytes(3_000_000);
            let written = data.clone();
            threads.spawn(move || writer.write_all(&written).expect("written"));
            threads.spawn(move || {
                let mut heard = Vec::new();
                reader.read_to_end(&mut heard).expect("read");
                assert!(heard == data, "stream {seed}");
            });
        }
    });
}

#[test]
fn time_limits_end_calls_and_not_the_stream() {
    let (mut pairs, _threads) = joined(&StreamOptions::default(), 1);
    let [mut a, mut b] = pairs.remove(0);
    let limit = Some(Duration::from_millis(50));
    b.set_read_timeout(limit);
    let error = b.read(&mut [0; 10]).expect_err("nothing was written");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    a.set_write_timeout(limit);
    let error = a.write_all(&vec![7; 64 << 20]).expect_err("nobody reads");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    // A busy machine may need longer than the limit.
    b.set_read_timeout(None);
    assert_eq!(b.read(&mut [0; 10]).expect("there are bytes"), 10);
    // The rest of what was written arrives, and the end.
    let reader = spawn(move || io::copy(&mut b, &mut io::sink()));
    a.set_write_timeout(None);
    a.end(Shutdown::Write);
    a.wait_delivered().expect("all has arrived");
    let rest = reader.join().expect("no panic").expect("read");
    // The buffers of the sender hold 8 MiB with the heads of messages, even if nothing left in time.
    assert!(rest >= 7 << 20, "{rest} bytes");
}

#[test]
fn dropping_a_half_ends_it() {
    let (mut pairs, _threads) = joined(&StreamOptions::default(), 1);
    let [mut a, b] = pairs.remove(0);
    let (mut b_reader, mut b_writer) = b.split();
    b_writer.write_all(b"bye").expect("written");
    drop(b_writer);
    let mut heard = String::new();
    a.read_to_string(&mut heard).expect("read");
    assert_eq!(heard, "bye");
    a.write_all(b"x").expect("written");
    assert_eq!(b_reader.read(&mut [0; 10]).expect("read"), 1);
    drop(b_reader);
    let error = loop {
        if let Err(error) = a.write_all(&[0; 1000]) {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(
        error.to_string(),
        "the peer has stopped reading the stream, with code 0"
    );
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Buffers that are posted, and bytes that have reached the peer, are nothing to read.
#[test]
fn a_reader_wakes_for_what_it_reads() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let [(to_b, mut task_a), (to_a, mut task_b)] = [&mut a, &mut b].map(|end| {
        let (options, base) = (StreamOptions::default(), QpOptions::default());
        Stream::create(end, &options, &base).expect("good options")
    });
    let (qa, qb) = (task_a.queue_pair(), task_b.queue_pair());
    let (info_a, info_b) = (a.qp_info(qa).expect("own"), b.qp_info(qb).expect("own"));
    a.connect_qp(qa, &info_b).expect("equal options");
    b.connect_qp(qb, &info_a).expect("equal options");
    let mut step = || {
        a.poll_now().expect("a poll");
        task_a.run(&mut a);
        b.poll_now().expect("a poll");
        task_b.run(&mut b);
    };

    let (reader, mut writer) = to_b.split();
    let (_reader, mut answers) = to_a.split();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    assert!(!reader.is_ready(&waker));
    writer.write_all(b"request").expect("written");
    writer.set_timeout(Some(Duration::ZERO));
    while let Err(error) = writer.wait_delivered() {
        assert!(matches!(error, farwrite_stream::Error::TimedOut), "{error}");
        step();
    }
    assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
    answers.write_all(b"answer").expect("written");
    while !reader.is_ready(&waker) {
        step();
    }
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
}

#[test]
fn a_stream_fails_when_its_endpoint_ends() {
    let (mut pairs, [a_thread, _b_thread]) = joined(&StreamOptions::default(), 1);
    let [mut a, _b] = pairs.remove(0);
    let reader = spawn(move || a.read(&mut [0; 10]));
    drop(a_thread.stop());
    let error = reader
        .join()
        .expect("no panic")
        .expect_err("the endpoint has ended");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn a_stream_is_shut_down_as_others_of_tokio_are() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let (mut pairs, _threads) = joined(&StreamOptions::default(), 1);
    let [mut a, mut b] = pairs.remove(0);
    AsyncWriteExt::write_all(&mut a, b"last")
        .await
        .expect("written");
    a.shutdown().await.expect("delivered");
    let mut heard = Vec::new();
    AsyncReadExt::read_to_end(&mut b, &mut heard)
        .await
        .expect("read");
    assert_eq!(heard, b"last");
}

#[test]
fn closing_a_stream_ends_calls_that_wait() {
    let options = StreamOptions {
        messages: 2,
        ..StreamOptions::default()
    };
    let (mut pairs, _threads) = joined(&options, 1);
    let [a, b] = pairs.remove(0);
    let closer = a.control();
    let (mut reader, mut writer) = a.split();
    let reading = spawn(move || reader.read(&mut [0; 10]));
    // Nobody reads at the other end.
    let writing = spawn(move || writer.write_all(&vec![1; 16 << 20]));
    sleep(Duration::from_millis(100));
    closer.close();
    for call in [
        reading.join().expect("no panic").map(drop),
        writing.join().expect("no panic"),
    ] {
        let error = call.expect_err("this end has closed the stream");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
    }
    drop(b);
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn asynchronous_tasks_echo() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let (mut pairs, _threads) = joined(&StreamOptions::default(), 1);
    let [a, b] = pairs.remove(0);
    let echo = async {
        let (mut reader, mut writer) = b.split();
        tokio::io::copy(&mut reader, &mut writer)
            .await
            .expect("an echo");
        writer.shutdown().await.expect("delivered");
    };
    let data = SplitMix::new(1).bytes(3_000_000);
    let (mut reader, mut writer) = a.split();
    let write = async {
        AsyncWriteExt::write_all(&mut writer, &data)
            .await
            .expect("written");
        AsyncWriteExt::shutdown(&mut writer)
            .await
            .expect("delivered");
    };
    let mut heard = Vec::new();
    let read = async {
        AsyncReadExt::read_to_end(&mut reader, &mut heard)
            .await
            .expect("read")
    };
    tokio::join!(echo, write, read);
    assert!(heard == data);
}
