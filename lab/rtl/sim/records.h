// The file of lab/bench/examples/rtl_packets: what enters the hardware, and what has to come out.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

enum Kind { PACKET = 1, CREATE, POST_RECEIVE, LOAD, SCAN, POST_SEND, SEND, NOTIFY, RATE };
constexpr uint32_t NOT_LAST = 1, SCANNED = 2, NO_EVENT = 5;

struct Region {
  uint32_t key;
  uint64_t addr, length;
};

// Why a message ended, as the file and the harness number it.
enum Why { LAST_PACKET, TIMED_OUT, PREEMPTED, SENT };

struct Completion {
  uint32_t why, seq, bytes, imm;
  bool operator==(const Completion &) const = default;
};

struct Record {
  uint32_t kind, flags, qpn, seq;
  uint64_t now_ns, addr, deadline_ns;
  uint32_t rkey, bytes, imm, beats;
  uint8_t packet[128];
  uint64_t write_addr, first_lanes, last_lanes;
  uint8_t header[32];
  uint32_t write_bytes, offset, payload_bytes, valid;
  uint32_t context[13];
  uint32_t outcome;
  std::vector<Completion> completions;

  bool writes() const { return valid & 1; }
  bool transmits() const { return valid & 2; }
};

class Records {
 public:
  explicit Records(const char *path) : file_(path ? fopen(path, "rb") : stdin) {
    if (!file_) fail("cannot be opened");
    std::vector<char> head(16);
    read(pairs);
    read(keys);
    uint32_t count;
    read(count);
    read(line_kbps);
    regions.resize(count);
    for (Region &region : regions) {
      read(region.key);
      read(region.addr);
      read(region.length);
    }
  }

  // The next record, or false at the end of the file.
  bool next(Record &r) {
    int c = fgetc(file_);
    if (c == EOF) return false;
    ungetc(c, file_);
    read(r.kind), read(r.flags), read(r.qpn), read(r.seq);
    read(r.now_ns), read(r.addr), read(r.deadline_ns);
    read(r.rkey), read(r.bytes), read(r.imm), read(r.beats);
    read(r.packet);
    read(r.write_addr), read(r.first_lanes), read(r.last_lanes);
    read(r.header);
    read(r.write_bytes), read(r.offset), read(r.payload_bytes), read(r.valid);
    read(r.context);
    uint32_t count;
    read(r.outcome), read(count);
    r.completions.resize(count);
    for (Completion &completion : r.completions) read(completion);
    return true;
  }

  uint32_t pairs, keys, line_kbps;
  std::vector<Region> regions;

 private:
  // All machines that this runs on have the byte order of the file.
  template <class T>
  void read(T &value) {
    if (fread(&value, sizeof value, 1, file_) != 1) fail("ends too early");
  }
  [[noreturn]] static void fail(const char *why) {
    fprintf(stderr, "the file of packets %s\n", why);
    exit(2);
  }
  FILE *file_;
};
