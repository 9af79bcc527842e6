// Drives xp_icrc with the packets of a file, one beat after the other without pause, and compares what it finds with
// what the Rust crate found. lab/bench/examples/rtl_packets/sealed.rs writes the file.
// Usage: xp_icrc_sim FILE
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "Vxp_icrc.h"

constexpr uint32_t BEAT_BYTES = 64, WORD_BYTES = 4;

struct Packet {
  uint64_t number;
  bool right;
};

Vxp_icrc top;
std::deque<Packet> waiting;
uint64_t cycles = 0, found[2] = {};

[[noreturn]] void fail(int status, const char *what, uint64_t packet) {
  fprintf(stderr, "packet %lu: %s\n", packet, what);
  exit(status);
}

void cycle() {
  top.clk = 0;
  top.eval();
  top.clk = 1;
  top.eval();
  cycles++;
  if (!top.done) return;
  if (waiting.empty()) fail(1, "nothing should come out", 0);
  Packet packet = waiting.front();
  waiting.pop_front();
  if (top.intact != packet.right)
    fail(1, packet.right ? "refused, and its ICRC is right" : "accepted, and its ICRC is wrong", packet.number);
  found[packet.right]++;
}

int main(int count, char **args) {
  FILE *file = count > 1 ? fopen(args[1], "rb") : nullptr;
  if (!file) fail(2, "the file cannot be opened", 0);
  top.rst = 1;
  cycle();
  top.rst = 0;
  uint64_t packets = 0, beats = 0;
  for (uint32_t head[2]; fread(head, sizeof head, 1, file) == 1; packets++) {
    uint32_t words = head[0] / WORD_BYTES, last = (head[0] - 1) / BEAT_BYTES;
    waiting.push_back({packets, head[1] == 1});
    top.valid = 1;
    for (uint32_t beat = 0; beat <= last; beat++, beats++) {
      if (fread(&top.beat[0], BEAT_BYTES, 1, file) != 1) fail(2, "the file ends too early", packets);
      top.first = beat == 0;
      top.last = beat == last;
      top.words = (words - 1) % (BEAT_BYTES / WORD_BYTES);
      cycle();
    }
  }
  top.valid = 0;
  for (int i = 0; i < 4; i++) cycle();
  if (!waiting.empty()) fail(1, "nothing came out", waiting.front().number);
  if (!found[0] || !found[1]) fail(2, "the file has no packets of one kind", packets);
  printf("ICRC of %lu packets in %lu beats as in Rust, in %lu cycles: %lu right, %lu wrong\n", packets, beats, cycles,
         found[1], found[0]);
}
