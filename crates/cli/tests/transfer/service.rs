//! A receiver as a service: peers with names, limits, an audit log, and a supervisor.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use farwrite_keys::Identity;
use serde_json::Value;

use crate::rig::{Rig, Running, farwrite, free_port, list};

/// A receiver with identities, and what belongs to it.
struct Service {
    rig: Rig,
    receiver: Running,
    addr: SocketAddr,
    /// What the supervisor hears.
    supervisor: UnixDatagram,
    public: String,
}

impl Service {
    /// Starts a receiver that knows these peers. `PUBLIC-NAME` stands for the key of a peer.
    fn start(peers: &str, names: &[&str]) -> Self {
        let rig = Rig::new();
        for name in names.iter().chain(&["host"]) {
            let identity = Identity::generate().expect("randomness");
            identity.save(&rig.path(name)).expect("saved");
        }
        fs::create_dir(rig.inbox().join("of-a")).expect("directory");
        let supervisor = UnixDatagram::bind(rig.path("notify")).expect("a socket");
        supervisor
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a time limit");
        write_peers(&rig, peers, names);
        let addr = free_port();
        let mut command = farwrite();
        command.args(["--json", "recv", "--listen", &addr.to_string(), "--dir"]);
        command
            .arg(rig.inbox())
            .arg("--identity")
            .arg(rig.path("host"));
        command.arg("--peers").arg(rig.path("peers.toml"));
        command.arg("--audit").arg(rig.path("audit.jsonl"));
        command.env("NOTIFY_SOCKET", rig.path("notify"));
        command.env("WATCHDOG_USEC", "400000");
        let receiver = Running::spawn(command);
        let host = Identity::load(&rig.path("host")).expect("own file");
        let service = Self {
            public: host.public().to_string(),
            rig,
            receiver,
            addr,
            supervisor,
        };
        assert_eq!(service.heard(), "READY=1");
        assert_eq!(service.heard(), "WATCHDOG=1");
        service
    }

    fn heard(&self) -> String {
        let mut bytes = [0; 256];
        let count = self.supervisor.recv(&mut bytes).expect("a datagram");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    /// Makes the receiver read its peers again. It looks for that as often as it is alive, so it has done it when it
    /// has said a few times that it is.
    fn hang_up(&self) {
        let nonblocking = |is| self.supervisor.set_nonblocking(is).expect("a socket");
        nonblocking(true);
        while self.supervisor.recv(&mut [0; 256]).is_ok() {}
        nonblocking(false);
        self.receiver.signal("HUP");
        for _ in 0..3 {
            assert_eq!(self.heard(), "WATCHDOG=1");
        }
    }

    fn send(&self, identity: &str, path: &Path) -> Running {
        let mut command = farwrite();
        command.args(["send", "--no-path-cache", "--to", &self.addr.to_string()]);
        command.arg("--identity").arg(self.rig.path(identity));
        command
            .args(["--timeout", "5s", "--peer-key", &self.public])
            .arg(path);
        Running::spawn(command)
    }
}

/// The audit log. A line of a transfer can come after the sender has ended.
fn audit(rig: &Rig) -> Vec<Value> {
    let text = fs::read_to_string(rig.path("audit.jsonl")).expect("a log");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect()
}

fn write_peers(rig: &Rig, text: &str, names: &[&str]) {
    let mut text = text.to_owned();
    for name in names {
        let identity = Identity::load(&rig.path(name)).expect("saved");
        let public = identity.public().to_string();
        text = text.replace(&format!("PUBLIC-{name}"), &public);
    }
    let file = rig.path("peers.toml");
    fs::write(&file, text).expect("written");
    fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("chmod");
}

#[test]
fn peers_have_directories_and_limits_of_their_own() {
    let a = "[a]\nkey = \"PUBLIC-a\"\ndir = \"of-a\"\numask = \"077\"\nquota = \"65kB\"\nmax-file = \"29kB\"\n";
    let service = Service::start(a, &["a", "b"]);
    let rig = &service.rig;
    let first = rig.file("first", 20_000);
    service.send("a", &first).end().assert(0, "");
    let arrived = rig.inbox().join("of-a/first");
    assert_eq!(
        fs::metadata(&arrived).expect("a file").mode() & 0o777,
        0o600
    );
    let large = rig.file("large", 29_001);
    let refused = service.send("a", &large).end();
    refused.assert(
        3,
        "a file has 29001 bytes, but the receiver takes files of at most 29000",
    );
    let second = rig.file("second", 29_000);
    service.send("a", &second).end().assert(0, "");
    let third = rig.file("third", 1_001);
    service
        .send("a", &third)
        .end()
        .assert(3, "the quota at the receiver leaves 3560");
    let stranger = service.send("b", &third).end();
    stranger.assert(3, "does not know this end's public key");
    // The pre-shared key of others does not help.
    rig.send(service.addr, &[], &[&third])
        .end()
        .assert(3, "does not accept a pre-shared key");
    assert_eq!(list(&rig.inbox().join("of-a")), ["first", "second"]);

    // After a hang-up, another peer may send, and this one may not.
    let b = "[b]\nkey = \"PUBLIC-b\"\ndir = \".\"\n";
    write_peers(rig, b, &["b"]);
    service.hang_up();
    service.send("b", &third).end().assert(0, "");
    service.send("a", &third).end().assert(3, "does not know");
    for wrong in ["[b]\nkey = 1\n", "\n"] {
        write_peers(rig, wrong, &[]);
        service.hang_up();
        service.send("b", &third).end().assert(0, "");
    }
    write_peers(rig, "# nobody\n", &[]);
    service.hang_up();
    service.send("b", &third).end().assert(3, "does not know");

    service.receiver.signal("TERM");
    while service.heard() != "STOPPING=1" {}
    let ended = service.receiver.end();
    ended.assert(130, "line 2: ");
    ended.assert(130, "the file is blank; the peers stay as they were");

    let audit = audit(&service.rig);
    let of = |event: &str| audit.iter().filter(|line| line["event"] == event).count();
    assert_eq!(of("transfer"), 7, "{audit:?}");
    assert!(of("refused") >= 1, "{audit:?}");
    // The line of a transfer may come after that of the next one.
    let first = |line: &&Value| line["outcome"] == "done" && line["bytes"] == 20_000;
    let done = audit.iter().find(first).expect("the first transfer");
    assert_eq!(done["peer"], "a");
    assert!(
        done["time"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z'))
    );
    let of_large = audit.iter().find(|line| line["outcome"] == "mismatch");
    assert!(
        of_large.is_some_and(|line| line["message"].is_string()),
        "{audit:?}"
    );
}

#[test]
fn a_wrong_file_of_peers_is_named() {
    let rig = Rig::new();
    Identity::generate()
        .expect("randomness")
        .save(&rig.path("host"))
        .expect("saved");
    write_peers(&rig, "[a]\nquota = \"much\"\n", &[]);
    let mut command = rig.recv_command("127.0.9.1:0", &rig.inbox(), &["--peers"]);
    command
        .arg(rig.path("peers.toml"))
        .arg("--identity")
        .arg(rig.path("host"));
    Running::spawn(command)
        .end()
        .assert(2, "peers.toml: line 2: \"much\"");
}
