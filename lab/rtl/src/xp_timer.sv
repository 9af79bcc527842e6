// The deadline of the active receive of each queue pair, and what looks for those that have come: the queue pairs one
// after the other, in cycles in which nothing else happens. 10,240 free cycles at 250 MHz are 41 us: an idle queue
// pair's receive ends at most so late. A packet looks at the deadline of its queue pair itself, so none is late.
module xp_timer #(
    parameter int PAIRS = 1024,
    parameter int INDEX = $clog2(PAIRS)
) (
    input  logic             clk,
    input  logic             rst,
    input  logic [INDEX-1:0] read_at,
    output logic [63:0]      deadline,
    input  logic             write,
    input  logic [INDEX-1:0] write_at,
    input  logic [63:0]      write_deadline,
    output logic [INDEX-1:0] scan_at,
    input  logic             scanned
);
  xp_ctx #(.WIDTH(64), .PAIRS(PAIRS)) deadlines (
      .clk, .read_at, .entry(deadline), .write, .write_at, .write_entry(write_deadline));

  always_ff @(posedge clk) begin
    if (rst) scan_at <= '0;
    else if (scanned) scan_at <= scan_at == INDEX'(PAIRS - 1) ? '0 : scan_at + 1'b1;
  end
endmodule
