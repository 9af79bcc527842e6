// What an event does to the sending half of a queue pair: combinational, one stage. A work request stays in the memory
// of the host. The scheduler of queue pairs passes it with each event SEND.
module xp_tx (
    input  xp_pkg::event_t    ev,
    input  xp_pkg::context_t  old,
    output logic [23:0]       sending,
    output logic [7:0]        sends,
    output logic [31:0]       sent_bytes,
    output xp_pkg::transmit_t transmit,
    output logic [15:0]       wire_bytes,    // of the IP datagram
    output xp_pkg::sent_t     sent
);
  localparam logic [7:0] WRITE_ONLY = 8'h2A, WRITE_ONLY_WITH_IMM = 8'h2B, CNP = 8'h81;

  logic        active, timed_out, ends;
  logic [31:0] left, mtu_bytes, bytes;
  logic [63:0] next_send, addr;
  logic [1:0]  padding;
  logic [7:0]  opcode, flags;

  function automatic logic [23:0] be24(input logic [23:0] b);
    be24 = {b[7:0], b[15:8], b[23:16]};
  endfunction
  function automatic logic [31:0] be32(input logic [31:0] b);
    be32 = {b[7:0], b[15:8], b[23:16], b[31:24]};
  endfunction

  always_comb begin
    active = ev.kind == xp_pkg::SEND && old.sends != 8'd0 && ev.seq == old.sending;
    timed_out = active && ev.deadline != xp_pkg::NEVER && ev.deadline <= ev.now_ns;
    next_send = {old.dcqcn.next_send_high, old.dcqcn.next_send_low};
    mtu_bytes = 32'd1 << old.mtu_log;
    left = ev.bytes - old.sent_bytes;
    bytes = left < mtu_bytes ? left : mtu_bytes;

    transmit.is_notification = ev.kind == xp_pkg::NOTIFY;
    transmit.valid = transmit.is_notification ? old.notifies : active && !timed_out && next_send <= ev.now_ns;
    transmit.has_imm = !transmit.is_notification && bytes == left;
    transmit.offset = old.sent_bytes;
    transmit.payload_bytes = transmit.is_notification ? 16'd16 : bytes[15:0];
    padding = 2'd0 - transmit.payload_bytes[1:0];
    wire_bytes = 16'd60 + (transmit.has_imm ? 16'd4 : 16'd0) + bytes[15:0] + {14'd0, padding};

    // BTH with the default key of partitions; the flag of migration is set in data, that of BECN in notifications.
    opcode = transmit.is_notification ? CNP : transmit.has_imm ? WRITE_ONLY_WITH_IMM : WRITE_ONLY;
    flags = {1'b0, !transmit.is_notification, padding, 4'd0};
    addr = ev.addr + {32'd0, old.sent_bytes};
    transmit.header = {
      transmit.has_imm ? be32(ev.imm) : 32'd0,
      transmit.is_notification ? 128'd0 : {be32(ev.bytes), be32(ev.rkey), be32(addr[31:0]), be32(addr[63:32])},
      transmit.is_notification ? 24'd0 : be24(old.sending),
      8'd0,
      be24(old.peer_qpn),
      {1'b0, transmit.is_notification, 6'd0},
      16'hFFFF,
      flags,
      opcode
    };

    ends = timed_out || (active && transmit.valid && transmit.has_imm);
    sent.valid = ends;
    sent.seq = old.sending;
    sent.bytes = old.sent_bytes + (timed_out ? 32'd0 : bytes);
    sending = old.sending + {23'd0, ends};
    sends = old.sends - {7'd0, ends};
    if (ev.kind == xp_pkg::POST_SEND && old.sends != 8'hFF) sends = old.sends + 8'd1;
    sent_bytes = ends ? 32'd0 : old.sent_bytes + (active && transmit.valid ? bytes : 32'd0);
  end
endmodule
