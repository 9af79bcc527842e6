//! The client: it opens queue pairs, measures each size, and prints the table.

use std::process::ExitCode;

use farwrite::ExposedRegion;
use farwrite_connection::{
    Connection, Connector, Error as ConnectionError, MessageOptions, Messages,
};
use farwrite_transfer::{Cancel, RECEIVER, check_device, keys_of, with_connector};

use super::args::{PerfArgs, Test};
use super::control::{Answer, Arrived, Ask, MOST_LINE_BYTES, NAME, Setting};
use super::data::{Apart, Carrier, Data};
use super::report::{BandwidthRow, ClientReport, LatencyRow, Row};
use super::tasks::{Asking, Client, Flow, Goal, Inbox, PingPong, Shared};
use super::{PATIENCE, connection_options, hear, is_alive, tell};
use crate::addresses::parse_target_at;
use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};
use crate::{files, interrupt};

pub(super) fn run(args: &PerfArgs, host: &str, console: &Console) -> Result<ExitCode, Failure> {
    let cancel = interrupt::catch()?;
    let target = parse_target_at(host, args.port);
    let target = target.map_err(|why| Failure::new(Exit::Usage, why))?;
    let settings = settings(args)?;
    let windows = args.device.as_ref().map(check_device).transpose()?;
    if args.out_json {
        // A wrong name is better found before the measurement.
        files::write(&args.out_json_file, "")?;
    }
    let keys = keys_of(&args.key.connecting.key_or_code(false, &cancel)?)?;
    let to = target.to_string();
    let meet = move |connector: &Connector| connector.connect(&to, &keys, RECEIVER);
    let connection = with_connector(&connection_options(), meet, &cancel, || {})?;
    let connection = connection.or_fail("connecting")?;
    let mut report = ClientReport::new(args, &target.to_string());
    report.windows = windows.map(|keys| keys.to_string());
    let arrived = measure(args, &settings, &connection, &cancel, console, &mut report)?;
    report.arrived = arrived;
    connection.close();
    console.say_all(report.last_line());
    if args.out_json {
        files::write(&args.out_json_file, report.perftest_json())?;
    }
    console.end(report.check_limits(args), &report)
}

/// A setting for each number of packets of a chunk.
fn settings(args: &PerfArgs) -> Result<Vec<Setting>, Failure> {
    let max_bytes = args.sizes().into_iter().max().unwrap_or(1);
    let is_latency = args.test == Test::WriteLat;
    let setting = |&packets_per_chunk: &u32| Setting {
        test: args.test,
        connection: args.connection,
        scheme: args.scheme().to_string(),
        max_bytes,
        queue_pairs: if is_latency { 1 } else { args.queue_pairs },
        tx_depth: if is_latency { 1 } else { args.tx_depth },
        mtu: args.mtu,
        packets_per_chunk,
        has_device: args.device.is_some(),
        has_sockets: args.device.is_none() && (args.channels > 1 || args.receive_threads),
        channels: args.channels,
    };
    let settings: Vec<_> = args.chunk.iter().map(setting).collect();
    for setting in &settings {
        let checked = setting.check(args.test);
        checked.map_err(|why| Failure::new(Exit::Usage, why))?;
    }
    Ok(settings)
}

fn measure(
    args: &PerfArgs,
    settings: &[Setting],
    connection: &Connection,
    cancel: &Cancel,
    console: &Console,
    report: &mut ClientReport,
) -> Result<Arrived, Failure> {
    let control = connection.open_queue_pair(NAME, farwrite::QpOptions::default(), PATIENCE);
    let control = control.map_err(|error| match error {
        ConnectionError::Timeout { .. } => {
            Failure::new(Exit::Mismatch, "the server does not run `farwrite perf`")
        }
        error => Failure::of("connecting", &error),
    })?;
    let options = MessageOptions {
        longest_bytes: MOST_LINE_BYTES,
        ..MessageOptions::default()
    };
    let messages = control.into_messages(options).or_fail("connecting")?;
    for (number, setting) in settings.iter().enumerate() {
        let opened = Opened::new((setting, number), args, connection, &messages, cancel)?;
        if number == 0 {
            (report.mtu, report.is_sealed) = opened.data.packets()?;
            console.say_all(report.head(setting));
        }
        if settings.len() > 1 {
            console.say_all(format_args!(
                " Packets of a chunk : {}",
                setting.packets_per_chunk
            ));
        }
        for bytes in args.sizes() {
            let row = opened.measure(args, bytes, cancel);
            // When the connection is over, its queue pairs are gone: that is not the reason.
            let row = row.or_else(|failure| is_alive(connection, cancel).and(Err(failure)))?;
            console.say_all(row.line());
            report.add(setting, row);
        }
    }
    tell(&messages, &Ask::Finish);
    match hear(&messages, cancel, Some(PATIENCE))? {
        Answer::Finished(arrived) => Ok(arrived),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(answer: &Answer) -> Failure {
    match answer {
        Answer::Refused { why } => Failure::new(Exit::Mismatch, why),
        other => Failure::new(
            Exit::Mismatch,
            format_args!("the server sent {other:?} at the wrong time"),
        ),
    }
}

/// The queue pairs of a setting.
struct Opened {
    client: Shared<Client>,
    data: Data,
}

/// Opens the queue pairs of a setting.
fn open(
    (setting, number): (&Setting, usize),
    args: &PerfArgs,
    connection: &Connection,
    messages: &Messages,
    cancel: &Cancel,
) -> Result<Data, Failure> {
    let device = args.device.as_ref();
    let mut apart = device
        .map(|device| Apart::open(args, connection, &Carrier::Device(device)))
        .transpose()?;
    let mut setting = setting.clone();
    if let Some(apart) = &apart {
        setting.mtu = apart.mtu(&setting);
    }
    tell(messages, &Ask::Open(setting.clone()));
    match hear(messages, cancel, Some(PATIENCE))? {
        Answer::Accepted if !setting.has_device && !setting.has_sockets => {
            let options = setting.options()?;
            let mut pairs = Vec::new();
            for index in 0..setting.queue_pairs {
                let name = format!("{number}.{index}");
                let pair = connection.open_queue_pair(&name, options.clone(), PATIENCE);
                pairs.push(pair.or_fail("opening a queue pair")?);
            }
            Data::connected(args, connection, pairs)
        }
        Answer::Accepted => Err(Failure::new(
            Exit::Mismatch,
            "the server is of a version that has all data on the connection: update it, or leave out --device, \
             --channels and --receive-threads",
        )),
        Answer::Apart {
            mtu,
            ends,
            has_device,
        } => {
            let carrier = match has_device {
                true => Carrier::SocketForDevice,
                false => Carrier::Sockets {
                    channels: setting.channels,
                },
            };
            let mut apart = match apart.take() {
                Some(apart) => apart,
                None => Apart::open(args, connection, &carrier)?,
            };
            setting.mtu = mtu;
            let ours = apart.create(&setting)?;
            let data = apart.connect(&ends)?;
            tell(messages, &Ask::Connect { ends: ours });
            Ok(data)
        }
        other => Err(unexpected(&other)),
    }
}

impl Opened {
    fn new(
        (setting, number): (&Setting, usize),
        args: &PerfArgs,
        connection: &Connection,
        messages: &Messages,
        cancel: &Cancel,
    ) -> Result<Self, Failure> {
        let data = open((setting, number), args, connection, messages, cancel)?;
        let regions = match hear(messages, cancel, Some(PATIENCE))? {
            Answer::Opened { regions } => regions,
            other => return Err(unexpected(&other)),
        };
        let mut sources = regions.into_iter().map(ExposedRegion);
        let flows = data.pairs.iter().map(|&qp| {
            let memory = data.register(setting.max_bytes, 0x5a)?;
            Ok(Flow::new(qp, memory, sources.next()))
        });
        let mut flows: Vec<_> = flows.collect::<Result<_, Failure>>()?;
        let asking = match setting.test {
            Test::WriteLat => {
                let out = flows.remove(0);
                let inbox = Inbox::new(out.qp, vec![data.register(setting.max_bytes, 0)?]);
                Asking::PingPong(PingPong::new(inbox, out.memory))
            }
            Test::WriteBw | Test::ReadBw | Test::SendBw => Asking::Load {
                flows,
                depth: setting.tx_depth.into(),
            },
        };
        let client = Shared::new(Client::new(asking, setting.scheme()?));
        data.start(&client)?;
        Ok(Self { client, data })
    }

    /// Measures a size.
    fn measure(&self, args: &PerfArgs, bytes: u64, cancel: &Cancel) -> Result<Row, Failure> {
        let goal = match args.time() {
            Some(time) => Goal::Time(time),
            None => Goal::Messages(args.iters()),
        };
        self.client.lock().work.begin(bytes, goal);
        self.data.wake();
        let round = self.data.wait(cancel, || {
            let mut held = self.client.lock();
            let error = held.error.as_ref();
            let failed = error.map(|error| Err(Failure::caused(Exit::Other, "measuring", error)));
            failed.or_else(|| held.work.take_ended().map(Ok))
        })?;
        if args.test == Test::WriteLat {
            return Ok(Row::Latency(LatencyRow::new(bytes, round.times)));
        }
        if round.failed > 0 {
            let (failed, all) = (round.failed, round.completed);
            let what = format!("{failed} of {all} messages have failed");
            return Err(Failure::new(Exit::Other, what));
        }
        Ok(Row::Bandwidth(BandwidthRow::new(bytes, &round, args)))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.client.stop();
    }
}
