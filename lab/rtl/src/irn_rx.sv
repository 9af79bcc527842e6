// The receiving half of IRN (SIGCOMM 2018, sections 3 and 5): every packet has address and key, and is placed when it
// comes. Two bitmaps of a bandwidth-delay product of 128 packets say which have come after a gap, and which of them end
// a message. Immediates of such packets wait in the memory of the host, as in the paper. One stage.
module irn_rx (
    input  xp_pkg::event_t ev,
    input  logic           first,          // of its message
    input  logic           last,
    input  rival_pkg::irn_t    old,
    input  xp_pkg::region_t    region,
    output rival_pkg::irn_t    next,
    output rival_pkg::answer_t answer,
    output xp_pkg::write_t write,
    output logic [7:0]     ends        // messages that are complete now
);
  localparam int WINDOW = rival_pkg::WINDOW;

  logic [23:0]       distance;
  logic              is_duplicate, is_beyond, is_new, fits, allowed, is_placed, one_beat;
  logic [31:0]       mtu_bytes;
  logic [63:0]       offset, last_addr, from_first, to_last;
  logic [WINDOW-1:0] bit_of, arrived, ended, closed;
  logic [7:0]        run;

  // A tree of adders.
  function automatic logic [7:0] count(input logic [WINDOW-1:0] bits);
    logic [8*WINDOW/4-1:0] sums;
    for (int i = 0; i < WINDOW / 4; i++)
      sums[8*i+:8] = {7'd0, bits[4*i]} + {7'd0, bits[4*i+1]} + {7'd0, bits[4*i+2]} + {7'd0, bits[4*i+3]};
    for (int n = WINDOW / 8; n > 0; n = n / 2)
      for (int i = 0; i < n; i++) sums[8*i+:8] = sums[16*i+:8] + sums[16*i+8+:8];
    count = sums[7:0];
  endfunction

  always_comb begin
    distance = ev.seq - old.psn;
    is_duplicate = distance[23];
    is_beyond = !is_duplicate && distance >= 24'(WINDOW);
    bit_of = {{(WINDOW - 1) {1'b0}}, 1'b1} << distance[6:0];
    is_new = !is_duplicate && !is_beyond && (old.arrived & bit_of) == '0;
    mtu_bytes = 32'd1 << old.mtu_log;
    fits = {16'd0, ev.payload_bytes} <= mtu_bytes && {16'd0, ev.payload_bytes} <= ev.bytes;
    offset = ev.addr - region.addr;
    allowed = ev.payload_bytes == 16'd0
        || (region.valid && region.key == ev.rkey && ev.addr >= region.addr
            && {1'b0, offset} + {49'd0, ev.payload_bytes} <= {1'b0, region.length});
    is_placed = is_new && fits && allowed && !old.broken;

    arrived = old.arrived | (is_placed ? bit_of : '0);
    ended = old.ends | (is_placed && last ? bit_of : '0);
    // The packets from the expected one on that have come, and the messages that end with them.
    closed = arrived & (arrived ^ (arrived + 1'b1));
    run = count(closed);
    ends = count(closed & ended);

    next = old;
    next.broken = old.broken || (is_new && !is_placed);
    next.arrived = arrived >> run;
    next.ends = ended >> run;
    next.psn = old.psn + {16'd0, run};
    next.msn = old.msn + {16'd0, ends};

    // Every packet is answered: by the expected one, and after a gap also by its own number, each time that it comes.
    answer.valid = !old.broken && !is_beyond;
    answer.is_error = is_new && !is_placed;
    answer.is_nak = !answer.is_error && !is_duplicate && distance != 24'd0;
    answer.psn = answer.is_nak || answer.is_error ? next.psn : next.psn - 24'd1;
    answer.msn = next.msn;
    answer.after_gap = ev.seq;

    write.valid = is_placed && ev.payload_bytes != 16'd0;
    write.addr = ev.addr;
    write.bytes = ev.payload_bytes;
    last_addr = ev.addr + {48'd0, ev.payload_bytes} - 64'd1;
    from_first = xp_pkg::NEVER << ev.addr[5:0];
    to_last = xp_pkg::NEVER >> ~last_addr[5:0];
    one_beat = {10'd0, ev.addr[5:0]} + ev.payload_bytes <= 16'd64;
    write.first_lanes = one_beat ? from_first & to_last : from_first;
    write.last_lanes = one_beat ? from_first & to_last : to_last;
  end
endmodule
