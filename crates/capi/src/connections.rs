//! Connections with keys, for `farwrite.h`.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use farwrite::{PeerStats, QpOptions, QpStats};
pub(crate) use farwrite_connection::Keys;
use farwrite_connection::{Connection, ConnectionOptions, Listener, OpenedQueuePair, connect};
use farwrite_keys::{Identity, KnownPeers, Psk};

use crate::descriptors::Descriptor;
use crate::failure::Failure;

/// What `farwrite_listener` names.
pub(crate) struct Listening(pub(crate) Listener, Descriptor);

/// What `farwrite_connection` names.
pub(crate) struct Connected(pub(crate) Connection, Descriptor);

/// What `farwrite_qp` names.
pub(crate) struct Opened(pub(crate) OpenedQueuePair);

/// The waits of C programs: milliseconds, or `UINT32_MAX` for no limit.
pub(crate) fn limit(timeout_ms: u32) -> Duration {
    match timeout_ms {
        // A century.
        u32::MAX => Duration::from_secs(3_200_000_000),
        ms => Duration::from_millis(ms.into()),
    }
}

/// What to say when nothing came within a limit.
pub(crate) fn late() -> Failure {
    Failure::Retry("nothing came within timeout_ms".into())
}

impl From<farwrite_connection::Error> for Failure {
    fn from(error: farwrite_connection::Error) -> Self {
        match error {
            farwrite_connection::Error::Timeout { .. } => Self::Retry(error.to_string()),
            _ => Self::Error(error.to_string()),
        }
    }
}

/// Keys from files: an identity with the peers that it knows, a pre-shared key, or both.
pub(crate) fn keys(
    identity: Option<String>,
    known_peers: Option<String>,
    psk: Option<String>,
) -> Result<Keys, Failure> {
    let error = |file: &str, why: &dyn std::fmt::Display| Failure::new(format!("{file}: {why}"));
    let mut keys = match (identity, known_peers) {
        (Some(identity), Some(peers)) => {
            let own = Identity::load(Path::new(&identity)).map_err(|why| error(&identity, &why))?;
            let known = KnownPeers::load(Path::new(&peers)).map_err(|why| error(&peers, &why))?;
            Keys::of_identity(own, known)
        }
        (None, None) => Keys::default(),
        _ => {
            return Err(Failure::new(
                "identity_file and known_peers_file belong together: give both or neither",
            ));
        }
    };
    if let Some(file) = psk {
        let psk = Psk::load(Path::new(&file)).map_err(|why| error(&file, &why))?;
        keys = keys.with_psk(&psk);
    }
    Ok(keys)
}

fn options(omit_icrc: bool) -> ConnectionOptions {
    ConnectionOptions {
        omit_icrc,
        ..ConnectionOptions::default()
    }
}

impl Listening {
    pub(crate) fn new(addr: &str, keys: &Keys, omit_icrc: bool) -> Result<Self, Failure> {
        let parsed: SocketAddr = addr.parse().map_err(|_| {
            Failure::new(format!(
                "addr = {addr:?}: write ADDRESS:PORT, such as [::]:4792"
            ))
        })?;
        let listener = Listener::bind(parsed, keys, &options(omit_icrc))?;
        Ok(Self(listener, Descriptor::default()))
    }

    pub(crate) fn accept(&self, timeout_ms: u32) -> Result<Connected, Failure> {
        let accepted = self.0.accept(limit(timeout_ms))?;
        accepted.map(Connected::of).ok_or_else(late)
    }

    /// A descriptor that is readable while a call of `accept` would not wait.
    pub(crate) fn descriptor(&self) -> Result<c_int, Failure> {
        self.1.number(|| self.0.accept_descriptor())
    }
}

impl Connected {
    fn of(connection: Connection) -> Self {
        Self(connection, Descriptor::default())
    }

    pub(crate) fn new(
        addr: &str,
        keys: &Keys,
        omit_icrc: bool,
        peer: &str,
    ) -> Result<Self, Failure> {
        Ok(Self::of(connect(addr, keys, peer, &options(omit_icrc))?))
    }

    /// A descriptor that is readable while the peer's next queue pair or stream can be accepted.
    pub(crate) fn descriptor(&self) -> Result<c_int, Failure> {
        self.1.number(|| self.0.accept_descriptor())
    }

    pub(crate) fn statistics(&self) -> Result<PeerStats, Failure> {
        Ok(self.0.peer_stats()?)
    }

    /// Packets are as large as the path carries.
    fn options(&self) -> QpOptions {
        let mut options = QpOptions::default();
        options.sdr.mtu = self.0.mtu();
        options
    }

    pub(crate) fn open_qp(&self, name: &str, timeout_ms: u32) -> Result<Opened, Failure> {
        let opened = self
            .0
            .open_queue_pair(name, self.options(), limit(timeout_ms))?;
        Ok(Opened(opened))
    }

    pub(crate) fn accept_qp(&self, name: Option<&str>, timeout_ms: u32) -> Result<Opened, Failure> {
        let accepted = self
            .0
            .accept_queue_pair(name, &self.options(), limit(timeout_ms))?;
        accepted.map(Opened).ok_or_else(late)
    }
}

impl Opened {
    pub(crate) fn statistics(&self) -> Result<QpStats, Failure> {
        self.0
            .call(|endpoint, qp| endpoint.qp_stats(qp))?
            .map_err(|error| gone(self.0.connection(), error))
    }
}

/// Why a call on a queue pair has failed. That it is gone has a better reason.
pub(crate) fn gone(connection: &Connection, error: farwrite::Error) -> Failure {
    match (error, connection.ended()) {
        (farwrite::Error::NoSuchQueuePair(_), Some(ended)) => {
            farwrite_connection::Error::Over(ended).into()
        }
        (farwrite::Error::NoSuchQueuePair(_), None) => {
            Failure::new("the queue pair was closed by another thread during the call")
        }
        (error, _) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const LIMIT_MS: u32 = 20_000;

    #[test]
    fn queue_pairs_say_that_the_icrc_is_omitted() {
        let keys = Keys::default().with_psk(&Psk::generate().expect("randomness"));
        for omit_icrc in [false, true] {
            let listening = Listening::new("127.0.0.1:0", &keys, omit_icrc).expect("a port");
            let to = listening.0.local_addr().to_string();
            let near = Connected::new(&to, &keys, omit_icrc, "").expect("connected");
            let far = listening.accept(LIMIT_MS).expect("accepted");
            let ends = thread::scope(|scope| {
                let opening = scope.spawn(|| near.open_qp("x", LIMIT_MS).expect("opened"));
                let accepted = far.accept_qp(Some("x"), LIMIT_MS).expect("accepted");
                [opening.join().expect("no panic"), accepted]
            });
            for end in ends {
                let info = end.0.call(|endpoint, qp| endpoint.qp_info(qp));
                let info = info.expect("the thread runs").expect("it exists");
                assert_eq!(info.omits_icrc, omit_icrc);
            }
        }
    }
}
