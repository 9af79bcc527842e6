//! Why a call failed: a code for the caller, and a text for people.

use std::cell::{Cell, RefCell};
use std::env;
use std::ffi::{CString, c_char, c_int};
use std::io::{self, Write};

use crate::sdr::sdr_errcode;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library has no free resources at the moment, or what the program asks for has not arrived yet.
    Retry(String),
    /// Everything else.
    Error(String),
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }
}

impl From<farwrite::Error> for Failure {
    fn from(error: farwrite::Error) -> Self {
        match error {
            farwrite::Error::Retry { .. } => Self::Retry(error.to_string()),
            // The names that C programs know.
            farwrite::Error::SwitchedOff { switch, .. } => {
                let attribute = match switch {
                    "sends" => "send_enable",
                    _ => "recv_enable",
                };
                Self::Error(format!("the queue pair was created with {attribute} = 0"))
            }
            _ => Self::Error(error.to_string()),
        }
    }
}

thread_local! {
    /// Text of the last failure of this thread.
    static LAST: RefCell<CString> = RefCell::default();
    /// Its code.
    static LAST_CODE: Cell<u32> = const { Cell::new(sdr_errcode::SDR_SUCCESS as u32) };
}

impl Failure {
    fn code(&self) -> sdr_errcode {
        match self {
            Self::Retry(_) => sdr_errcode::SDR_RETRY,
            Self::Error(_) => sdr_errcode::SDR_ERROR,
        }
    }
}

/// Keeps the code and the text of a failure, and prints errors if the user asked for it.
pub(crate) fn note(failure: &Failure) {
    let code = failure.code();
    // A thread that ends has neither any more.
    let _ = LAST_CODE.try_with(|last| last.set(code as u32));
    // Programs call again and again until it is there: no text for each call.
    if let Failure::Retry(text) = failure
        && text.is_empty()
    {
        return;
    }
    let (Failure::Retry(text) | Failure::Error(text)) = failure;
    if matches!(failure, Failure::Error(_)) && env::var_os("FARWRITE_VERBOSE").is_some() {
        tell_user(text);
    }
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// Prints a line on the standard error output, if it can be written: a panic would end the program.
pub(crate) fn tell_user(text: &str) {
    let _ = writeln!(io::stderr(), "farwrite: {text}");
}

/// The text of the last failure of this thread. It is valid until the thread's next call that fails.
pub(crate) fn last_text() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// The code of the last failure of this thread.
pub(crate) fn last_code() -> u32 {
    LAST_CODE
        .try_with(Cell::get)
        .unwrap_or(sdr_errcode::SDR_ERROR as u32)
}

/// The code of `enum sdr_errcode`.
pub(crate) fn code(result: Result<(), Failure>) -> c_int {
    let Err(failure) = result else {
        return sdr_errcode::SDR_SUCCESS as c_int;
    };
    note(&failure);
    failure.code() as c_int
}
