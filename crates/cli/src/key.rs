//! Finds the pre-shared key.

use std::env;
use std::path::Path;

use farwrite_session::{Psk, PskError};

use crate::exit::{Exit, Failure};

/// The variable that holds the key in text form. Unlike an argument, it is not visible to other
/// users of the machine.
pub(crate) const VARIABLE: &str = "FARWRITE_PSK";

/// The key of a file, or otherwise of the environment, if there is one.
///
/// # Errors
/// The file or the text is not a key.
pub(crate) fn find(file: Option<&Path>) -> Result<Option<Psk>, Failure> {
    if let Some(file) = file {
        let key = Psk::load(file);
        return key
            .map(Some)
            .map_err(|error| of_key("reading the key", &error));
    }
    let Some(text) = env::var_os(VARIABLE).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let Some(text) = text.to_str() else {
        return Err(Failure::new(
            Exit::Usage,
            format!("{VARIABLE} is no text, want a key as `farwrite keygen` prints it"),
        ));
    };
    let key = text.parse::<Psk>();
    key.map(Some)
        .map_err(|error| of_key(&format!("reading {VARIABLE}"), &error))
}

/// The key of a file or of the environment, for a command that requires a key.
///
/// # Errors
/// As [`find`], and [`Exit::Usage`] if there is no key.
pub(crate) fn needed(file: Option<&Path>) -> Result<Psk, Failure> {
    find(file)?.ok_or_else(|| {
        let what = format!(
            "no key: give --psk-file, or set {VARIABLE} as `farwrite recv` prints it; `farwrite \
             keygen` makes one"
        );
        Failure::new(Exit::Usage, what)
    })
}

/// Generates a new key.
///
/// # Errors
/// The operating system provides no randomness.
pub(crate) fn make() -> Result<Psk, Failure> {
    Psk::generate().map_err(|error| of_key("making a key", &error))
}

fn of_key(what: &str, error: &PskError) -> Failure {
    let exit = match error {
        PskError::Read { .. }
        | PskError::Write { .. }
        | PskError::Exists(_)
        | PskError::Exposed { .. } => Exit::Files,
        PskError::Randomness(_) => Exit::Other,
        _ => Exit::Usage,
    };
    Failure::caused(exit, what, error)
}
