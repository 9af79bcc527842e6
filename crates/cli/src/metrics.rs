//! Counters as Prometheus text, served over HTTP.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tiny_http::{Header, Response, Server};

use crate::exit::{Exit, Failure};

/// What `prometheus_client` writes.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter {
    /// As JSON and Prometheus name it.
    pub(crate) name: &'static str,
    /// What it counts.
    pub(crate) help: &'static str,
    pub(crate) value: u64,
    /// Whether it is a count that only grows. The others say what something is now, or the most of
    /// it.
    is_sum: bool,
}

impl Counter {
    /// The number of some events.
    pub(crate) fn new(name: &'static str, help: &'static str, value: u64) -> Self {
        Self {
            name,
            help,
            value,
            is_sum: true,
        }
    }

    /// The most of something, or what it is now.
    pub(crate) fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Self {
            is_sum: false,
            ..Self::new(name, help, value)
        }
    }

    /// The same counter over this and an earlier time.
    pub(crate) fn after(self, earlier: &Self) -> Self {
        let value = match self.is_sum {
            true => self.value + earlier.value,
            false => self.value,
        };
        Self { value, ..self }
    }

    /// A row of a table.
    pub(crate) fn row(&self) -> [String; 3] {
        let Self {
            name, help, value, ..
        } = self;
        [(*name).to_owned(), (*help).to_owned(), value.to_string()]
    }
}

/// The newest counters, as HTTP clients get them.
pub(crate) struct Metrics {
    newest: Arc<Mutex<Vec<Counter>>>,
}

#[derive(Debug)]
struct Newest(Arc<Mutex<Vec<Counter>>>);

impl Metrics {
    /// Serves metrics named `farwrite_NAME_...` at every path. The thread ends with the program.
    pub(crate) fn serve(address: SocketAddr, name: &str) -> Result<Self, Failure> {
        let server = Server::http(address).map_err(|error| {
            Failure::new(
                Exit::Usage,
                format_args!("serving metrics at {address}: {error}; choose another --metrics"),
            )
        })?;
        let newest = Arc::default();
        let mut registry = Registry::with_prefix(format!("farwrite_{name}"));
        registry.register_collector(Box::new(Newest(Arc::clone(&newest))));
        thread::spawn(move || {
            for request in server.incoming_requests() {
                let mut text = String::new();
                // Writing to a string does not fail.
                let _ = encode(&mut text, &registry);
                let response = Response::from_string(text);
                let header = Header::from_bytes("Content-Type", CONTENT_TYPE);
                let response = match header {
                    Ok(header) => response.with_header(header),
                    Err(()) => response,
                };
                // A client that went away asks again.
                let _ = request.respond(response);
            }
        });
        Ok(Self { newest })
    }

    /// Takes the newest counters.
    pub(crate) fn set(&self, counters: &[Counter]) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.clear();
        newest.extend_from_slice(counters);
    }
}

impl Collector for Newest {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for counter in newest.iter() {
            let Counter {
                name,
                help,
                value,
                is_sum,
            } = *counter;
            if !is_sum {
                let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
                metric.encode(encoder.encode_descriptor(
                    name,
                    help,
                    None,
                    metric.metric_type(),
                )?)?;
            } else {
                let metric = ConstCounter::new(value);
                metric.encode(encoder.encode_descriptor(
                    name,
                    help,
                    None,
                    metric.metric_type(),
                )?)?;
            }
        }
        Ok(())
    }
}
