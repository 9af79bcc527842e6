//! The authenticated, encrypted out-of-band channel of a session.
