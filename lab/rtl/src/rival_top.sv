// One queue pair of each rival with a register for its state, for the test: a packet a cycle. The test looks up the
// region. `held_rkey` tells it the key of the message that is coming in.
module rival_top (
    input  logic        clk,
    input  logic        create,
    input  logic        is_irn,
    input  logic [3:0]  mtu_log,
    input  logic        valid,
    input  logic        first,
    input  logic        last,
    input  logic        ack_request,
    input  logic        has_imm,
    input  logic [23:0] seq,           // with `create`, of the first packet
    input  logic [63:0] addr,
    input  logic [31:0] rkey,
    input  logic [31:0] bytes,
    input  logic [31:0] imm,
    input  logic [15:0] payload_bytes,
    input  logic        region_valid,
    input  logic [31:0] region_key,
    input  logic [63:0] region_addr,
    input  logic [63:0] region_length,
    output logic [31:0] held_rkey,
    output logic        answers,
    output logic        is_nak,
    output logic        is_error,
    output logic [23:0] psn,
    output logic [23:0] msn,
    output logic [23:0] after_gap,
    output logic        writes,
    output logic [63:0] write_addr,
    output logic [15:0] write_bytes,
    output logic [63:0] first_lanes,
    output logic [63:0] last_lanes,
    output logic [7:0]  ends,
    output logic [31:0] end_imm
);
  xp_pkg::event_t     ev;
  xp_pkg::region_t    region;
  xp_pkg::write_t     gbn_write, irn_write, write;
  rival_pkg::answer_t gbn_answer, irn_answer, answer;
  rival_pkg::gbn_t    gbn, next_gbn;
  rival_pkg::irn_t    irn, next_irn;
  logic               gbn_ends;
  logic [7:0]         irn_ends;

  gbn_rx gbn_half (
      .ev, .first, .last, .ack_request, .old(gbn), .region, .next(next_gbn), .answer(gbn_answer), .write(gbn_write),
      .ends(gbn_ends), .imm(end_imm));
  irn_rx irn_half (
      .ev, .first, .last, .old(irn), .region, .next(next_irn), .answer(irn_answer), .write(irn_write),
      .ends(irn_ends));

  always_comb begin
    ev = '0;
    ev.kind = xp_pkg::PACKET;
    {ev.seq, ev.addr, ev.rkey, ev.bytes, ev.imm} = {seq, addr, rkey, bytes, imm};
    {ev.payload_bytes, ev.has_imm} = {payload_bytes, has_imm};
    region = {region_valid, region_key, region_addr, region_length};
    held_rkey = gbn.rkey;

    answer = is_irn ? irn_answer : gbn_answer;
    write = is_irn ? irn_write : gbn_write;
    ends = is_irn ? irn_ends : {7'd0, gbn_ends};
    {answers, is_nak, is_error, psn, msn, after_gap} = answer;
    {writes, write_addr, write_bytes, first_lanes, last_lanes} = write;
  end

  always_ff @(posedge clk) begin
    if (create) begin
      gbn <= '0;
      irn <= '0;
      {gbn.mtu_log, gbn.psn, irn.mtu_log, irn.psn} <= {mtu_log, seq, mtu_log, seq};
    end else if (valid) begin
      gbn <= next_gbn;
      irn <= next_irn;
    end
  end
endmodule
