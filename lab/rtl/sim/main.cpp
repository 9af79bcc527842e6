// Drives xp_nic with the events of a file, and compares what comes out with what the Rust queue pairs did.
// The mapping of bits is that of xp_pkg.sv: word i of the Rust context is bits 32 * i and up of `out_context`. Rust has
// zeros in the highest bytes of the words 1 and 2; the file has the numbers of posted sends and receives there.
// Usage: xp_sim [FILE]
#include <cstring>
#include <deque>

#include "Vxp_nic.h"
#include "records.h"

// Fields of a packed struct from its lowest bit on, so from its last field on.
template <class Words>
class Fields {
 public:
  explicit Fields(const Words &words) : words_(words) {}
  uint64_t next(int count) {
    uint64_t value = 0;
    for (int bit = 0; bit < count; bit++, at_++) value |= uint64_t(words_[at_ / 32] >> at_ % 32 & 1) << bit;
    return value;
  }

 private:
  const Words &words_;
  int at_ = 0;
};

class Sim {
 public:
  explicit Sim(Records &records) : records_(records), dcqcn_(records.pairs) {
    top_.rst = 1;
    top_.line_kbps = records.line_kbps;
    clock();
    top_.rst = 0;
    for (const Region &region : records.regions) write_region(region);
  }

  void run() {
    Record r;
    for (; records_.next(r) && !(r.flags & SCANNED); read_++) enter(r);
    bool more = r.flags & SCANNED;
    drain();
    std::vector<Record> scanned;
    for (; more && (r.flags & SCANNED); more = records_.next(r)) scanned.push_back(r);
    scan(scanned);
    for (; more; more = records_.next(r)) enter(r);
    drain();
    for (uint32_t qpn = 0; qpn < records_.pairs; qpn++)
      if (dcqcn_[qpn].waits) fail("the rate of a queue pair was not computed", qpn);
    printf("%lu packets and %lu other events as in Rust, in %lu cycles: %lu placed, %lu late, %lu not posted, "
           "%lu refused, %lu not valid, %lu sent; %lu messages ended by their last packet, %lu by their deadline, "
           "%lu by a later message; %lu times an event of a queue pair followed another one within two cycles\n",
           packets_, events_ - packets_, cycles_, outcomes_[1], outcomes_[2], outcomes_[3], outcomes_[4], outcomes_[5],
           transmitted_, ends_[LAST_PACKET], ends_[TIMED_OUT], ends_[PREEMPTED], close_);
  }

 private:
  struct Dcqcn {
    uint32_t now[8] = {}, next[8] = {};
    bool waits = false;
  };

  void write_region(const Region &region) {
    // {valid, key, addr, length}, the highest bits first.
    auto &e = top_.region_entry;
    e[0] = region.length, e[1] = region.length >> 32, e[2] = region.addr, e[3] = region.addr >> 32;
    e[4] = region.key, e[5] = 1;
    top_.region_write = 1;
    clock();
    top_.region_write = 0;
  }

  // Gives an event to the hardware, in as many cycles as it takes.
  void enter(const Record &r) {
    top_.now_ns = r.now_ns;
    top_.now_us = r.now_ns / 1000;
    if (r.kind == PACKET) {
      if (r.outcome != NO_EVENT) waiting_.push_back(r);
      outcomes_[r.outcome]++;
      packets_++;
      for (uint32_t beat = 0; beat < r.beats; beat++) {
        top_.rx_valid = 1;
        top_.rx_first = beat == 0;
        memcpy(&top_.rx_beat[0], r.packet + 64 * beat, 64);
        while (!clock()) {
        }
      }
      top_.rx_valid = 0;
    } else {
      waiting_.push_back(r);
      top_.host_kind = r.kind, top_.host_qpn = r.qpn, top_.host_seq = r.seq, top_.host_addr = r.addr;
      top_.host_rkey = r.rkey, top_.host_bytes = r.bytes, top_.host_imm = r.imm, top_.host_deadline = r.deadline_ns;
      while (!clock()) {
      }
      top_.host_kind = 0;
    }
  }

  // The scan brings its events itself.
  void scan(const std::vector<Record> &records) {
    if (records.empty()) return;
    top_.now_ns = records[0].now_ns;
    top_.now_us = records[0].now_ns / 1000;
    scanned_ = records;
    top_.scans = 1;
    for (uint64_t end = cycles_ + 100000; !scanned_.empty() && cycles_ < end;) clock();
    top_.scans = 0;
    if (!scanned_.empty()) fail("the scan does not come to a queue pair", scanned_[0].qpn);
    // It may have begun again: nothing is left to do for it.
    after_scan_ = true;
    drain();
    after_scan_ = false;
  }

  void drain() {
    for (int i = 0; i < 20000 && (i < 8 || !waiting_.empty()); i++) clock();
    if (!waiting_.empty()) fail("an event did not come out", waiting_[0].qpn);
    for (int i = 0; i < 20000; i++) clock();
  }

  // One cycle. Returns whether the hardware took what was offered.
  bool clock() {
    top_.clk = 0;
    top_.eval();
    bool taken = top_.host_kind ? top_.host_ready : top_.rx_ready;
    top_.clk = 1;
    top_.eval();
    cycles_++;
    if (top_.out_kind) check();
    return taken;
  }

  void check() {
    uint32_t kind = top_.out_kind, qpn = top_.out_qpn;
    Record r;
    if (kind == RATE) {
      Dcqcn &d = dcqcn_[qpn];
      d.waits = false;
      memcpy(d.now, d.next, sizeof d.now);
      compare_dcqcn(qpn);
      return;
    }
    if (!find(kind, qpn, r)) return;
    events_++;
    close_ += cycles_ - last_cycle_ <= 2 && qpn == last_qpn_;
    last_cycle_ = cycles_, last_qpn_ = qpn;

    Dcqcn &d = dcqcn_[qpn];
    if (memcmp(d.next, r.context + 5, sizeof d.next)) {
      memcpy(d.next, r.context + 5, sizeof d.next);
      d.waits = kind != CREATE;
      if (!d.waits) memcpy(d.now, d.next, sizeof d.now);
    }
    if (!(r.flags & NOT_LAST))
      for (int word = 0; word < 5; word++) equal("context", r, top_.out_context[word], r.context[word]);
    compare_dcqcn(qpn);
    if (kind == PACKET) equal("outcome", r, top_.out_outcome, r.outcome);
    compare_write(r);
    compare_transmit(r);
    compare_completions(r);
  }

  // What the file has for an event that comes out.
  bool find(uint32_t kind, uint32_t qpn, Record &r) {
    if (top_.scans || after_scan_) {
      for (auto i = scanned_.begin(); i != scanned_.end(); ++i)
        if (i->qpn == qpn) {
          r = *i;
          scanned_.erase(i);
          return true;
        }
      return false;
    }
    if (waiting_.empty()) fail("nothing should come out", qpn);
    r = waiting_.front();
    waiting_.pop_front();
    equal("kind", r, kind, r.kind);
    equal("queue pair", r, qpn, r.qpn);
    return true;
  }

  void compare_dcqcn(uint32_t qpn) {
    for (int word = 0; word < 8; word++)
      if (top_.out_context[5 + word] != dcqcn_[qpn].now[word]) {
        fprintf(stderr, "event %lu, queue pair %u, word %d of the context: hardware %08x, Rust %08x\n", events_, qpn,
                5 + word, top_.out_context[5 + word], dcqcn_[qpn].now[word]);
        exit(1);
      }
  }

  void compare_write(const Record &r) {
    Fields write(top_.out_write);
    uint64_t last_lanes = write.next(64), first_lanes = write.next(64), bytes = write.next(16), addr = write.next(64);
    bool valid = write.next(1) && r.kind == PACKET;
    equal("write", r, valid, r.writes());
    if (!valid) return;
    equal("address", r, addr, r.write_addr);
    equal("bytes", r, bytes, r.write_bytes);
    equal("lanes of the first beat", r, first_lanes, r.first_lanes);
    equal("lanes of the last beat", r, last_lanes, r.last_lanes);
  }

  void compare_transmit(const Record &r) {
    Fields out(top_.out_transmit);
    uint64_t payload_bytes = out.next(16), offset = out.next(32);
    uint8_t header[32];
    for (uint8_t &byte : header) byte = out.next(8);
    out.next(2);
    bool valid = out.next(1);
    equal("packet sent", r, valid, r.transmits());
    if (!valid) return;
    transmitted_++;
    for (int at = 0; at < 32; at++) equal("byte of a header", r, header[at], r.header[at]);
    equal("payload", r, payload_bytes, r.payload_bytes);
    if (r.kind == SEND) equal("offset", r, offset, r.offset);
  }

  void compare_completions(const Record &r) {
    Fields in(top_.out_received);
    uint32_t imm = in.next(32), last_bytes = in.next(32), first_bytes = in.next(32), seq = in.next(24);
    uint32_t last = in.next(1), preempted = in.next(8), timed_out = in.next(1);
    uint32_t sent_bytes = top_.out_sent, sent_seq = top_.out_sent >> 32 & 0xFFFFFF;
    bool sent = top_.out_sent >> 56;
    std::vector<Completion> found;
    auto ends = [&](uint32_t why, uint32_t bytes, uint32_t value) {
      found.push_back({why, seq, bytes, value});
      ends_[why]++;
      seq = (seq + 1) & 0xFFFFFF;
    };
    if (timed_out) ends(TIMED_OUT, first_bytes, 0);
    for (uint32_t i = 0; i < preempted; i++) ends(PREEMPTED, found.empty() ? first_bytes : 0, 0);
    if (last) ends(LAST_PACKET, last_bytes, imm);
    if (sent) found.push_back({SENT, sent_seq, sent_bytes, 0});
    if (found == r.completions) return;
    auto print = [&](const char *who, const std::vector<Completion> &list) {
      for (const Completion &c : list)
        fprintf(stderr, "  %s: end %u, message %u, %u bytes, immediate %x\n", who, c.why, c.seq, c.bytes, c.imm);
    };
    print("hardware", found);
    print("Rust", r.completions);
    fail("other completions", r.qpn);
  }

  void equal(const char *what, const Record &r, uint64_t hardware, uint64_t rust) {
    if (hardware == rust) return;
    fprintf(stderr, "event %lu, kind %u, queue pair %u, %s: hardware %lx, Rust %lx\n", events_, r.kind, r.qpn, what,
            hardware, rust);
    exit(1);
  }

  [[noreturn]] void fail(const char *what, uint32_t qpn) {
    fprintf(stderr, "event %lu, queue pair %u: %s\n", events_, qpn, what);
    exit(1);
  }

  Vxp_nic top_;
  Records &records_;
  std::deque<Record> waiting_;
  std::vector<Record> scanned_;
  std::vector<Dcqcn> dcqcn_;
  bool after_scan_ = false;
  uint64_t read_ = 0, cycles_ = 0, packets_ = 0, events_ = 0, transmitted_ = 0, close_ = 0, last_cycle_ = 0;
  uint64_t outcomes_[6] = {}, ends_[3] = {};
  uint32_t last_qpn_ = ~0u;
};

int main(int count, char **args) {
  Records records(count > 1 ? args[1] : nullptr);
  Sim(records).run();
}
