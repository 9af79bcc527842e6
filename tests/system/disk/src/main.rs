//! A file system with faults that the system tests switch on and off.
//!
//! It shows a directory at a mount point. It executes the commands that it reads from its standard
//! input (see [`faults::Faults::command`]), and answers each with one line. At the end of its input
//! it unmounts and exits. Operations that still wait then fail.

mod disk;
mod faults;
mod inodes;
mod requests;

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use fuser::{Config, MountOption, spawn_mount};
use rustix::fs::Mode;
use rustix::mount::{UnmountFlags, unmount};

use disk::{Disk, Traits};
use faults::Faults;

/// Number of threads that handle operations. Each waiting operation blocks one of them.
const THREADS: usize = 16;

/// Shows a directory as a disk with faults.
#[derive(Parser)]
struct Args {
    /// Directory that holds the files.
    directory: PathBuf,
    /// Empty directory to show them in.
    mount_point: PathBuf,
    #[command(flatten)]
    traits: Traits,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    // The kernel has applied the umask of the caller.
    rustix::process::umask(Mode::empty());
    let faults = Arc::new(Faults::default());
    let disk = Disk::new(&args.directory, args.traits, faults.clone())?;
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    config.mount_options = vec![MountOption::FSName("farwrite-disk".into())];
    let _mounted = spawn_mount(disk, &args.mount_point, &config)?;
    println!("ready");
    for line in io::stdin().lock().lines() {
        let answer = faults.command(&line?);
        let answer = answer.unwrap_or_else(|error| format!("error: {error}"));
        writeln!(io::stdout(), "{answer}")?;
    }
    unmount(&args.mount_point, UnmountFlags::DETACH)?;
    // Does not wait for operations that a fault holds up.
    std::process::exit(0);
}
