// Checks the ICRC of packets, one beat of 64 bytes a cycle: byte i in bits 8 * i and up, from the IP header on. It is
// the CRC-32 of Ethernet over eight bytes of ones and the packet, with ones for the fields that may change on the way
// (IBTA annex A17). A packet is a multiple of 4 bytes. With its own ICRC, an intact one leaves a constant behind.
module xp_icrc (
    input  logic         clk,
    input  logic         rst,
    input  logic         valid,
    input  logic         first,
    input  logic         last,
    input  logic [3:0]   words,    // of the last beat, 4 bytes each, less one
    input  logic [511:0] beat,
    output logic         done,     // two cycles after the last beat
    output logic         intact
);
  localparam logic [31:0] POLYNOMIAL = 32'hEDB8_8320;
  // The register after eight bytes of ones. It is also that after an intact packet, whose ICRC is the complement of the
  // register before it.
  localparam logic [31:0] ONES = 32'hDEBB_20E3;

  // The bits of a beat that bit `at` of the register is the sum of, if the register was 0 before the beat.
  function automatic logic [511:0] summands(input int at);
    logic [31:0] share;
    share = POLYNOMIAL;
    for (int bit_ = 511; bit_ >= 0; bit_--) begin
      summands[bit_] = share[at];
      share = {1'b0, share[31:1]} ^ (share[0] ? POLYNOMIAL : 32'd0);
    end
  endfunction

  // Fields that may change: of IPv4 type of service, time to live and checksum, of IPv6 traffic class, flow label and
  // hop limit, then the checksum of UDP, and congestion in the BTH.
  logic [511:0] fixed;
  logic [3:0]   empty;
  always_comb begin
    fixed = beat;
    if (first && beat[7:4] == 4'd4) begin
      fixed[8+:8] = '1;
      fixed[64+:8] = '1;
      fixed[80+:16] = '1;
      fixed[208+:16] = '1;
      fixed[256+:8] = '1;
    end else if (first) begin
      fixed[0+:4] = '1;
      fixed[8+:24] = '1;
      fixed[56+:8] = '1;
      fixed[368+:16] = '1;
      fixed[416+:8] = '1;
    end
    empty = last ? 4'd15 - words : 4'd0;
  end

  // A short beat comes to the end of 64 bytes: zeros before it change nothing in a register of 0.
  logic [511:0] held;
  logic [3:0]   held_empty;
  logic         held_valid, held_first, held_last;

  // The register is added to the first word.
  logic [31:0]  crc, next;
  logic [511:0] summed;
  always_comb begin
    summed = held;
    for (int word = 0; word < 16; word++)
      if (held_empty == word[3:0]) summed[32*word+:32] = held[32*word+:32] ^ (held_first ? ONES : crc);
    intact = crc == ONES;
  end
  for (genvar at = 0; at < 32; at++) begin : registers
    localparam logic [511:0] SUMMANDS = summands(at);
    assign next[at] = ^(summed & SUMMANDS);
  end

  always_ff @(posedge clk) begin
    held <= fixed << {empty, 5'd0};
    held_empty <= empty;
    held_first <= first;
    held_last <= last;
    held_valid <= valid;
    if (held_valid) crc <= next;
    done <= held_valid && held_last;
    if (rst) begin
      held_valid <= 1'b0;
      done <= 1'b0;
    end
  end
endmodule
