//! The queue pair of a stream, and the statistics of the queue pairs that it replaced.

use farwrite::{Endpoint, PathStats, QpInfo, QpOptions, QpStats, QueuePair, UdpFabric};

use crate::{EndpointCounters, Error, Event};

/// The queue pair of a stream. It may have replaced others (P8.5).
#[derive(Debug)]
pub(crate) struct Lane {
    qp: QueuePair,
    /// Statistics of the replaced queue pairs together.
    past: QpStats,
    /// The path when the last replaced queue pair ended; `None` if none was replaced.
    past_path: Option<PathStats>,
    /// Whether the queue pair is connected.
    is_open: bool,
}

impl Lane {
    /// Starts with a connected queue pair.
    pub(crate) fn new(qp: QueuePair) -> Self {
        Self {
            qp,
            past: QpStats::default(),
            past_path: None,
            is_open: true,
        }
    }

    /// The queue pair, if it is connected.
    pub(crate) fn open(&self) -> Option<QueuePair> {
        self.is_open.then_some(self.qp)
    }

    /// What the peer needs to connect to the queue pair.
    pub(crate) fn info(&self, endpoint: &Endpoint<UdpFabric>) -> Result<QpInfo, Error> {
        let info = endpoint.qp_info(self.qp);
        info.map_err(|error| Error::of_endpoint(&error))
    }

    /// Sums the statistics of the queue pair and of those that it replaced.
    pub(crate) fn stats(&self, endpoint: &Endpoint<UdpFabric>) -> Result<QpStats, Error> {
        let stats = endpoint.qp_stats(self.qp);
        let stats = stats.map_err(|error| Error::of_endpoint(&error))?;
        Ok(self.past.and(&stats))
    }

    /// Returns the counters of the endpoint.
    ///
    /// # Errors
    /// Those of a queue pair that is broken.
    pub(crate) fn counters(&self, endpoint: &Endpoint<UdpFabric>) -> Result<Event, Error> {
        Ok(Event::Counters(Box::new(EndpointCounters {
            stats: self.stats(endpoint)?,
            path: self.path(endpoint)?,
            packets: endpoint.counters(),
        })))
    }

    /// The path of the queue pair. Until the queue pair is connected, this is the path of the
    /// previous one. Congestion marks and doubtful reports are summed over all queue pairs.
    pub(crate) fn path(&self, endpoint: &Endpoint<UdpFabric>) -> Result<PathStats, Error> {
        if let Some(past) = self.past_path.filter(|_| !self.is_open) {
            return Ok(past);
        }
        let path = endpoint.path_stats(self.qp);
        let path = path.map_err(|error| Error::of_endpoint(&error))?;
        let Some(past) = self.past_path else {
            return Ok(path);
        };
        Ok(PathStats {
            marked_packets: path.marked_packets + past.marked_packets,
            stale_packets: path.stale_packets + past.stale_packets,
            refused_feedback: path.refused_feedback + past.refused_feedback,
            excess_feedback: path.excess_feedback + past.excess_feedback,
            ..path
        })
    }

    /// Ends the queue pair and makes another with new keys. The caller must then connect it.
    pub(crate) fn replace(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        options: QpOptions,
    ) -> Result<QpInfo, Error> {
        self.past_path = Some(self.path(endpoint)?);
        self.past = self.stats(endpoint)?;
        self.is_open = false;
        let make = || -> Result<_, farwrite::Error> {
            endpoint.destroy_qp(self.qp)?;
            self.qp = endpoint.create_qp(options)?;
            endpoint.qp_info(self.qp)
        };
        make().map_err(|error| Error::of_endpoint(&error))
    }

    /// Marks the queue pair of [`Lane::replace`] as connected. The caller connects it at once.
    pub(crate) fn reopen(&mut self) -> QueuePair {
        self.is_open = true;
        self.qp
    }
}
