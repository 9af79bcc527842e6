// The receiving half of Go-Back-N, as in crates/rc/src/responder.rs: packets count in their order only. One stage.
module gbn_rx (
    input  xp_pkg::event_t ev,
    input  logic           first,          // of its message
    input  logic           last,
    input  logic           ack_request,
    input  rival_pkg::gbn_t    old,
    input  xp_pkg::region_t    region,
    output rival_pkg::gbn_t    next,
    output rival_pkg::answer_t answer,
    output xp_pkg::write_t write,
    output logic           ends,       // a message with immediate is complete
    output logic [31:0]    imm
);
  logic [23:0] distance;
  logic        in_order, is_gap, is_placed, begins_well, fits, allowed, one_beat;
  logic [31:0] left, mtu_bytes, rkey;
  logic [63:0] addr, offset, last_addr, from_first, to_last;
  logic [32:0] checked_bytes;

  always_comb begin
    distance = ev.seq - old.psn;
    in_order = distance == 24'd0;
    is_gap = !in_order && !distance[23];
    mtu_bytes = 32'd1 << old.mtu_log;

    // The first packet has address, key and length of the whole message.
    addr = first ? ev.addr : old.addr;
    rkey = first ? ev.rkey : old.rkey;
    left = first ? ev.bytes : old.left_bytes;
    begins_well = first == (old.left_bytes == 32'd0);
    fits = last ? {16'd0, ev.payload_bytes} == left && left <= mtu_bytes
        : {16'd0, ev.payload_bytes} == mtu_bytes && left > mtu_bytes;
    offset = addr - region.addr;
    checked_bytes = {1'b0, left};
    allowed = left == 32'd0
        || (region.valid && region.key == rkey && addr >= region.addr
            && {1'b0, offset} + {32'd0, checked_bytes} <= {1'b0, region.length});
    is_placed = in_order && begins_well && fits && allowed && !old.broken;

    next = old;
    answer.valid = 1'b0;
    answer.is_nak = is_gap;
    answer.is_error = 1'b0;
    answer.psn = is_gap ? old.psn : old.psn - 24'd1;
    answer.after_gap = ev.seq;
    if (!old.broken) begin
      if (is_placed) begin
        next.is_refusing = 1'b0;
        next.psn = old.psn + 24'd1;
        next.msn = old.msn + {23'd0, last};
        next.addr = addr + {48'd0, ev.payload_bytes};
        next.rkey = rkey;
        next.left_bytes = left - {16'd0, ev.payload_bytes};
        answer.valid = ack_request;
        answer.psn = old.psn;
      end else if (in_order) begin
        next.broken = 1'b1;
        answer.valid = 1'b1;
        answer.is_error = 1'b1;
        answer.psn = old.psn;
      end else if (is_gap) begin
        // One NAK names a gap.
        next.is_refusing = 1'b1;
        answer.valid = !old.is_refusing;
      end else answer.valid = ack_request && !old.is_refusing;
    end
    answer.msn = next.msn;
    ends = is_placed && last && ev.has_imm;
    imm = ev.imm;

    write.valid = is_placed && ev.payload_bytes != 16'd0;
    write.addr = addr;
    write.bytes = ev.payload_bytes;
    last_addr = addr + {48'd0, ev.payload_bytes} - 64'd1;
    from_first = xp_pkg::NEVER << addr[5:0];
    to_last = xp_pkg::NEVER >> ~last_addr[5:0];
    one_beat = {10'd0, addr[5:0]} + ev.payload_bytes <= 16'd64;
    write.first_lanes = one_beat ? from_first & to_last : from_first;
    write.last_lanes = one_beat ? from_first & to_last : to_last;
  end
endmodule
