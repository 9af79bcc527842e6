//! Serves counters as Prometheus text over HTTP.

use std::sync::{Arc, Mutex};

use farwrite::fabric::threads::lock;
use farwrite::metrics::{CONTENT_TYPE, Metric, text};
use farwrite_http::{Address, Limits, Page, PageServer};

use crate::exit::{Exit, Failure};

/// The latest counters, which HTTP clients receive.
pub(crate) struct Metrics {
    newest: Arc<Mutex<Vec<Metric>>>,
    _server: PageServer,
}

impl Metrics {
    /// Serves metrics named `farwrite_NAME_...` at every path, until it is dropped, if there is an address.
    pub(crate) fn serve(address: Option<&Address>, name: &str) -> Result<Option<Self>, Failure> {
        let Some(address) = address else {
            return Ok(None);
        };
        let newest: Arc<Mutex<Vec<Metric>>> = Arc::default();
        let served = Arc::clone(&newest);
        let prefix = format!("farwrite_{name}");
        let page = move || {
            let newest = lock(&served).clone();
            Page {
                content_type: CONTENT_TYPE,
                text: text(&prefix, &newest),
            }
        };
        let server = PageServer::start(address, "metrics", Limits::default(), page);
        let server = server.map_err(|error| {
            Failure::new(
                Exit::Usage,
                format_args!("serving metrics at {address}: {error}; choose another --metrics"),
            )
        })?;
        Ok(Some(Self {
            newest,
            _server: server,
        }))
    }

    /// Stores the latest counters.
    pub(crate) fn set(&self, counters: &[Metric]) {
        *lock(&self.newest) = counters.to_vec();
    }
}
