//! A NIC that reports what is done, and when.

use std::cell::RefCell;
use std::rc::Rc;

use farwrite_net::header::Header;
use farwrite_net::{Device, Frame, Output, Ports};
use farwrite_rc::{Completion, Nic};

/// Where the hosts of a run put what is done, until the run takes it.
pub(crate) type Board = Rc<RefCell<Vec<Done>>>;

/// A completion at a host.
#[derive(Debug)]
pub(crate) struct Done {
    /// The host's place among the hosts.
    pub(crate) host: usize,
    pub(crate) qpn: u32,
    pub(crate) at_ns: u64,
    pub(crate) completion: Completion,
}

/// A NIC whose completions go to the board.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) nic: Nic,
    place: usize,
    board: Board,
}

impl Host {
    pub(crate) fn new(nic: Nic, place: usize, board: Board) -> Self {
        Self { nic, place, board }
    }

    fn report(&mut self, qpn: u32, at_ns: u64) {
        while let Some(completion) = self.nic.poll_completion(qpn) {
            self.board.borrow_mut().push(Done {
                host: self.place,
                qpn,
                at_ns,
                completion,
            });
        }
    }
}

impl Device for Host {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        let qpn = match &frame.header {
            Header::Roce(header) => Some(header.bth.dest_qp),
            Header::Other(_) => None,
        };
        self.nic.handle(now_ns, port, frame);
        if let Some(qpn) = qpn {
            self.report(qpn, now_ns);
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        self.nic.poll(now_ns, ports)
    }

    fn next_ns(&self) -> Option<u64> {
        self.nic.next_ns()
    }
}
