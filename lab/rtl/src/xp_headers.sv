// Finds the headers of a packet in its first beats of 64 bytes: byte i in bits 8 * i and up, from the IP header on.
// IPv4, UDP, BTH, RETH and ImmDt are 60 bytes, one beat. With IPv6 they are 80 bytes, two beats. What follows is
// payload, which does not come here. A packet that is not valid causes no event.
module xp_headers #(
    parameter int PAIRS = 1024
) (
    input  logic           clk,
    input  logic           rst,
    input  logic [63:0]    now_ns,
    input  logic [31:0]    now_us,
    input  logic           valid,
    input  logic           first,
    input  logic [511:0]   beat,
    output logic           ready,
    output logic           found,       // `header` is a packet
    output xp_pkg::event_t header,
    input  logic           taken
);
  localparam logic [15:0] PORT = 16'd4791;
  localparam logic [7:0] UDP = 8'd17, WRITE_ONLY = 8'h2A, WRITE_ONLY_WITH_IMM = 8'h2B, CNP = 8'h81;

  // The end of the first beat of a packet over IPv6, from its UDP header on.
  logic         waits;
  logic [191:0] held;
  logic         held_good, held_marked;

  // UDP, BTH, RETH, ImmDt.
  logic [319:0]   h;
  logic [7:0]     opcode;
  logic [15:0]    udp_bytes, header_bytes, around_bytes;
  logic           is_v4, is_v6, v4_good, v6_good, whole, good, marked;
  xp_pkg::event_t next;

  // Bytes on the wire have their most significant byte first.
  function automatic logic [15:0] be16(input logic [15:0] b);
    be16 = {b[7:0], b[15:8]};
  endfunction
  function automatic logic [23:0] be24(input logic [23:0] b);
    be24 = {b[7:0], b[15:8], b[23:16]};
  endfunction
  function automatic logic [31:0] be32(input logic [31:0] b);
    be32 = {b[7:0], b[15:8], b[23:16], b[31:24]};
  endfunction

  always_comb begin
    is_v4 = beat[7:0] == 8'h45;
    is_v6 = beat[7:4] == 4'd6;
    // Length, no fragment, protocol.
    v4_good = is_v4 && be16(beat[16+:16]) == 16'd20 + be16(beat[192+:16])
        && beat[48+:6] == 6'd0 && beat[56+:8] == 8'd0 && beat[72+:8] == UDP && !beat[55];
    v6_good = is_v6 && be16(beat[32+:16]) == be16(beat[352+:16]) && beat[48+:8] == UDP;
    whole = valid && (first ? is_v4 : waits);
    h = first ? beat[479:160] : {beat[127:0], held};
    good = first ? v4_good : held_good;
    marked = first ? beat[9:8] == 2'b11 : held_marked;

    opcode = h[64+:8];
    udp_bytes = be16(h[32+:16]);
    next.kind = xp_pkg::PACKET;
    next.now_ns = now_ns;
    next.now_us = now_us;
    next.qpn = be24(h[104+:24]);
    next.seq = be24(h[136+:24]);
    next.addr = {be32(h[160+:32]), be32(h[192+:32])};
    next.rkey = be32(h[224+:32]);
    next.bytes = be32(h[256+:32]);
    next.imm = be32(h[288+:32]);
    next.deadline = xp_pkg::NEVER;
    next.has_imm = opcode == WRITE_ONLY_WITH_IMM;
    next.is_fragment = opcode == WRITE_ONLY || next.has_imm;
    next.is_notification = opcode == CNP;
    next.is_marked = marked && next.is_fragment;
    header_bytes = next.has_imm ? 16'd32 : next.is_fragment ? 16'd28 : 16'd12;
    // UDP header, headers, ICRC, padding.
    around_bytes = 16'd12 + header_bytes + {14'd0, h[76+:2]};
    next.payload_bytes = udp_bytes - around_bytes;
    good = good && be16(h[16+:16]) == PORT && h[72+:4] == 4'd0 && next.qpn < PAIRS[23:0]
        && udp_bytes >= around_bytes && udp_bytes[1:0] == 2'd0;
    ready = !found || taken;
  end

  always_ff @(posedge clk) begin
    if (ready) begin
      found <= whole && good;
      header <= next;
      if (valid) begin
        waits <= first && is_v6;
        held <= beat[511:320];
        held_good <= v6_good;
        // The traffic class is in the low half of byte 0 and the high half of byte 1.
        held_marked <= beat[13:12] == 2'b11;
      end
    end
    if (rst) begin
      found <= 1'b0;
      waits <= 1'b0;
    end
  end
endmodule
