//! One end of a QUIC connection: sends for some seconds, sends a file, or takes bytes in and measures how fast. Or sends
//! messages and measures their times, or answers each message. Or exchanges small requests and records on one stream.

mod small;

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand, ValueEnum};
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, ServerConfig, TransportConfig, VarInt};

type Failure = Box<dyn Error + Send + Sync>;

/// Bytes in flight, at most: twice what 10 Gbit/s carry in 40 ms.
const WINDOW: u32 = 100_000_000;

#[derive(Parser)]
struct Args {
    /// File through which the sender gets the receiver's certificate.
    #[arg(long)]
    certificate: PathBuf,
    /// The congestion control of the sender.
    #[arg(long, default_value = "cubic")]
    cc: Congestion,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Takes one stream in; prints its bytes, and the seconds from the first to the last.
    Take { at: SocketAddr },
    /// Sends on one stream for some seconds, and then ends it at once.
    Send { to: SocketAddr, seconds: f64 },
    /// Sends the bytes of a file on one stream, and waits until the receiver has all of them.
    SendFile { to: SocketAddr, file: PathBuf },
    /// Answers each stream with one byte when all of it has arrived, until a connection of the sender ends in order.
    Answer { at: SocketAddr },
    /// Sends messages, each on a stream of its own; prints the seconds from each to its answer.
    Ask(Ask),
    /// Small requests and records on one stream.
    Small(small::Small),
}

#[derive(Parser)]
struct Ask {
    to: SocketAddr,
    /// Length of a message in bytes.
    #[arg(long)]
    bytes: usize,
    /// Number of messages, sent one after the other.
    #[arg(long)]
    messages: usize,
    /// Seconds between an answer and the next message.
    #[arg(long, default_value_t = 0.0)]
    pause: f64,
    /// Connect again for each message. The time of the handshake counts.
    #[arg(long)]
    cold: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Congestion {
    Bbr,
    Cubic,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args = Args::parse();
    match args.role {
        Role::Take { at } => take(&args, at).await,
        Role::Send { to, seconds } => send(&args, to, Duration::from_secs_f64(seconds)).await,
        Role::SendFile { to, ref file } => send_file(&args, to, file).await,
        Role::Answer { at } => answer(&args, at).await,
        Role::Ask(ref ask) => send_messages(&args, ask).await,
        Role::Small(ref small) => small::run(&args, small).await,
    }
}

fn transport(cc: Congestion) -> Arc<TransportConfig> {
    let factory: Arc<dyn ControllerFactory + Send + Sync> = match cc {
        Congestion::Bbr => Arc::new(BbrConfig::default()),
        Congestion::Cubic => Arc::new(CubicConfig::default()),
    };
    let mut transport = TransportConfig::default();
    transport
        .congestion_controller_factory(factory)
        .send_window(WINDOW.into())
        .receive_window(VarInt::from_u32(WINDOW))
        .stream_receive_window(VarInt::from_u32(WINDOW));
    Arc::new(transport)
}

/// Makes an endpoint that accepts connections, and says so.
fn listen(args: &Args, at: SocketAddr) -> Result<Endpoint, Failure> {
    let own = rcgen::generate_simple_self_signed(["far".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let certificate = own.cert.der().clone();
    std::fs::write(&args.certificate, &certificate)?;
    let mut config = ServerConfig::with_single_cert(vec![certificate], key.into())?;
    config.transport_config(transport(args.cc));
    let endpoint = Endpoint::server(config, at)?;
    println!("ready");
    Ok(endpoint)
}

async fn take(args: &Args, at: SocketAddr) -> Result<(), Failure> {
    let endpoint = listen(args, at)?;
    let connection = endpoint.accept().await.ok_or("no connection")?.await?;
    let mut stream = connection.accept_uni().await?;
    let (mut bytes, mut first, mut last) = (0, None, Instant::now());
    // The stream of `send` ends by a reset, that of `send-file` by itself.
    while let Ok(Some(chunk)) = stream.read_chunk(1 << 20, true).await {
        last = Instant::now();
        first.get_or_insert(last);
        bytes += chunk.bytes.len();
    }
    let seconds = last.duration_since(first.unwrap_or(last)).as_secs_f64();
    println!("{{\"bytes\": {bytes}, \"seconds\": {seconds}}}");
    connection.close(VarInt::from_u32(0), b"");
    endpoint.wait_idle().await;
    Ok(())
}

async fn connect(args: &Args, to: SocketAddr) -> Result<Connection, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(std::fs::read(&args.certificate)?))?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    config.transport_config(transport(args.cc));
    let mut endpoint = Endpoint::client(SocketAddr::from(([0, 0, 0, 0], 0)))?;
    endpoint.set_default_client_config(config);
    Ok(endpoint.connect(to, "far")?.await?)
}

async fn send_file(args: &Args, to: SocketAddr, file: &Path) -> Result<(), Failure> {
    let mut file = tokio::fs::File::open(file).await?;
    let connection = connect(args, to).await?;
    let mut stream = connection.open_uni().await?;
    tokio::io::copy_buf(&mut tokio::io::BufReader::with_capacity(1 << 20, &mut file), &mut stream).await?;
    stream.finish()?;
    // The receiver closes the connection after the last byte. Any other end is an error.
    match connection.closed().await {
        ConnectionError::ApplicationClosed(_) => Ok(()),
        other => Err(other.into()),
    }
}

async fn send(args: &Args, to: SocketAddr, time: Duration) -> Result<(), Failure> {
    let connection = connect(args, to).await?;
    let mut stream = connection.open_uni().await?;
    let piece = vec![0; 1 << 20];
    let sending = async {
        loop {
            if let Err(error) = stream.write_all(&piece).await {
                return Err(Failure::from(error));
            }
        }
    };
    match tokio::time::timeout(time, sending).await {
        Ok(failed) => return failed,
        Err(_over) => stream.reset(VarInt::from_u32(0))?,
    }
    connection.closed().await;
    Ok(())
}

async fn answer(args: &Args, at: SocketAddr) -> Result<(), Failure> {
    let endpoint = listen(args, at)?;
    while let Some(incoming) = endpoint.accept().await {
        let connection = incoming.await?;
        while let Ok((mut reply, mut message)) = connection.accept_bi().await {
            while message.read_chunk(1 << 20, true).await?.is_some() {}
            reply.write_all(b".").await?;
            reply.finish()?;
        }
    }
    Ok(())
}

async fn send_messages(args: &Args, ask: &Ask) -> Result<(), Failure> {
    let message = vec![1; ask.bytes];
    let mut seconds = Vec::new();
    let mut kept = None;
    for number in 0..ask.messages {
        if number > 0 {
            tokio::time::sleep(Duration::from_secs_f64(ask.pause)).await;
        }
        let start = Instant::now();
        let connection = match kept.take() {
            Some(connection) => connection,
            None => connect(args, ask.to).await?,
        };
        let (mut stream, mut reply) = connection.open_bi().await?;
        stream.write_all(&message).await?;
        stream.finish()?;
        reply.read_to_end(1).await?;
        seconds.push(start.elapsed().as_secs_f64());
        match ask.cold {
            true => connection.close(VarInt::from_u32(0), b""),
            false => kept = Some(connection),
        }
    }
    println!("{{\"seconds\": {seconds:?}}}");
    Ok(())
}
