// What holds for every sequence of events, for one queue pair and one region that Z3 chooses. Z3 chooses all inputs,
// and the contexts and deadlines in the RAMs before them.
module xp_formal #(
    parameter int PAIRS = 4,
    parameter int KEYS = 4
) (
    input logic                        clk,
    input logic [63:0]                 now_ns,
    input logic [31:0]                 now_us,
    input logic [31:0]                 line_kbps,
    input logic                        rx_valid,
    input logic                        rx_first,
    input logic [511:0]                rx_beat,
    input logic [3:0]                  host_kind,
    input logic [23:0]                 host_qpn,
    input logic [23:0]                 host_seq,
    input logic [63:0]                 host_addr,
    input logic [31:0]                 host_rkey,
    input logic [31:0]                 host_bytes,
    input logic [31:0]                 host_imm,
    input logic [63:0]                 host_deadline,
    input logic                        scans
);
  (* anyconst *) logic [1:0]                     pair;
  (* anyconst *) xp_pkg::region_t                region;

  logic                     rst, rx_ready, host_ready;
  xp_pkg::kind_t            kind;
  logic [1:0]               qpn;
  logic [415:0]             bits;
  logic [63:0]              deadline;
  xp_pkg::outcome_t         outcome;
  xp_pkg::write_t           write;
  xp_pkg::received_t        received;
  xp_pkg::transmit_t        transmit;
  xp_pkg::sent_t            sent;
  xp_pkg::context_t         now;

  // The only region that is ever registered; so a write under another key is out of bounds.
  xp_nic #(.PAIRS(PAIRS), .KEYS(KEYS)) nic (
      .clk, .rst, .now_ns, .now_us, .line_kbps, .rx_valid, .rx_first, .rx_beat, .rx_ready, .host_kind, .host_qpn,
      .host_seq, .host_addr, .host_rkey, .host_bytes, .host_imm, .host_deadline, .host_ready, .scans,
      .region_write(!started), .region_entry(region), .out_kind(kind), .out_qpn(qpn), .out_context(bits),
      .out_deadline(deadline), .out_outcome(outcome), .out_write(write), .out_received(received),
      .out_transmit(transmit), .out_sent(sent));

  // All registers begin with zeros, as after a reset.
  logic started = 1'b0;
  always_ff @(posedge clk) started <= 1'b1;
  assign rst = 1'b0;
  assign now = bits;

  // What the events so far have left, by what came out.
  logic        known = 1'b0;
  logic [23:0] next;          // the next message that has to end
  logic [7:0]  posted;
  logic [31:0] counted;       // bytes placed since that one began
  logic [8:0]  ended;
  logic [32:0] total;
  logic        is_mine;
  always_comb begin
    is_mine = kind != xp_pkg::NOTHING && qpn == pair && kind != xp_pkg::CREATE;
    ended = {1'b0, received.preempted} + {8'd0, received.timed_out} + {8'd0, received.last};
    total = {1'b0, counted} + (write.valid ? {17'd0, write.bytes} : 33'd0);
  end

  always_ff @(posedge clk) begin
    // The first event says where the queue pair stands.
    if (kind != xp_pkg::NOTHING && qpn == pair) begin
      known <= 1'b1;
      next <= now.expected;
      posted <= now.receives;
      counted <= now.placed_bytes;
    end

    if (is_mine && known) begin
      // No completion is lost or doubled: those of an event begin where the last one ended, in order, each for a
      // receive that was posted.
      assert (received.first == next);
      assert (now.expected == next + {15'd0, ended});
      assert (ended <= {1'b0, posted});
      assert (now.receives + ended[7:0] == posted + {7'd0, kind == xp_pkg::POST_RECEIVE && posted != 8'hFF});
      // Bytes counted are bytes placed, in the completions and in the context together, unless the count is full.
      if (ended == 9'd0) assert (now.placed_bytes == (total[32] ? 32'hFFFF_FFFF : total[31:0]));
      if (ended != 9'd0) assert (received.first_bytes == counted || (received.last && ended == 9'd1));
      if (received.last && ended == 9'd1) assert (received.last_bytes == (total[32] ? 32'hFFFF_FFFF : total[31:0]));
      if (received.last && ended != 9'd1) assert (received.last_bytes == (write.valid ? {16'd0, write.bytes} : 32'd0));
      if (received.last) assert (now.placed_bytes == 32'd0);
      if (ended != 9'd0 && !received.last)
        assert (now.placed_bytes == (write.valid ? {16'd0, write.bytes} : 32'd0));
    end
    if (kind != xp_pkg::PACKET && kind != xp_pkg::NOTHING) assert (!write.valid);
    // No write leaves the region.
    if (kind == xp_pkg::PACKET && write.valid) begin
      assert (region.valid);
      assert (write.addr >= region.addr);
      assert ({1'b0, write.addr - region.addr} + {49'd0, write.bytes} <= {1'b0, region.length});
    end
  end
endmodule
