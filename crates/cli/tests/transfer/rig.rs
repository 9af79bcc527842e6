//! The directories, keys and processes of a transfer.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_keys::{Identity, Psk, PublicKey};
use serde_json::Value;

/// The maximum time for each end.
const PATIENCE: Duration = Duration::from_secs(120);
/// Where receivers listen: at an address of their own, because the sockets of senders have ports of 127.0.0.1.
pub(crate) const V4: &str = "127.0.9.1:0";
pub(crate) const V6: &str = "[::1]:0";

/// The directories and the key of one test.
pub(crate) struct Rig {
    root: tempfile::TempDir,
    pub(crate) psk: Psk,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let rig = Self {
            root: tempfile::tempdir().expect("directory"),
            psk: Psk::generate().expect("key"),
        };
        rig.psk.save(&rig.key()).expect("key file");
        fs::create_dir(rig.inbox()).expect("directory");
        rig
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Returns the directory that the receiver writes to.
    pub(crate) fn inbox(&self) -> PathBuf {
        self.path("in")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.path("key")
    }

    /// Makes an identity in a file of this name.
    pub(crate) fn identity(&self, name: &str) -> PublicKey {
        let identity = Identity::generate().expect("randomness");
        identity.save(&self.path(name)).expect("saved");
        identity.public()
    }

    /// Writes the file of peers.
    pub(crate) fn peers(&self, text: &str) -> PathBuf {
        let file = self.path("peers.toml");
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("chmod");
        file
    }

    /// Makes a file whose bytes depend on their position.
    pub(crate) fn file(&self, name: &str, bytes: usize) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, pattern(bytes)).expect("write");
        path
    }

    /// Starts a receiver with the key of the rig, and waits until it listens.
    pub(crate) fn recv(&self, listen: &str, args: &[&str]) -> Receiver {
        let inbox = self.inbox();
        let inbox = inbox.to_str().expect("plain").to_owned();
        self.recv_into(listen, &inbox, args)
    }

    pub(crate) fn recv_into(&self, listen: &str, dir: &str, args: &[&str]) -> Receiver {
        let command = self.recv_command(listen, Path::new(dir), args);
        Receiver::start(Running::spawn(command))
    }

    /// Returns the command of a receiver with the key of the rig.
    pub(crate) fn recv_command(&self, listen: &str, dir: &Path, args: &[&str]) -> Command {
        let mut command = farwrite();
        command.args(["recv", "--listen", listen, "--dir"]).arg(dir);
        command.arg("--psk-file").arg(self.key()).args(args);
        command
    }

    /// Starts a sender with the key of the rig.
    pub(crate) fn send(&self, to: SocketAddr, args: &[&str], paths: &[&Path]) -> Running {
        Running::spawn(self.send_command(to, args, paths))
    }

    /// Returns the command of a sender with the key of the rig.
    pub(crate) fn send_command(&self, to: SocketAddr, args: &[&str], paths: &[&Path]) -> Command {
        let mut command = farwrite();
        command.args(["send", "--to", &to.to_string()]);
        command.env("XDG_CACHE_HOME", self.path("cache"));
        command.arg("--psk-file").arg(self.key());
        command.args(args).args(paths);
        command
    }

    /// Returns the files in the inbox.
    pub(crate) fn received(&self) -> Vec<String> {
        list(&self.inbox())
    }
}

/// Returns the program, without arguments, and without a key or a cache in its environment.
pub(crate) fn farwrite() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farwrite"));
    for name in ["FARWRITE_PSK", "XDG_CACHE_HOME", "HOME"] {
        command.env_remove(name);
    }
    command
}

/// Returns bytes that depend on their position.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    let byte = |i: usize| (i % 251).to_le_bytes()[0] ^ (i >> 12).to_le_bytes()[0];
    (0..bytes).map(byte).collect()
}

/// Returns the names in a directory, including hidden ones.
pub(crate) fn list(directory: &Path) -> Vec<String> {
    let items = fs::read_dir(directory).expect("directory");
    let mut names: Vec<_> = items
        .map(|item| {
            item.expect("item")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

/// Paths below a directory, with kind, permissions, time and content.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, i64, Option<Vec<u8>>)> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for item in fs::read_dir(&directory).expect("directory") {
            let path = item.expect("item").path();
            let metadata = fs::symlink_metadata(&path).expect("metadata");
            let content = metadata.is_file().then(|| fs::read(&path).expect("read"));
            let below = path.strip_prefix(root).expect("below").to_path_buf();
            found.insert(below, (metadata.mode(), metadata.mtime(), content));
            if metadata.is_dir() {
                pending.push(path);
            }
        }
    }
    found
}

/// The result of an end.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Returns the JSON object on standard output. With `--json-lines`, lines of events may come before it.
    pub(crate) fn json(&self) -> Value {
        let mut lines = self.stdout.lines();
        let object = lines
            .next_back()
            .filter(|_| lines.all(|line| line.contains(r#""event":"#)));
        let object = serde_json::from_str(object.unwrap_or_default());
        object.unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the `result` field of this object.
    pub(crate) fn result(&self) -> Value {
        self.json()["result"].take()
    }

    #[track_caller]
    pub(crate) fn assert(&self, code: i32, told: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stderr.contains(told), "{told:?} is not in {self:?}");
    }
}

/// A running end. It is killed if the test fails before it ends.
pub(crate) struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: Option<thread::JoinHandle<String>>,
}

impl Running {
    pub(crate) fn start(args: &[&str], envs: &[(&str, &str)]) -> Self {
        let mut command = farwrite();
        command.args(args).envs(envs.iter().copied());
        Self::spawn(command)
    }

    pub(crate) fn spawn(command: Command) -> Self {
        Self::spawn_with_stderr(command, Stdio::piped())
    }

    /// Starts an end with this standard error instead of a pipe. It does not appear in [`Ended`].
    pub(crate) fn spawn_with_stderr(mut command: Command, stderr: impl Into<Stdio>) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let stderr = child.stderr.take().map(|mut stderr| {
            thread::spawn(move || {
                let mut text = Vec::new();
                let _ = stderr.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        Self {
            child,
            stdout,
            stderr,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the end is still running.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("status").is_none()
    }

    /// Returns the next line of standard output that contains a text.
    pub(crate) fn line(&mut self, containing: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.stdout.read_line(&mut line).expect("text");
            assert_ne!(read, 0, "no line with {containing:?}");
            if line.contains(containing) {
                return line;
            }
        }
    }

    /// Waits until the end catches Ctrl-C and SIGTERM. Before, they end it at once.
    pub(crate) fn wait_until_it_catches_signals(&self) {
        const BOTH: u64 = 1 << (2 - 1) | 1 << (15 - 1);
        let start = Instant::now();
        loop {
            // proc(5)
            let status = fs::read_to_string(format!("/proc/{}/status", self.id()));
            let status = status.expect("it runs");
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = u64::from_str_radix(caught.expect("Linux").trim(), 16);
            if caught.expect("a number") & BOTH == BOTH {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "it catches no signals");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal, as `kill` names it.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("kill").success());
    }

    /// Waits until the end has finished.
    pub(crate) fn end(mut self) -> Ended {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("status") {
                break status;
            }
            if start.elapsed() > PATIENCE {
                self.child.kill().expect("kill");
                let stderr = self.stderr.take().map(|thread| thread.join());
                panic!("it did not end within {PATIENCE:?}: {stderr:?}");
            }
            thread::sleep(Duration::from_millis(5));
        };
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).expect("text");
        let stderr = self
            .stderr
            .take()
            .map(|thread| thread.join().expect("no panic"));
        Ended {
            code: status.code(),
            stdout,
            stderr: stderr.unwrap_or_default(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // This fails if the process has ended, which is the normal case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A receiver that listens.
pub(crate) struct Receiver {
    pub(crate) running: Running,
    pub(crate) addr: SocketAddr,
}

impl Receiver {
    /// Waits until the receiver listens. With `--json`, the text for people is not on standard
    /// output: such a receiver gets its port as an argument.
    pub(crate) fn start(mut running: Running) -> Self {
        let line = running.line("listening on");
        let addr = line.split_whitespace().nth(2).expect("address");
        Self {
            running,
            addr: addr.parse().expect("address"),
        }
    }

    pub(crate) fn end(self) -> Ended {
        self.running.end()
    }
}

/// Returns a free port on a loopback address of its own. Tests that run at the same time use the
/// ports of 127.0.0.1, so they cannot take this one before the test uses it.
pub(crate) fn free_port() -> SocketAddr {
    static HOSTS: AtomicU8 = AtomicU8::new(1);
    let host = [127, 0, 6, HOSTS.fetch_add(1, Ordering::Relaxed)];
    let socket = std::net::UdpSocket::bind(SocketAddr::from((host, 0))).expect("loopback");
    socket.local_addr().expect("address")
}
