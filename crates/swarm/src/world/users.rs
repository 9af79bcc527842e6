//! The actions of users: connect, post messages and end them.

use farwrite::{Error, MemoryRegion, Outcome, RecvOptions, SchemeTag, SendHandle, SendOptions};
use farwrite_wire::control::Terms;

use super::World;
use crate::oracle::{GUARD, UNTOUCHED};
use crate::plan::{Ending, MessagePlan, PairPlan, Plan, Repair};
use crate::violation::{Rule, Violation};
use farwrite_rng::SplitMix;

/// The bytes of a message. None of them is [`UNTOUCHED`].
pub(super) fn content(plan: &Plan, index: usize) -> Vec<u8> {
    let mut rng = SplitMix::new(plan.seed ^ (index as u64) << 32);
    let bytes = plan.messages[index].bytes;
    let words = (0..bytes.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes());
    let written = |byte| if byte == UNTOUCHED { !UNTOUCHED } else { byte };
    words.map(written).take(bytes).collect()
}

fn recv_options(terms: &Terms, deadline_ns: Option<u64>) -> RecvOptions {
    RecvOptions {
        scheme: terms.scheme,
        exact_length: terms.exact_length,
        immediate: terms.immediate,
        deadline_ns,
        accept_partial: terms.accepts_partial,
    }
}

impl World<'_> {
    /// Creates and connects the queue pairs that are due.
    pub(super) fn open_pairs(&mut self) -> Result<(), Violation> {
        let now_ns = self.now_ns();
        for pair in 0..self.pairs.len() {
            let PairPlan {
                opens_ns, lag_ns, ..
            } = self.plan.pairs[pair];
            let hosts = [0, 1].map(|end| self.plan.host(pair, end));
            let asleep = hosts.iter().any(|&host| self.hosts[host].paused);
            if !self.pairs[pair].opened && opens_ns <= now_ns && !asleep {
                self.say(|| format!("queue pair {pair} opens"));
                let created = self.create(pair, hosts);
                created.map_err(|error| self.failed("create_qp", error))?;
                self.pairs[pair].opened = true;
            }
            for (end, lag_ns) in [0, lag_ns].into_iter().enumerate() {
                if self.pairs[pair].peers[end].is_some()
                    && opens_ns + lag_ns <= now_ns
                    && self.awake(pair, end).is_some()
                    && self.is_route_known(pair, end)
                {
                    self.connect(pair, end)?;
                }
            }
        }
        Ok(())
    }

    /// Creates both ends.
    fn create(&mut self, pair: usize, hosts: [usize; 2]) -> Result<(), Error> {
        for (end, host) in hosts.into_iter().enumerate() {
            let options = self.plan.pairs[pair].options.clone();
            let addr = self.hosts[host].seen_as;
            let endpoint = self.hosts[host].endpoint();
            let qp = endpoint.create_qp(options)?;
            let info = endpoint.qp_info(qp)?;
            self.tap.borrow_mut().learn(pair, 1 - end, addr, &info);
            self.pairs[pair].ends[end] = Some(qp);
            self.pairs[pair].peers[1 - end] = Some(info);
        }
        self.expose(pair, hosts)
    }

    fn connect(&mut self, pair: usize, end: usize) -> Result<(), Violation> {
        self.say(|| format!("end {end} of queue pair {pair} connects"));
        let host = self.plan.host(pair, end);
        let state = &mut self.pairs[pair];
        let (qp, peer) = (state.ends[end], state.peers[end].take());
        let (qp, mut peer) = qp.zip(peer).expect("it is made, and not connected");
        self.name_peer(pair, end, &mut peer);
        let connected = self.hosts[host].endpoint().connect_qp(qp, &peer);
        connected.map_err(|error| self.failed("connect_qp", error))?;
        self.follow_route(pair, end)
    }

    /// Posts the messages that are due, in order, while there are free slots.
    pub(super) fn post_messages(&mut self) -> Result<(), Violation> {
        self.is_waiting = false;
        for pair in 0..self.pairs.len() {
            if !self.pairs[pair].opened {
                continue;
            }
            for from in 0..2 {
                while self.post_next_recv(pair, from)? {}
                while self.post_next_send(pair, from)? {}
            }
        }
        Ok(())
    }

    /// The host of an end, if the end exists and the host is not paused.
    fn awake(&self, pair: usize, end: usize) -> Option<usize> {
        self.pairs[pair].ends[end]?;
        let host = self.plan.host(pair, end);
        (!self.hosts[host].paused).then_some(host)
    }

    fn post_next_recv(&mut self, pair: usize, from: usize) -> Result<bool, Violation> {
        let now_ns = self.now_ns();
        let course = &self.pairs[pair].courses[from];
        let Some(&index) = course.messages.get(course.posted) else {
            return Ok(false);
        };
        let plan = &self.plan.messages[index];
        let Some(host) = self
            .awake(pair, 1 - from)
            .filter(|_| plan.recv_ns <= now_ns)
        else {
            return Ok(false);
        };
        let qp = self.pairs[pair].ends[1 - from].expect("it is awake");
        let known = self.messages[index].target;
        let endpoint = self.hosts[host].endpoint();
        let region = match known {
            Some(region) => Ok(region),
            None => endpoint.register(vec![UNTOUCHED; plan.capacity + 2 * GUARD]),
        };
        let region = region.map_err(|error| self.failed("register", error))?;
        self.messages[index].target = Some(region);
        let target = region.slice(GUARD as u64..(GUARD + plan.capacity) as u64);
        let options = recv_options(&plan.terms, self.deadline_ns(plan.recv_limit_ns));
        let posted = match self.plan.is_read(index) {
            true => self.post_read(index, host, target, options.deadline_ns),
            false => {
                let endpoint = self.hosts[host].endpoint();
                endpoint.post_recv_with(qp, target, options)
            }
        };
        let recv = match posted {
            Ok(recv) => recv,
            // A read needs a peer.
            Err(Error::Retry { .. } | Error::NotConnected(_)) => {
                self.is_waiting = true;
                return Ok(false);
            }
            Err(error) => return Err(self.failed("post_recv", error)),
        };
        let course = &mut self.pairs[pair].courses[from];
        let number = course.posted as u64;
        course.posted += 1;
        if recv.message() != number {
            let what = format!(
                "receive {index} has number {}, not {number}",
                recv.message()
            );
            return Err(self.violation(Rule::Label, what));
        }
        self.say(|| format!("message {index}: buffer posted, number {number}"));
        self.messages[index].recv = Some(recv);
        self.messages[index].recv_deadline_ns = options.deadline_ns;
        self.watch_deadline(index, 1 - from, options.deadline_ns);
        if let Ending::Complete { after_ns, .. } = plan.ending {
            self.endings.insert((now_ns + after_ns, index));
        }
        self.open.insert(index);
        self.progress_ns = now_ns;
        Ok(true)
    }

    fn post_next_send(&mut self, pair: usize, from: usize) -> Result<bool, Violation> {
        let now_ns = self.now_ns();
        let course = &self.pairs[pair].courses[from];
        let Some(&index) = course.messages.get(course.sent) else {
            return Ok(false);
        };
        let plan = &self.plan.messages[index];
        let is_connected = self.pairs[pair].peers[from].is_none();
        let is_due = is_connected && plan.send_ns <= now_ns;
        let Some(host) = self.awake(pair, from).filter(|_| is_due) else {
            return Ok(false);
        };
        if self.messages[index].source.is_none() {
            let content = content(self.plan, index);
            let region = self.hosts[host].endpoint().register(content.clone());
            let region = region.map_err(|error| self.failed("register", error))?;
            let message = &mut self.messages[index];
            (message.content, message.source) = (content, Some(region));
        }
        let send = match self.send(index, host) {
            Ok(send) => send,
            Err(Error::Retry { .. }) => {
                self.is_waiting = true;
                return Ok(false);
            }
            Err(error) => return Err(self.failed("post_send", error)),
        };
        let course = &mut self.pairs[pair].courses[from];
        let number = course.sent as u64;
        course.sent += 1;
        self.tap.borrow_mut().started(pair, from);
        if send.message() != number {
            let what = format!("send {index} has number {}, not {number}", send.message());
            return Err(self.violation(Rule::Label, what));
        }
        self.say(|| format!("message {index}: sent, number {number}"));
        self.messages[index].send = Some(send);
        let deadline_ns = self.messages[index].send_deadline_ns;
        self.watch_deadline(index, from, deadline_ns);
        if let Ending::Cancel { after_ns } = plan.ending {
            self.endings.insert((now_ns + after_ns, index));
        }
        self.open.insert(index);
        self.progress_ns = now_ns;
        Ok(true)
    }

    /// Starts a message.
    fn send(&mut self, index: usize, host: usize) -> Result<SendHandle, Error> {
        let plan = &self.plan.messages[index];
        let qp = self.pairs[plan.pair].ends[plan.from].expect("it is awake");
        let source = self.messages[index].source.expect("registered");
        let scheme = match plan.scheme {
            Repair::Scheme(scheme) => scheme.tag(),
            Repair::Nothing => SchemeTag::NONE,
            Repair::Stream => {
                self.messages[index].scheme = SchemeTag::NONE;
                return self.send_stream(index, host, source);
            }
        };
        let options = SendOptions {
            scheme,
            immediate: plan.immediate,
            first_chunk: 0,
            deadline_ns: self.deadline_ns(plan.send_limit_ns),
            critical: plan.critical,
        };
        self.messages[index].scheme = scheme;
        self.messages[index].send_deadline_ns = options.deadline_ns;
        let endpoint = self.hosts[host].endpoint();
        let sent = endpoint.post_send(qp, source.whole(), options);
        let Err(Error::TooLong { .. }) = sent else {
            return sent;
        };
        // Its parity would exceed the maximum length of a message.
        let options = SendOptions {
            scheme: SendOptions::default().scheme,
            ..options
        };
        self.messages[index].scheme = options.scheme;
        endpoint.post_send(qp, source.whole(), options)
    }

    /// Sends a stream in two runs of chunks, with the later chunks first, or in writes.
    fn send_stream(
        &mut self,
        index: usize,
        host: usize,
        source: MemoryRegion,
    ) -> Result<SendHandle, Error> {
        let plan = &self.plan.messages[index];
        let qp = self.pairs[plan.pair].ends[plan.from].expect("it is awake");
        let endpoint = self.hosts[host].endpoint();
        let stream = endpoint.start_stream(qp, plan.immediate)?;
        if !plan.write_limits_ns.is_empty() {
            self.write_parts(index, host, (&stream, source))?;
            self.hosts[host].endpoint().end_stream(&stream)?;
            return Ok(stream);
        }
        let chunk_bytes = self.plan.pairs[plan.pair].chunk_bytes();
        let bytes = source.length();
        let chunks = u32::try_from(bytes.div_ceil(chunk_bytes)).expect("short");
        let half = chunks / 2;
        let at = chunk_bytes * u64::from(half);
        endpoint.send_chunks(&stream, source.slice(at..bytes), half)?;
        if half > 0 {
            endpoint.send_chunks(&stream, source.slice(0..at), 0)?;
        }
        endpoint.end_stream(&stream)?;
        Ok(stream)
    }

    /// Cancels and completes the messages that are due.
    pub(super) fn end_messages(&mut self) -> Result<(), Violation> {
        let now_ns = self.now_ns();
        let later = self.endings.split_off(&(now_ns + 1, 0));
        let due = std::mem::replace(&mut self.endings, later);
        for (_, index) in due {
            let MessagePlan {
                pair, from, ending, ..
            } = self.plan.messages[index];
            let end = match ending {
                Ending::Complete { .. } => 1 - from,
                _ => from,
            };
            if self.pairs[pair].ends[end].is_none() {
                continue;
            }
            if self.awake(pair, end).is_none() {
                // Its host is paused until the next time of the plan.
                let wakes_ns = self.instants.first().copied();
                let wakes_ns = wakes_ns.expect("a pause ends before links heal");
                self.endings.insert((wakes_ns, index));
                continue;
            }
            match ending {
                Ending::Complete { outcome, .. } => self.complete(index, outcome)?,
                _ => self.cancel(index)?,
            }
        }
        Ok(())
    }

    fn complete(&mut self, index: usize, outcome: Outcome) -> Result<(), Violation> {
        let plan = &self.plan.messages[index];
        let Some(recv) = self.messages[index].recv.clone() else {
            return Ok(());
        };
        if recv.outcome().is_some() {
            return Ok(());
        }
        let outcome = match plan.scheme {
            Repair::Scheme(_) => outcome,
            _ if recv.bitmap().is_complete() => Outcome::Whole,
            _ => Outcome::Partial,
        };
        let host = self.plan.host(plan.pair, 1 - plan.from);
        self.say(|| format!("message {index}: completed as {outcome:?}"));
        let completed = self.hosts[host].endpoint().complete_recv(&recv, outcome);
        completed.map_err(|error| self.failed("complete_recv", error))?;
        self.messages[index].completed = Some(outcome);
        self.observe_message(index)
    }

    fn cancel(&mut self, index: usize) -> Result<(), Violation> {
        let plan = &self.plan.messages[index];
        let Some(send) = self.messages[index].send.clone() else {
            return Ok(());
        };
        if send.outcome().is_some() {
            return Ok(());
        }
        let host = self.plan.host(plan.pair, plan.from);
        self.say(|| format!("message {index}: cancelled"));
        let cancelled = self.hosts[host].endpoint().cancel_send(&send);
        cancelled.map_err(|error| self.failed("cancel_send", error))?;
        self.messages[index].cancelled = true;
        self.observe_message(index)
    }
}
