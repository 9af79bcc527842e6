/*
 * sdr_write_bw - measures how fast messages arrive, in the manner of ib_write_bw.
 *
 *   server: sdr_write_bw [options]          receives
 *   client: sdr_write_bw [options] SERVER   sends
 *
 * Both ends need the same options. A window of messages is in flight: the server posts a receive for
 * each, and posts it again when it is complete. Losses are not repaired. A message that is not whole
 * after the time of -t, counted from its first chunk, counts as lost. The server compares the bytes of
 * the chunks that have arrived.
 */
#include "exchange.h"

#include <getopt.h>

struct options {
	const char *device;
	int port;
	uint32_t size, iterations, mtu_log, chunk_log, window_log, channels, rate_kbps;
	double patience;
	int validate;
};

static const char usage[] =
	"usage: sdr_write_bw [options] [SERVER]\n"
	"  -d DEVICE   udp:ADDRESS[:PORT], udp:INTERFACE or an RDMA device\n"
	"  -p PORT     TCP port of the server; 0: a free one (18515)\n"
	"  -s BYTES    bytes of a message (8388608)\n"
	"  -n COUNT    messages (1000)\n"
	"  -w LOG      log2 of the messages in flight (7)\n"
	"  -c LOG      log2 of the bytes of a chunk (16)\n"
	"  -m LOG      log2 of the bytes of a packet, from 6 to 12 (12)\n"
	"  -q COUNT    channels (1)\n"
	"  -r KBPS     rate limit in kbit/s; 0: none (0)\n"
	"  -t SECONDS  time after which a message counts as lost (1)\n"
	"  -N          do not compare contents\n";

static struct options parse(int argc, char **argv)
{
	struct options o = {NULL, 18515, 8 << 20, 1000, 12, 16, 7, 1, 0, 1, 1};
	int c;

	while ((c = getopt(argc, argv, "d:p:s:n:w:c:m:q:r:t:Nh")) != -1) {
		switch (c) {
		case 'd': o.device = optarg; break;
		case 'p': o.port = atoi(optarg); break;
		case 's': o.size = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'n': o.iterations = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'w': o.window_log = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'c': o.chunk_log = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'm': o.mtu_log = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'q': o.channels = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'r': o.rate_kbps = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 't': o.patience = atof(optarg); break;
		case 'N': o.validate = 0; break;
		default: fputs(usage, stderr); exit(c == 'h' ? 0 : 2);
		}
	}
	if (!o.size || !o.iterations || o.mtu_log < 6 || o.mtu_log > 12 || o.chunk_log > 31 || o.window_log > 15) {
		fputs(usage, stderr);
		exit(2);
	}
	return o;
}

/* Fills the buffer of a slot. Each word of 8 bytes depends on the slot and on its position. */
static void fill(uint64_t *words, size_t count, uint32_t slot)
{
	size_t at;

	for (at = 0; at < count; at++)
		words[at] = (uint64_t)slot << 40 ^ at * 0x9e3779b97f4a7c15u;
}

/* Counts the words of `length` bytes from byte `first` on that differ from those of the slot. */
static size_t wrong_words(const uint8_t *bytes, uint64_t length, uint64_t first, uint32_t slot)
{
	uint64_t at, wrong = 0;

	for (at = first; at < first + length; at += 8) {
		uint64_t word = (uint64_t)slot << 40 ^ at / 8 * 0x9e3779b97f4a7c15u;
		size_t count = first + length - at < 8 ? first + length - at : 8;

		wrong += memcmp(bytes + at, &word, count) != 0;
	}
	return wrong;
}

struct end {
	struct sdr_context *ctx;
	struct sdr_qp *qp;
	struct sdr_mr *mr;
	uint32_t lkey, window;
	uint8_t *memory; /* one buffer of size bytes, in whole words, for each message in flight */
	size_t stride;
};

static struct end open_end(const struct options *o, int peer)
{
	struct sdr_dev_attr dev = {.num_channels = o->channels, .log_max_qps = 0};
	struct sdr_qp_attr attr = {
		.bitmap_chunk_size_log_bytes = o->chunk_log,
		.max_in_flight_log_bytes = o->window_log,
		.max_log_num_msgs = o->window_log,
		.mtu = (enum sdr_mtu)(o->mtu_log - 6),
		.send_enable = 1,
		.recv_enable = 1,
		.rate_limit = o->rate_kbps,
	};
	struct end end = {.window = 1u << o->window_log, .stride = (o->size + 7u) & ~7u};

	while (1ull << attr.max_in_flight_log_bytes < (uint64_t)o->size << o->window_log
		|| attr.max_in_flight_log_bytes < o->chunk_log)
		attr.max_in_flight_log_bytes++;
	end.ctx = sdr_context_create(o->device, &dev);
	if (!end.ctx)
		die("sdr_context_create");
	end.qp = sdr_qp_create(end.ctx, &attr);
	if (!end.qp)
		die("sdr_qp_create");
	end.memory = calloc(end.window, end.stride);
	end.mr = sdr_mr_reg(end.ctx, end.memory, end.window * end.stride, SDR_ACCESS_REMOTE_WRITE);
	if (!end.mr)
		die("sdr_mr_reg");
	check(sdr_mr_lkey_get(end.mr, &end.lkey), "sdr_mr_lkey_get");
	connect_qp(end.qp, peer);
	return end;
}

static void close_end(struct end *end)
{
	check(sdr_qp_destroy(end->qp), "sdr_qp_destroy");
	check(sdr_mr_dereg(end->mr), "sdr_mr_dereg");
	check(sdr_context_destroy(end->ctx), "sdr_context_destroy");
	free(end->memory);
}

static void print_header(void)
{
	printf(" #bytes     #iterations    BW average[Gb/sec]   MsgRate[Mpps]   lost messages\n");
}

static int receive(const struct options *o, int peer)
{
	struct end end = open_end(o, peer);
	struct sdr_recv_handle **recv = calloc(end.window, sizeof(*recv));
	double *since = calloc(end.window, sizeof(*since)), start = 0, took;
	size_t chunk_bytes = (size_t)1 << o->chunk_log, wrong = 0;
	uint32_t chunks = (uint32_t)(((uint64_t)o->size + (1u << o->chunk_log) - 1) >> o->chunk_log);
	uint32_t posted = 0, done = 0, lost = 0;
	uint64_t arrived_bytes = 0;
	char go = 1;

	while (done < o->iterations) {
		uint32_t slot = done % end.window, chunk, count = 0;
		uint8_t *bits;
		size_t bytes;

		while (posted < o->iterations && posted < done + end.window) {
			struct sdr_recv_wr wr = {o->size, end.lkey,
				(uintptr_t)(end.memory + posted % end.window * end.stride)};
			int code = sdr_recv_post(end.qp, &wr, &recv[posted % end.window]);

			if (code == SDR_RETRY && posted > done)
				break;
			if (code != SDR_RETRY)
				check(code, "sdr_recv_post");
			else
				continue;
			since[posted++ % end.window] = 0;
		}
		if (go) { /* the client may start */
			tell(peer, &go, 1);
			go = 0;
		}
		check(sdr_recv_bitmap_get(recv[slot], &bits, &bytes), "sdr_recv_bitmap_get");
		for (chunk = 0; chunk < chunks; chunk++)
			count += __atomic_load_n(&bits[chunk / 8], __ATOMIC_ACQUIRE) >> chunk % 8 & 1;
		if (count && !start)
			start = seconds();
		if (count < chunks) {
			if (start && !since[slot])
				since[slot] = seconds();
			if (!since[slot] || seconds() - since[slot] < o->patience)
				continue;
			lost++;
		}
		for (chunk = 0; chunk < chunks && (o->validate || count < chunks); chunk++) {
			uint64_t first = (uint64_t)chunk << o->chunk_log;
			uint64_t length = o->size - first < chunk_bytes ? o->size - first : chunk_bytes;

			if (!(bits[chunk / 8] >> chunk % 8 & 1))
				continue;
			arrived_bytes += count < chunks ? length : 0;
			if (o->validate)
				wrong += wrong_words(end.memory + slot * end.stride, length, first, slot);
		}
		arrived_bytes += count == chunks ? o->size : 0;
		check(sdr_recv_complete(recv[slot]), "sdr_recv_complete");
		/* The next message of this slot has equal bytes: the old ones must not pass for them. */
		if (o->validate)
			memset(end.memory + slot * end.stride, 0, end.stride);
		done++;
	}
	took = seconds() - start;
	print_header();
	printf(" %-10u %-14u %-20.2f %-15.6f %u\n", o->size, o->iterations,
		(double)arrived_bytes * 8e-9 / took, o->iterations / took * 1e-6, lost);
	if (wrong)
		printf("%zu words of chunks that have arrived are wrong\n", wrong);
	tell(peer, &arrived_bytes, sizeof(arrived_bytes));
	close_end(&end);
	free(recv);
	free(since);
	return wrong != 0;
}

static int transmit(const struct options *o, int peer)
{
	struct end end = open_end(o, peer);
	struct sdr_send_handle **sends = calloc(end.window, sizeof(*sends));
	uint64_t arrived_bytes;
	uint32_t i, posted = 0, complete = 0;
	double start, took;
	char go;

	for (i = 0; i < end.window; i++)
		fill((uint64_t *)(end.memory + i * end.stride), end.stride / 8, i);
	hear(peer, &go, 1);
	start = seconds();
	while (complete < o->iterations) {
		int completed, code;

		if (posted < o->iterations && posted < complete + end.window) {
			struct sdr_send_wr wr = {SDR_WR_WRITE, 0, o->size, end.lkey,
				(uintptr_t)(end.memory + posted % end.window * end.stride), 0};

			code = sdr_send_post(end.qp, &wr, &sends[posted % end.window]);
			if (code == SDR_SUCCESS)
				posted++;
			else if (code != SDR_RETRY)
				die("sdr_send_post");
		}
		if (complete < posted) {
			code = sdr_send_poll(sends[complete % end.window], &completed, NULL);
			if (code == SDR_SUCCESS)
				complete++;
			else if (code != SDR_RETRY)
				die("sdr_send_poll");
		}
	}
	hear(peer, &arrived_bytes, sizeof(arrived_bytes));
	took = seconds() - start;
	print_header();
	printf(" %-10u %-14u %-20.2f %-15.6f -\n", o->size, o->iterations,
		(double)arrived_bytes * 8e-9 / took, o->iterations / took * 1e-6);
	close_end(&end);
	free(sends);
	return 0;
}

int main(int argc, char **argv)
{
	struct options o = parse(argc, argv);
	int is_client = optind < argc;
	int peer = is_client ? reach(argv[optind], o.port) : serve(o.port);
	int code = is_client ? transmit(&o, peer) : receive(&o, peer);

	close(peer);
	return code;
}
