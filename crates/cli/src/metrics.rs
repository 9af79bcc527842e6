//! Serves counters as Prometheus text over HTTP.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use farwrite::metrics::{CONTENT_TYPE, Metric, text};
use tiny_http::{Header, Response, Server};

use crate::exit::{Exit, Failure};

/// The latest counters, which HTTP clients receive.
pub(crate) struct Metrics {
    newest: Arc<Mutex<Vec<Metric>>>,
}

impl Metrics {
    /// Serves metrics named `farwrite_NAME_...` at every path. The thread ends with the program.
    pub(crate) fn serve(address: SocketAddr, name: &str) -> Result<Self, Failure> {
        let server = Server::http(address).map_err(|error| {
            Failure::new(
                Exit::Usage,
                format_args!("serving metrics at {address}: {error}; choose another --metrics"),
            )
        })?;
        let newest: Arc<Mutex<Vec<Metric>>> = Arc::default();
        let served = Arc::clone(&newest);
        let prefix = format!("farwrite_{name}");
        thread::spawn(move || {
            for request in server.incoming_requests() {
                let newest = served.lock().unwrap_or_else(PoisonError::into_inner);
                let page = text(&prefix, &newest);
                drop(newest);
                let response = Response::from_string(page);
                let header = Header::from_bytes("Content-Type", CONTENT_TYPE);
                let response = match header {
                    Ok(header) => response.with_header(header),
                    Err(()) => response,
                };
                // An error is ignored: a client that disconnected can ask again.
                let _ = request.respond(response);
            }
        });
        Ok(Self { newest })
    }

    /// Stores the latest counters.
    pub(crate) fn set(&self, counters: &[Metric]) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.clear();
        newest.extend_from_slice(counters);
    }
}
