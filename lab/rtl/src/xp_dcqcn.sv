// DCQCN's reaction point, bit for bit that of crates/rc/src/xp/dcqcn.rs with the parameters of the paper. One queue
// pair at a time, one step a cycle, one multiplier. A packet takes 45 cycles, of which 40 divide. A notification
// takes at most 4,500, if alpha falls to 0; a timer takes one for each step of increase that is due.
module xp_dcqcn (
    input  logic           clk,
    input  logic           rst,
    input  logic [31:0]    line_kbps,
    input  logic           start,
    input  logic           is_sent,           // a packet of `bytes` leaves
    input  logic           is_notification,   // a congestion notification came; else the timer is looked at
    input  logic [15:0]    bytes,
    input  logic [63:0]    now_ns,
    input  logic [31:0]    now_us,
    input  xp_pkg::dcqcn_t old,
    output logic           busy,
    output logic           done,              // until `taken`
    output xp_pkg::dcqcn_t after,
    input  logic           taken
);
  localparam logic [31:0] ONE = 32'h8000_0000, PERIOD_US = 32'd55;
  localparam logic [31:0] ADDITIVE_KBPS = 32'd40_000, HYPER_KBPS = 32'd400_000, LEAST_KBPS = 32'd10_000;
  localparam logic [24:0] BYTE_COUNTER = 25'd10_000_000;
  localparam logic [2:0] FAST_STEPS = 3'd5;
  localparam int G_SHIFT = 8;

  typedef enum logic [3:0] {
    IDLE, TIMER, MULTIPLY, DIVIDE, PACE, COUNT, PERIODS, CUT, SHARE, DONE
  } state_t;
  state_t      state;
  xp_pkg::dcqcn_t d;
  logic           job_sent, job_notification;
  logic [15:0]    job_bytes;
  logic [63:0]    job_ns;
  logic [31:0]    job_us, elapsed_us;
  logic [24:0]    sent;
  logic [63:0]    product;
  logic [31:0]    factor;
  logic [39:0]    dividend;           // and the quotient, from below
  logic [31:0]    remainder;
  logic [5:0]     bits;

  // One step of increase.
  logic [2:0]  most, least;
  logic [32:0] raised;
  logic [31:0] target, rate, gap;
  always_comb begin
    most = d.counters.timer_steps > d.counters.byte_steps ? d.counters.timer_steps : d.counters.byte_steps;
    least = d.counters.timer_steps > d.counters.byte_steps ? d.counters.byte_steps : d.counters.timer_steps;
    raised = {1'b0, d.target_kbps};
    if (least > FAST_STEPS) raised = raised + {1'b0, HYPER_KBPS};
    else if (most >= FAST_STEPS) raised = raised + {1'b0, ADDITIVE_KBPS};
    target = raised > {1'b0, line_kbps} ? line_kbps : raised[31:0];
    // Rounded up, so that the rate reaches the target.
    gap = target - d.rate_kbps;
    rate = d.rate_kbps + {1'b0, gap[31:1]} + {31'd0, gap[0]};
  end

  // One step of the division, the next time to send, a cut, and alpha.
  logic [32:0] partial, difference;
  logic [63:0] paced_ns, busy_ns;
  logic [64:0] next_ns;
  logic [31:0] slowest, cut, lowered, raised_alpha;
  logic        timer_is_over;
  logic [31:0] over_us;
  always_comb begin
    partial = {remainder, dividend[39]};
    difference = partial - {1'b0, d.rate_kbps};
    paced_ns = {d.next_send_high, d.next_send_low};
    if (paced_ns < job_ns) paced_ns = job_ns;
    busy_ns = {24'd0, dividend} + {63'd0, remainder != 32'd0};
    next_ns = {1'b0, paced_ns} + {1'b0, busy_ns};
    slowest = line_kbps < LEAST_KBPS ? line_kbps : LEAST_KBPS;
    cut = d.rate_kbps - product[63:32];
    lowered = d.alpha - (d.alpha >> G_SHIFT);
    raised_alpha = lowered + (ONE >> G_SHIFT);
    over_us = job_us - d.increase_us;
    timer_is_over = d.counters.runs && !over_us[31];
    factor = job_sent ? 32'd8_000_000 : d.alpha;
    busy = state != IDLE;
    done = state == DONE;
    after = d;
  end

  always_ff @(posedge clk) begin
    product <= {32'd0, job_sent ? {16'd0, job_bytes} : d.rate_kbps} * {32'd0, factor};
    case (state)
      IDLE:
      if (start) begin
        state <= TIMER;
        d <= old;
        {job_sent, job_notification, job_bytes} <= {is_sent, is_notification, bytes};
        {job_ns, job_us} <= {now_ns, now_us};
      end
      TIMER:
      if (timer_is_over) begin
        d.target_kbps <= target;
        d.rate_kbps <= rate;
        if (d.counters.timer_steps != 3'd7) d.counters.timer_steps <= d.counters.timer_steps + 3'd1;
        if (rate >= line_kbps) d.counters.runs <= 1'b0;
        d.increase_us <= d.increase_us + PERIOD_US;
      end else begin
        state <= job_sent ? MULTIPLY : job_notification ? PERIODS : DONE;
        // The periods begin with the first notification.
        elapsed_us <= d.counters.notified ? job_us - d.period_us : 32'd0;
      end
      MULTIPLY: begin
        dividend <= product[39:0];
        remainder <= 32'd0;
        bits <= 6'd40;
        state <= DIVIDE;
      end
      DIVIDE: begin
        remainder <= difference[32] ? partial[31:0] : difference[31:0];
        dividend <= {dividend[38:0], !difference[32]};
        bits <= bits - 6'd1;
        if (bits == 6'd1) state <= PACE;
      end
      PACE: begin
        {d.next_send_high, d.next_send_low} <= next_ns[64] ? xp_pkg::NEVER : next_ns[63:0];
        sent <= {1'b0, d.counters.bytes} + {9'd0, job_bytes};
        state <= COUNT;
      end
      COUNT:
      if (sent >= BYTE_COUNTER) begin
        sent <= sent - BYTE_COUNTER;
        if (d.rate_kbps < line_kbps) begin
          d.target_kbps <= target;
          d.rate_kbps <= rate;
          if (d.counters.byte_steps != 3'd7) d.counters.byte_steps <= d.counters.byte_steps + 3'd1;
        end
      end else begin
        d.counters.bytes <= sent[23:0];
        state <= DONE;
      end
      PERIODS:
      if (elapsed_us >= PERIOD_US && d.alpha != 32'd0) begin
        elapsed_us <= elapsed_us - PERIOD_US;
        d.alpha <= d.alpha - (d.alpha < 32'd256 ? 32'd1 : d.alpha >> G_SHIFT);
      end else state <= CUT;
      // The product of the rate and alpha is there in the next cycle.
      CUT: state <= SHARE;
      SHARE: begin
        d.target_kbps <= d.rate_kbps;
        d.rate_kbps <= cut < slowest ? slowest : cut;
        d.alpha <= raised_alpha > ONE ? ONE : raised_alpha;
        d.period_us <= job_us;
        d.increase_us <= job_us + PERIOD_US;
        d.counters <= {1'b1, 1'b1, 30'd0};
        state <= DONE;
      end
      default: if (taken) state <= IDLE;
    endcase
    if (rst) state <= IDLE;
  end
endmodule
