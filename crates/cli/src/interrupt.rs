//! Ctrl-C, and a terminal that goes away, as a flag to look at.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::{Exit, Failure, OrExit};

/// Whether the user wants the program to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Turns the first Ctrl-C into a flag; the second ends the program at once.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        let register = || -> io::Result<()> {
            for signal in [SIGHUP, SIGINT, SIGTERM] {
                // The order matters: at the first signal the flag is not yet set here.
                let status = i32::from(Exit::Interrupted as u8);
                flag::register_conditional_shutdown(signal, status, Arc::clone(&flag))?;
                flag::register(signal, Arc::clone(&flag))?;
            }
            Ok(())
        };
        register().or_exit(Exit::Other, "asking to be told of Ctrl-C")?;
        Ok(Self(flag))
    }

    /// Fails once the user wants to end.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) {
            Err(Failure::new(Exit::Interrupted, "interrupted"))
        } else {
            Ok(())
        }
    }
}
