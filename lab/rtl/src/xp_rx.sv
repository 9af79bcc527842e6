// What an event does to the receiving half of a queue pair (OptiNIC 3.1.1 and 3.1.2): combinational, one stage.
module xp_rx (
    input  xp_pkg::event_t    ev,
    input  xp_pkg::context_t  old,
    input  logic [63:0]       deadline,
    input  xp_pkg::region_t   region,
    output logic [23:0]       expected,
    output logic [7:0]        receives,
    output logic [31:0]       placed_bytes,
    output logic              notifies,
    output logic [63:0]       next_deadline,
    output xp_pkg::outcome_t  outcome,
    output xp_pkg::write_t    write,
    output xp_pkg::received_t received
);
  logic        checks, timed_out, place, is_late, is_posted, fits, allowed;
  logic [23:0] active, distance;
  logic [7:0]  posted;
  logic [31:0] kept_bytes, mtu_bytes;
  logic [32:0] sum;
  logic [63:0] offset, last_addr, from_first, to_last;
  logic        one_beat;

  always_comb begin
    // A deadline ends the active receive before the packet is looked at.
    checks = ev.kind == xp_pkg::SCAN || (ev.kind == xp_pkg::PACKET && !ev.is_notification);
    timed_out = checks && old.receives != 8'd0 && deadline != xp_pkg::NEVER && deadline <= ev.now_ns;
    active = old.expected + {23'd0, timed_out};
    posted = old.receives - {7'd0, timed_out};
    kept_bytes = timed_out ? 32'd0 : old.placed_bytes;

    // Message numbers wrap: those in the half before the active one are earlier ones.
    distance = ev.seq - active;
    is_late = distance[23];
    is_posted = distance < {16'd0, posted};
    mtu_bytes = 32'd1 << old.mtu_log;
    fits = {16'd0, ev.payload_bytes} <= mtu_bytes && {16'd0, ev.payload_bytes} <= ev.bytes;
    offset = ev.addr - region.addr;
    allowed = ev.payload_bytes == 16'd0
        || (region.valid && region.key == ev.rkey && ev.addr >= region.addr
            && {1'b0, offset} + {49'd0, ev.payload_bytes} <= {1'b0, region.length});

    outcome = xp_pkg::NONE;
    if (ev.kind == xp_pkg::PACKET && ev.is_fragment) begin
      if (is_late) outcome = xp_pkg::LATE;
      else if (!is_posted) outcome = xp_pkg::NOT_POSTED;
      else if (!fits || !allowed) outcome = xp_pkg::REFUSED;
      else outcome = xp_pkg::PLACED;
    end
    place = outcome == xp_pkg::PLACED;

    received.timed_out = timed_out;
    received.preempted = place ? distance[7:0] : 8'd0;
    received.last = place && ev.has_imm;
    received.first = old.expected;
    received.first_bytes = old.placed_bytes;
    received.imm = ev.imm;
    sum = {1'b0, received.preempted != 8'd0 ? 32'd0 : kept_bytes} + {17'd0, ev.payload_bytes};
    // The count does not wrap.
    received.last_bytes = sum[32] ? 32'hFFFF_FFFF : sum[31:0];

    expected = place ? ev.seq + {23'd0, received.last} : active;
    receives = posted - received.preempted - {7'd0, received.last};
    if (ev.kind == xp_pkg::POST_RECEIVE && old.receives != 8'hFF) receives = old.receives + 8'd1;
    placed_bytes = received.last ? 32'd0 : place ? received.last_bytes : kept_bytes;
    notifies = old.notifies || (ev.kind == xp_pkg::PACKET && ev.is_marked);

    next_deadline = deadline;
    if (expected != old.expected || old.receives == 8'd0) next_deadline = xp_pkg::NEVER;
    else if (ev.kind == xp_pkg::LOAD && ev.seq == old.expected) next_deadline = ev.deadline;

    write.valid = place && ev.payload_bytes != 16'd0;
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
