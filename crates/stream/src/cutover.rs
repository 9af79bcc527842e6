//! A stream goes on over another queue pair of its connection when the path comes to carry only smaller packets.

use std::collections::BTreeSet;
use std::sync::Arc;

use farwrite::{Endpoint, QpOptions, QueuePair, UdpFabric};
use farwrite_connection::{EndedMessages, GoesOn, Numbers};

use crate::error::Error;
use crate::shared::Shared;

/// A stream, as its connection sees it.
pub(crate) struct StreamCutover {
    pub(crate) shared: Arc<Shared>,
    /// From [`GoesOn::cut`] to [`GoesOn::go_on`].
    pub(crate) cut: Option<Cut>,
}

/// The new queue pair, and the messages that the old one has not ended.
pub(crate) struct Cut {
    qp: QueuePair,
    options: QpOptions,
    sent: BTreeSet<u64>,
    received: BTreeSet<u64>,
}

impl GoesOn for StreamCutover {
    fn cut(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        options: &QpOptions,
    ) -> Result<(QueuePair, EndedMessages), farwrite::Error> {
        let receiver = self.shared.receiver.lock();
        let mut sender = self.shared.sender.lock();
        let (started, sent) = sender.half.open_messages();
        let (posts, open) = receiver.half.open_messages();
        let qp = endpoint.replace_qp(sender.half.qp, options.clone())?;
        sender.half.waits_for_cutover = true;
        // Messages that were being closed are whole by now.
        let received = receiver.half.not_whole(&open);
        let ended = EndedMessages {
            received: Numbers::ended(posts, &received),
            failed: Vec::new(),
            sent: Numbers::ended(started, &sent),
        };
        self.cut = Some(Cut {
            qp,
            options: options.clone(),
            sent,
            received,
        });
        Ok((qp, ended))
    }

    fn go_on(&mut self, endpoint: &mut Endpoint<UdpFabric>, theirs: &EndedMessages) -> bool {
        let Some(cut) = self.cut.take() else {
            return true;
        };
        let mut receiver = self.shared.receiver.lock();
        let mut sender = self.shared.sender.lock();
        let half = &mut receiver.half;
        let received = half.go_on(endpoint, cut.qp, (&cut.received, &theirs.sent));
        let half = &mut sender.half;
        let sent = half.go_on(endpoint, (cut.qp, &cut.options), (&cut.sent, theirs));
        half.waits_for_cutover = false;
        received && sent
    }

    fn give_up(&mut self, endpoint: &mut Endpoint<UdpFabric>, why: Arc<farwrite::Error>) {
        self.shared.receiver.lock().half.take_whole(endpoint);
        self.shared.fail(&Error::Endpoint(why));
    }
}
