/*
 * own_scheme - a reliability scheme of one's own, on the bitmap of sdr.h.
 *
 *   receiver: own_scheme [options] -o FILE            receives a file
 *   sender:   own_scheme [options] -i FILE RECEIVER   sends it
 *
 * The file is cut into messages. The sender streams the chunks of a message. The receiver watches the
 * bitmap. When the bitmap does not change for the time of a round trip, the receiver tells the sender
 * which chunks are missing, over the TCP connection, and the sender sends these again. This is selective
 * repeat with NACKs. When the receiver has all chunks of a message, it tells the sender. The sender
 * answers, and both ends begin the next message.
 *
 * -l 1/N leaves out one of N chunks at first, so that there is something to repair without a lossy path.
 */
#include "exchange.h"

#include <getopt.h>

#define CHUNK_LOG 14
#define CHUNK (1u << CHUNK_LOG)
#define MESSAGE_LOG 20
#define MESSAGE (1u << MESSAGE_LOG)
#define CHUNKS (MESSAGE / CHUNK)

struct end {
	struct sdr_context *ctx;
	struct sdr_qp *qp;
	struct sdr_mr *mr;
	uint32_t lkey;
	uint8_t *memory;
	int peer;
};

/* What the receiver tells the sender about a message. */
struct report {
	uint8_t missing[CHUNKS / 8];
};

static struct end open_end(const char *device, int peer)
{
	struct sdr_dev_attr dev = {.num_channels = 1, .log_max_qps = 0};
	struct sdr_qp_attr attr = {
		.bitmap_chunk_size_log_bytes = CHUNK_LOG,
		.max_in_flight_log_bytes = MESSAGE_LOG,
		.max_log_num_msgs = 2,
		.mtu = SDR_MTU_1024,
		.send_enable = 1,
		.recv_enable = 1,
		.rate_limit = 0,
	};
	struct end end = {.peer = peer, .memory = calloc(1, MESSAGE)};

	end.ctx = sdr_context_create(device, &dev);
	if (!end.ctx)
		die("sdr_context_create");
	end.qp = sdr_qp_create(end.ctx, &attr);
	if (!end.qp)
		die("sdr_qp_create");
	end.mr = sdr_mr_reg(end.ctx, end.memory, MESSAGE, SDR_ACCESS_REMOTE_WRITE);
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
	close(end->peer);
}

/* Receives one message of length bytes. */
static void receive_message(struct end *end, uint32_t length, double round_trip)
{
	uint32_t chunks = (length + CHUNK - 1) / CHUNK, i;
	struct sdr_recv_wr wr = {chunks * CHUNK, end->lkey, (uintptr_t)end->memory};
	struct sdr_recv_handle *recv;
	struct report report;
	double changed = seconds();
	uint32_t before = 0;
	uint8_t heard;
	int code;

	while ((code = sdr_recv_post(end->qp, &wr, &recv)) == SDR_RETRY)
		continue;
	check(code, "sdr_recv_post");
	for (;;) {
		uint32_t there = 0;
		uint8_t *bits;
		size_t bytes;

		check(sdr_recv_bitmap_get(recv, &bits, &bytes), "sdr_recv_bitmap_get");
		memset(&report, 0, sizeof(report));
		for (i = 0; i < chunks; i++) {
			if (__atomic_load_n(&bits[i / 8], __ATOMIC_ACQUIRE) >> i % 8 & 1)
				there++;
			else
				report.missing[i / 8] |= (uint8_t)(1u << i % 8);
		}
		if (there == chunks)
			break;
		if (there != before) {
			before = there;
			changed = seconds();
		} else if (seconds() - changed > round_trip) {
			tell(end->peer, &report, sizeof(report));
			changed = seconds();
		}
	}
	memset(&report, 0, sizeof(report)); /* nothing is missing */
	tell(end->peer, &report, sizeof(report));
	/* The sender may still answer older reports, and needs the message to be open for that. */
	hear(end->peer, &heard, sizeof(heard));
	check(sdr_recv_complete(recv), "sdr_recv_complete");
}

/* Sends a whole chunk: the length of a stream is not known to the receiver before it ends. */
static void send_chunk(struct end *end, struct sdr_send_handle *stream, uint32_t chunk)
{
	struct sdr_send_continue_wr wr = {
		.length = CHUNK,
		.local_addr = (uintptr_t)(end->memory + chunk * CHUNK),
		.lkey = end->lkey,
		.remote_offset = chunk,
	};

	check(sdr_streaming_send_continue(stream, &wr), "sdr_streaming_send_continue");
}

/* Sends one message of length bytes. Returns how many chunks were sent again. */
static uint32_t send_message(struct end *end, uint32_t length, uint32_t left_out)
{
	struct sdr_send_start_wr wr = {.opcode = SDR_WR_WRITE, .imm_value = 0};
	uint32_t chunks = (length + CHUNK - 1) / CHUNK, i, repeats = 0;
	struct sdr_send_handle *stream;
	struct report report;
	int code, completed, is_missing;
	uint8_t heard = 1;

	while ((code = sdr_streaming_send_start(end->qp, &wr, &stream)) == SDR_RETRY)
		continue;
	check(code, "sdr_streaming_send_start");
	for (i = 0; i < chunks; i++) {
		if (!left_out || (uint32_t)rand() % left_out)
			send_chunk(end, stream, i);
	}
	for (;;) {
		hear(end->peer, &report, sizeof(report));
		is_missing = 0;
		for (i = 0; i < chunks; i++) {
			if (report.missing[i / 8] >> i % 8 & 1) {
				send_chunk(end, stream, i);
				is_missing = 1;
				repeats++;
			}
		}
		if (!is_missing)
			break;
	}
	check(sdr_streaming_send_end(stream), "sdr_streaming_send_end");
	tell(end->peer, &heard, sizeof(heard));
	while ((code = sdr_send_poll(stream, &completed, NULL)) == SDR_RETRY)
		continue;
	check(code, "sdr_send_poll");
	return repeats;
}

static int receive_file(struct end *end, FILE *file, double round_trip)
{
	uint64_t bytes = 0;
	uint32_t length;

	for (;;) {
		hear(end->peer, &length, sizeof(length));
		if (!length)
			break;
		if (length > MESSAGE)
			die("the peer announces a message that is too long");
		receive_message(end, length, round_trip);
		if (fwrite(end->memory, 1, length, file) != length)
			die("the file cannot be written");
		bytes += length;
	}
	printf("received %llu bytes\n", (unsigned long long)bytes);
	return fclose(file) != 0;
}

static int send_file(struct end *end, FILE *file, uint32_t left_out)
{
	uint32_t length, repeats = 0;
	uint64_t bytes = 0;

	do {
		length = (uint32_t)fread(end->memory, 1, MESSAGE, file);
		tell(end->peer, &length, sizeof(length));
		if (length)
			repeats += send_message(end, length, left_out);
		bytes += length;
	} while (length);
	printf("sent %llu bytes, %u chunks again\n", (unsigned long long)bytes, repeats);
	fclose(file);
	return 0;
}

int main(int argc, char **argv)
{
	const char *usage = "usage: own_scheme [-d DEVICE] [-p PORT] [-t ROUND_TRIP_SECONDS] -o FILE\n"
			    "       own_scheme [-d DEVICE] [-p PORT] [-l 1/N] -i FILE RECEIVER\n";
	const char *device = NULL, *in = NULL, *out = NULL;
	int port = 18516, c, code;
	uint32_t left_out = 0;
	double round_trip = 0.05;
	struct end end;
	FILE *file;

	while ((c = getopt(argc, argv, "d:p:t:l:i:o:")) != -1) {
		switch (c) {
		case 'd': device = optarg; break;
		case 'p': port = atoi(optarg); break;
		case 't': round_trip = atof(optarg); break;
		case 'l': left_out = strncmp(optarg, "1/", 2) ? 1 : (uint32_t)atoi(optarg + 2); break;
		case 'i': in = optarg; break;
		case 'o': out = optarg; break;
		default: fputs(usage, stderr); return 2;
		}
	}
	if (!in == !out || (in && optind + 1 != argc)) {
		fputs(usage, stderr);
		return 2;
	}
	file = fopen(in ? in : out, in ? "rb" : "wb");
	if (!file) {
		perror(in ? in : out);
		return 1;
	}
	end = open_end(device, in ? reach(argv[optind], port) : serve(port));
	code = in ? send_file(&end, file, left_out) : receive_file(&end, file, round_trip);
	close_end(&end);
	return code;
}
