// Drives rival_top with the packets of a file, and compares what it does with what the queue pairs of Rust did: each
// answer, the messages that end, and at the end of each connection all memory that peers may write.
// lab/bench/examples/rtl_packets/rivals.rs writes the file.
// Usage: rivals_sim FILE
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "Vrival_top.h"

enum Kind { CREATE, PACKET, MEMORY };
enum Flag { FIRST = 1, LAST = 2, ACK_REQUEST = 4, HAS_IMM = 8, ANSWERS = 16, IS_NAK = 32, IS_ERROR = 64, IS_IRN = 128 };

struct Record {
  uint64_t addr;
  uint32_t kind, flags, seq, rkey, bytes, imm, payload_bytes, mtu_log;
  // What comes out.
  uint32_t psn, msn, after_gap, ends, end_imm, zero;
};

struct Region {
  uint64_t addr, length;
  uint32_t key, zero;
  std::vector<uint8_t> bytes;
};

Vrival_top top;
std::vector<Region> regions;
uint64_t packets[2] = {}, placed[2] = {}, compared[2] = {}, refused = 0, connections = 0;

[[noreturn]] void fail(const char *what, uint64_t hardware, uint64_t rust) {
  fprintf(stderr, "connection %lu, packet %lu of %s, %s: hardware %lx, Rust %lx\n", connections,
          packets[top.is_irn], top.is_irn ? "IRN" : "Go-Back-N", what, hardware, rust);
  exit(1);
}

void equal(const char *what, uint64_t hardware, uint64_t rust) {
  if (hardware != rust) fail(what, hardware, rust);
}

void read(FILE *file, void *to, size_t bytes) {
  if (bytes && fread(to, bytes, 1, file) == 1) return;
  if (bytes) fail("the file ends too early", 0, 0);
}

Region *find(uint32_t key) {
  for (Region &region : regions)
    if (region.key == key) return &region;
  return nullptr;
}

void cycle() {
  top.clk = 0;
  top.eval();
  top.clk = 1;
  top.eval();
}

// Byte by byte: those of the lanes of the first and of the last beat, and all between them.
void write(const std::vector<uint8_t> &payload) {
  Region *region = find(top.region_key);
  uint64_t addr = top.write_addr, first = addr / 64, last = (addr + top.write_bytes - 1) / 64, at = 0;
  for (uint64_t beat = first; beat <= last; beat++) {
    uint64_t lanes = beat == first ? top.first_lanes : beat == last ? top.last_lanes : ~0ul;
    for (uint64_t lane = 0; lane < 64; lane++) {
      if (!(lanes >> lane & 1)) continue;
      uint64_t offset = 64 * beat + lane - region->addr;
      if (offset >= region->length || at >= payload.size()) fail("a byte beyond the region or the payload", offset, at);
      region->bytes[offset] = payload[at++];
    }
  }
  equal("bytes of the lanes", at, payload.size());
}

void packet(const Record &r, const std::vector<uint8_t> &payload) {
  packets[top.is_irn]++;
  top.first = r.flags / FIRST & 1, top.last = r.flags / LAST & 1, top.ack_request = r.flags / ACK_REQUEST & 1;
  top.has_imm = r.flags / HAS_IMM & 1, top.seq = r.seq, top.addr = r.addr, top.rkey = r.rkey, top.bytes = r.bytes;
  top.imm = r.imm, top.payload_bytes = r.payload_bytes;
  Region *region = find(top.is_irn || top.first ? r.rkey : top.held_rkey);
  top.region_valid = region != nullptr;
  if (region) top.region_key = region->key, top.region_addr = region->addr, top.region_length = region->length;
  top.clk = 0;
  top.eval();
  equal("answer", top.answers, r.flags / ANSWERS & 1);
  if (top.answers) {
    equal("NAK", top.is_nak, r.flags / IS_NAK & 1);
    equal("error", top.is_error, r.flags / IS_ERROR & 1);
    equal("PSN", top.psn, r.psn);
    // Of a NAK of IRN, the field has the packet after the gap.
    if (top.is_irn && top.is_nak) equal("packet after the gap", top.after_gap, r.after_gap);
    else equal("MSN", top.msn, r.msn);
    refused += top.is_error;
  }
  equal("messages that end", top.ends, r.ends);
  if (!top.is_irn && top.ends) equal("immediate", top.end_imm, r.end_imm);
  if (top.writes) {
    if (!region) fail("a write without a region", top.write_addr, 0);
    placed[top.is_irn]++;
    write(payload);
  }
  top.valid = 1;
  cycle();
  top.valid = 0;
}

int main(int count, char **args) {
  FILE *file = count > 1 ? fopen(args[1], "rb") : nullptr;
  if (!file) fail("the file cannot be opened", 0, 0);
  uint32_t head[2];
  read(file, head, sizeof head);
  regions.resize(head[0]);
  for (Region &region : regions) read(file, &region, offsetof(Region, bytes));
  std::vector<uint8_t> bytes;
  for (Record r; fread(&r, sizeof r, 1, file) == 1;) {
    if (r.kind == CREATE) {
      connections++;
      for (Region &region : regions) region.bytes.assign(region.length, 0);
      top.create = 1, top.is_irn = r.flags / IS_IRN & 1, top.seq = r.seq, top.mtu_log = r.mtu_log;
      cycle();
      top.create = 0;
    } else if (r.kind == PACKET) {
      bytes.resize(r.payload_bytes);
      read(file, bytes.data(), bytes.size());
      packet(r, bytes);
    } else {
      compared[top.is_irn]++;
      for (Region &region : regions) {
        bytes.resize(region.length);
        read(file, bytes.data(), bytes.size());
        for (uint64_t at = 0; at < bytes.size(); at++) equal("byte of memory", region.bytes[at], bytes[at]);
      }
    }
  }
  if (!placed[0] || !placed[1] || !refused) fail("the file has too few packets", placed[0], placed[1]);
  if (!compared[0] || !compared[1]) fail("the memory of no connection was compared", compared[0], compared[1]);
  printf("%lu packets of Go-Back-N and %lu of IRN as in Rust, in %lu connections: %lu and %lu placed, "
         "%lu connections end by an error, the memory of %lu and %lu is the same\n",
         packets[0], packets[1], connections, placed[0], placed[1], refused, compared[0], compared[1]);
}
