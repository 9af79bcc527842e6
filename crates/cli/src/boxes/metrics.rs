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

use super::counters::Counter;
use crate::exit::{Exit, Failure};

/// What `prometheus_client` writes.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The newest counters, as HTTP clients get them.
pub(super) struct Metrics {
    newest: Arc<Mutex<Vec<Counter>>>,
}

#[derive(Debug)]
struct Newest(Arc<Mutex<Vec<Counter>>>);

impl Metrics {
    /// Serves metrics named `farwrite_NAME_...` at every path. The thread ends with the program.
    pub(super) fn serve(address: SocketAddr, name: &str) -> Result<Self, Failure> {
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
    pub(super) fn set(&self, counters: &[Counter]) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.clear();
        newest.extend_from_slice(counters);
    }
}

impl Collector for Newest {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for counter in newest.iter() {
            let Counter { name, help, value } = *counter;
            if counter.is_maximum() {
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
