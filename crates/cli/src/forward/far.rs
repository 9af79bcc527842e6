//! The end that makes the TCP connections: one that listens for others, or one that ssh has started.

use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use farwrite_connection::{Connection, ConnectionOptions, Listener, Purpose};
use farwrite_keys::{HostPort, Proof, Psk, shown};
use farwrite_stream::{ConnectionExt, Stream, StreamOptions};
use farwrite_transfer::{Cancel, Refused};
use farwrite_units::show::Count;
use serde_json::json;

use super::carry::{AtOnce, carry, prepare};
use super::opening::{CONNECTED, read_request, refusal};
use super::{ForwardArgs, LAST_WORDS, NAME, OPENING, stream_options};
use crate::accepting::Accepting;
use crate::addresses::address_of;
use crate::audit::Audit;
use crate::console::Console;
use crate::cp::greet;
use crate::cp::meeting::Meeting;
use crate::cp::relay::{Out, Relay};
use crate::exit::{Exit, Failure, OrExit};
use crate::interrupt;
use crate::peers::SharedPeers;
use crate::recv::raise_open_files;
use crate::rsh::{SessionArgs, dial, line, listen as listen_anywhere};

/// The most near ends at a time.
const MOST_CONNECTIONS: usize = 32;
/// How long an address of a destination may take to answer.
const CONNECTING: Duration = Duration::from_secs(10);
/// How long to wait for a stream before looking whether the connection is over.
const STREAM: Duration = Duration::from_secs(60);

/// Serves all near ends that hold the key or are known, until the user ends it.
pub(super) fn listen(
    args: &ForwardArgs,
    addr: SocketAddr,
    console: &Console,
) -> Result<ExitCode, Failure> {
    if args.allow_forward.is_empty() && args.key.peers.is_none() {
        let what =
            "--listen: give --allow-forward HOST:PORT: without it, this end forwards nothing";
        return Err(Failure::new(Exit::Usage, what));
    }
    let (accepting, cancel) = Accepting::prepare(&args.key.accepts(false), console)?;
    let options = ConnectionOptions {
        serves: vec![Purpose::FORWARD],
        ..args.session.connection(OPENING)
    };
    let listener = Listener::bind(addr, &accepting.keys(), &options);
    let listener = listener.or_fail("listening")?;
    let audit = Arc::new(Audit::start(args.audit.clone(), console.clone())?);
    let local = listener.bound_addr();
    console.say(format_args!("listening on {} (UDP)", shown(&local)));
    let allowed: Vec<_> = args.allow_forward.iter().map(HostPort::to_string).collect();
    let first = allowed.first().map_or("HOST:PORT", String::as_str);
    let command = |end: &str| format!("farwrite forward -L PORT:{first} --to {end}");
    accepting.invite(local, command, console);
    let service = Service {
        allowed: Some(args.allow_forward.clone()),
        peers: accepting.peers().clone(),
        audit: Arc::clone(&audit),
        options: stream_options(args.session.scheme),
    };
    let mut refused = Refused::new(Arc::<Audit>::clone(&audit));
    let next = || accepting.next(&listener, (&mut refused, &audit), console);
    serve_all(&Arc::new(service), next, &cancel, console)
}

fn serve_all(
    service: &Arc<Service>,
    mut next: impl FnMut() -> Result<Option<Connection>, Failure>,
    cancel: &Cancel,
    console: &Console,
) -> Result<ExitCode, Failure> {
    let mut connections = Vec::<Connection>::new();
    loop {
        if let Err(interrupted) = cancel.check() {
            let start = Instant::now();
            connections.iter().for_each(Connection::close);
            for connection in &connections {
                connection.finish(LAST_WORDS.saturating_sub(start.elapsed()));
            }
            return Err(interrupted.into());
        }
        let Some(connection) = next()? else { continue };
        connections.retain(|connection| connection.ended().is_none());
        if let Err(why) = service.check_room(&connections, &connection) {
            connection.refuse_as_busy(&why);
            let (name, address) = (connection.peer().name(), address_of(&connection));
            service.audit.note_busy(name, &address, &why);
            continue;
        }
        let name = connection.peer().name();
        let name = name.map_or_else(String::new, |name| format!("{name} at "));
        console.say(format_args!("connected: {name}{}", address_of(&connection)));
        connections.push(connection.clone());
        service.serve_apart(connection);
    }
}

/// Serves the near end that has started this program through ssh (P14.6).
pub(crate) fn run_far(
    session: &SessionArgs,
    psk: &Psk,
    mut pipe: File,
    console: &Console,
) -> Result<ExitCode, Failure> {
    raise_open_files();
    let listener = listen_anywhere(session.port, psk, session)?;
    let local = listener.bound_addr();
    greet(&mut pipe, Some(&Meeting::of_far(local)))?;
    let service = Arc::new(Service {
        // The near end could log in.
        allowed: None,
        peers: SharedPeers::default(),
        audit: Arc::new(Audit::start(None, console.clone())?),
        options: stream_options(session.scheme),
    });
    let of_listener = Arc::clone(&service);
    thread::spawn(move || {
        loop {
            match listener.accept(STREAM) {
                Ok(Some(connection)) => of_listener.serve_apart(connection),
                Ok(None) => {}
                Err(_) => return,
            }
        }
    });
    loop {
        let line = line()?;
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("udp", _) => {}
            ("dial", meeting) => {
                // The near end may have given up meanwhile, and says so.
                if let Ok(connection) = dial(&Meeting::told_by_near(meeting)?, psk, session) {
                    service.serve_apart(connection);
                }
            }
            ("ssh", _) => {
                let relay = Out::new(pipe).and_then(|out| Relay::exit(out, local.port()));
                let relay = relay.or_exit(Exit::Other, "carrying the data through ssh")?;
                let read = relay.read(io::stdin().lock());
                read.or_exit(Exit::Unreachable, "reading what ssh carries")?;
                return Ok(ExitCode::SUCCESS);
            }
            // The near end is gone.
            ("", _) => return Ok(ExitCode::SUCCESS),
            _ => {
                let what = format!("{line:?} is not a way that this version knows");
                return Err(Failure::new(Exit::Mismatch, what));
            }
        }
    }
}

/// What near ends may reach.
struct Service {
    /// `None`: everything.
    allowed: Option<Vec<HostPort>>,
    /// Those that may have destinations of their own.
    peers: SharedPeers,
    audit: Arc<Audit>,
    options: StreamOptions,
}

impl Service {
    /// Serves a near end until its connection is over.
    fn serve_apart(self: &Arc<Self>, connection: Connection) {
        let (service, served) = (Arc::clone(self), connection.clone());
        let serve = move || {
            loop {
                match connection.accept_stream(Some(NAME), &service.options, STREAM) {
                    Ok(Some((_, stream))) => service.answer_apart(&connection, stream),
                    Ok(None) => {}
                    // The connection is over, or one stream of a peer was refused, which knows it.
                    Err(_) if matches!(connection.wait_ended(interrupt::LOOK), Ok(None)) => {}
                    Err(_) => return,
                }
            }
        };
        if thread::Builder::new().spawn(serve).is_err() {
            served.close();
        }
    }

    fn answer_apart(self: &Arc<Self>, connection: &Connection, stream: Stream) {
        let (service, connection) = (Arc::clone(self), connection.clone());
        // Without a thread, the stream is reset.
        let _ = thread::Builder::new().spawn(move || service.answer(&connection, stream));
    }

    /// Connects to where a stream leads, and carries its bytes.
    fn answer(&self, connection: &Connection, stream: Stream) {
        let control = stream.control();
        let (mut reader, mut writer) = stream.split();
        reader.set_timeout(Some(OPENING));
        writer.set_timeout(Some(OPENING));
        let opened = read_request(&mut reader).and_then(|to| {
            let opened = self.connect(connection.peer().proof(), &to);
            self.note(connection, &to, opened.as_ref().err());
            opened
        });
        let tcp = match opened {
            Ok(tcp) => tcp,
            Err(why) => {
                // Both halves end when they are dropped, behind this.
                let _ = writer.write_all(&refusal(&why));
                return;
            }
        };
        reader.set_timeout(Some(Duration::ZERO));
        if prepare(&tcp).is_ok() && writer.write_all(&[CONNECTED]).is_ok() {
            // The near end learns from the stream how it has ended.
            let _ = carry(connection, &tcp, &control, &mut AtOnce(reader), &mut writer);
        }
    }

    /// Writes a line of the audit log.
    fn note(&self, connection: &Connection, to: &HostPort, refused: Option<&String>) {
        self.audit.note(json!({
            "event": "forward",
            "peer": connection.peer().name(),
            "address": address_of(connection),
            "to": to.to_string(),
            "message": refused,
        }));
    }

    /// # Errors
    /// The reason, if this end has no room for a connection beside `others`.
    fn check_room(&self, others: &[Connection], new: &Connection) -> Result<(), String> {
        if others.len() >= MOST_CONNECTIONS {
            return Err("this end has too many connections".into());
        }
        let proof = new.peer().proof();
        let most = self.peers.of(proof).and_then(|peer| peer.limit_in_file());
        let of_peer = others.iter().filter(|other| other.peer().proof() == proof);
        match most.filter(|most| of_peer.count() >= *most) {
            Some(most) => Err(format!(
                "this end serves {} of one peer at once (max-senders); try again later",
                Count(most as u64, "connection")
            )),
            None => Ok(()),
        }
    }

    /// # Errors
    /// Why the near end may not name this destination.
    fn check(&self, proof: Proof, to: &HostPort) -> Result<(), String> {
        let of_all = self.allowed.as_ref();
        let is_for_all = of_all.is_none_or(|allowed| allowed.contains(to));
        let is_allowed = match (self.peers.of(proof), proof) {
            (Some(peer), _) => peer.allows_forward(to).unwrap_or(is_for_all),
            // It was removed just now.
            (None, Proof::Identity(_)) => false,
            (None, Proof::PreShared | Proof::Code) => is_for_all,
        };
        if is_allowed {
            return Ok(());
        }
        let how = match proof {
            Proof::Identity(_) => {
                "add it to allow-forward of this end in its file of peers".to_owned()
            }
            Proof::PreShared | Proof::Code => format!("start it with --allow-forward {to}"),
        };
        Err(format!("it does not forward to {to}: {how}"))
    }

    fn connect(&self, proof: Proof, to: &HostPort) -> Result<TcpStream, String> {
        self.check(proof, to)?;
        let mut why = String::new();
        for addr in to.resolve().map_err(|error| error.to_string())? {
            match TcpStream::connect_timeout(&addr, CONNECTING) {
                Ok(tcp) => return Ok(tcp),
                Err(error) => why = format!("connecting to {addr}: {error}"),
            }
        }
        Err(why)
    }
}
