//! Logs through the function that NCCL has given.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int};
use std::sync::{Mutex, PoisonError};

use crate::abi::{LOG_INFO, LOG_WARN, Logger, SUBSYSTEMS};

static LOGGER: Mutex<Option<Logger>> = Mutex::new(None);

/// Logs with `logger` from now on.
pub(crate) fn set(logger: Option<Logger>) {
    *LOGGER.lock().unwrap_or_else(PoisonError::into_inner) = logger;
}

/// What a user must know.
pub(crate) fn warn(text: &str) {
    log(LOG_WARN, text);
}

/// What a user may want to know.
pub(crate) fn info(text: &str) {
    log(LOG_INFO, text);
}

fn log(level: c_int, text: &str) {
    const FILE: &CStr = c"farwrite";
    const FORMAT: &CStr = c"%s";
    let logger = *LOGGER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(logger) = logger else {
        return;
    };
    let line = format!("NET/Farwrite : {}", text.replace('\0', " "));
    let line = CString::new(line).unwrap_or_default();
    // SAFETY: NCCL's logger has this type. The format takes one text, and all texts outlive the call.
    unsafe {
        logger(
            level,
            SUBSYSTEMS,
            FILE.as_ptr(),
            0,
            FORMAT.as_ptr(),
            line.as_ptr(),
        );
    }
}
