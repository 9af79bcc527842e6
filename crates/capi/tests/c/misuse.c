/*
 * Calls every function of sdr.h and sdr_mr.h with wrong arguments. Each such call must return an error, and
 * correct calls must work before, between and after.
 */
#include "checks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MTU 1024
#define CHUNK 4096
#define SIZE (CHUNK * 5 + 100)

static struct sdr_qp_attr attributes(void)
{
	struct sdr_qp_attr attr = {
		.bitmap_chunk_size_log_bytes = 12,
		.max_in_flight_log_bytes = 16,
		.max_log_num_msgs = 2,
		.mtu = SDR_MTU_1024,
		.send_enable = 1,
		.recv_enable = 1,
	};
	return attr;
}

/* One end: a context with a queue pair and a buffer. */
struct end {
	struct sdr_context *ctx;
	struct sdr_qp *qp;
	struct sdr_mr *mr;
	uint32_t lkey;
	uint8_t *memory;
};

static struct end open_end_with(struct sdr_qp_attr attr, size_t size)
{
	struct end end;
	struct sdr_dev_attr dev = {.num_channels = 1};

	end.ctx = sdr_context_create("udp:127.0.0.1", &dev);
	CHECK(end.ctx);
	end.qp = sdr_qp_create(end.ctx, &attr);
	CHECK(end.qp);
	end.memory = calloc(1, size);
	end.mr = sdr_mr_reg(end.ctx, end.memory, size, SDR_ACCESS_REMOTE_WRITE);
	CHECK(end.mr);
	WORKS(sdr_mr_lkey_get(end.mr, &end.lkey));
	return end;
}

static struct end open_end(void)
{
	return open_end_with(attributes(), SIZE);
}

/* Closes an end whose messages are over. */
static void close_end(struct end *end)
{
	WORKS(sdr_qp_destroy(end->qp));
	WORKS(sdr_mr_dereg(end->mr));
	WORKS(sdr_context_destroy(end->ctx));
	free(end->memory);
}

static void *info_of(struct sdr_qp *qp)
{
	size_t size = 0;
	void *info;

	WORKS(sdr_qp_info_size_get(qp, &size));
	info = calloc(1, size);
	WORKS(sdr_qp_info_get(qp, info));
	return info;
}

static void contexts(void)
{
	struct sdr_dev_attr dev = {.num_channels = 1};
	struct sdr_context *ctx, *copy;
	struct sdr_qp_attr attr = attributes();
	struct sdr_qp *qp;

	CHECK(!sdr_context_create("udp:127.0.0.1", NULL));
	CHECK(!sdr_context_create("udp:", &dev));
	CHECK(!sdr_context_create("udp:999.0.0.1", &dev));
	CHECK(!sdr_context_create("udp:192.0.2.77", &dev)); /* no interface has it */
	CHECK(!sdr_context_create("udp:nonesuch0", &dev));
	setenv("FARWRITE_DEVICE", "mlx5_0", 1);
	CHECK(!sdr_context_create("mlx5_1", &dev));
	setenv("FARWRITE_PSK_FILE", "/nonesuch", 1);
	CHECK(!sdr_context_create("udp:127.0.0.1", &dev));
	unsetenv("FARWRITE_PSK_FILE");

	/* The names of other devices, and none, take FARWRITE_DEVICE. */
	setenv("FARWRITE_DEVICE", "udp:lo", 1);
	ctx = sdr_context_create("mlx5_0", &dev);
	CHECK(ctx);
	unsetenv("FARWRITE_DEVICE");

	FAILS(sdr_context_destroy(NULL));
	FAILS(sdr_context_destroy((struct sdr_context *)1));
	FAILS(sdr_context_destroy((struct sdr_context *)&dev));
	FAILS(sdr_context_destroy((struct sdr_context *)UINTPTR_MAX));
	qp = sdr_qp_create(ctx, &attr);
	CHECK(qp);
	FAILS(sdr_context_destroy(ctx)); /* it has a queue pair */
	FAILS(sdr_context_destroy((struct sdr_context *)qp));
	FAILS(sdr_qp_destroy(NULL));
	FAILS(sdr_qp_destroy((struct sdr_qp *)ctx));
	WORKS(sdr_qp_destroy(qp));
	FAILS(sdr_qp_destroy(qp));
	copy = ctx;
	WORKS(sdr_context_destroy(ctx));
	FAILS(sdr_context_destroy(copy));
	CHECK(!sdr_qp_create(copy, &attr));
	CHECK(!sdr_mr_reg(copy, &dev, sizeof(dev), SDR_ACCESS_REMOTE_WRITE));
}

static void attributes_of_queue_pairs(struct sdr_context *ctx)
{
	struct sdr_qp_attr attr = attributes();
	char *chosen = getenv("FARWRITE_MTU");

	CHECK(!sdr_qp_create(NULL, &attr));
	CHECK(!sdr_qp_create(ctx, NULL));
	attr.bitmap_chunk_size_log_bytes = 9; /* less than a packet */
	CHECK(!sdr_qp_create(ctx, &attr));
	attr.bitmap_chunk_size_log_bytes = UINT32_MAX;
	CHECK(!sdr_qp_create(ctx, &attr));
	attr = attributes();
	attr.max_in_flight_log_bytes = 11; /* less than a chunk */
	CHECK(!sdr_qp_create(ctx, &attr));
	attr.max_in_flight_log_bytes = SIZE_MAX;
	CHECK(!sdr_qp_create(ctx, &attr));
	attr = attributes();
	attr.max_log_num_msgs = 16;
	CHECK(!sdr_qp_create(ctx, &attr));
	attr.max_log_num_msgs = UINT32_MAX;
	CHECK(!sdr_qp_create(ctx, &attr));
	attr = attributes();
	memset(&attr.mtu, 0x7f, sizeof(attr.mtu));
	CHECK(!sdr_qp_create(ctx, &attr));
	attr = attributes();
	setenv("SDR_QP_NUM_GENERATIONS", "many", 1);
	CHECK(!sdr_qp_create(ctx, &attr));
	unsetenv("SDR_QP_NUM_GENERATIONS");
	setenv("FARWRITE_DEADLINE_MS", "soon", 1);
	CHECK(!sdr_qp_create(ctx, &attr));
	unsetenv("FARWRITE_DEADLINE_MS");
	chosen = chosen ? strdup(chosen) : NULL;
	setenv("FARWRITE_MTU", "1000", 1);
	CHECK(!sdr_qp_create(ctx, &attr));
	if (chosen)
		setenv("FARWRITE_MTU", chosen, 1);
	else
		unsetenv("FARWRITE_MTU");
	free(chosen);
}

static void regions(struct end *end)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *map = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t key;
	struct sdr_mr *mr;

	CHECK(!sdr_mr_reg(NULL, map, page, SDR_ACCESS_REMOTE_WRITE));
	CHECK(!sdr_mr_reg(end->ctx, NULL, page, SDR_ACCESS_REMOTE_WRITE));
	CHECK(!sdr_mr_reg(end->ctx, map, 0, SDR_ACCESS_REMOTE_WRITE));
	CHECK(!sdr_mr_reg(end->ctx, map, SIZE_MAX, SDR_ACCESS_REMOTE_WRITE));
	CHECK(!sdr_mr_reg(end->ctx, map, page, (enum sdr_access_flags)1));
	/* Memory with a hole, and memory that cannot be written. */
	CHECK(munmap(map + page, page) == 0);
	CHECK(!sdr_mr_reg(end->ctx, map, 3 * page, SDR_ACCESS_REMOTE_WRITE));
	CHECK(mprotect(map, page, PROT_READ) == 0);
	CHECK(!sdr_mr_reg(end->ctx, map, page, SDR_ACCESS_REMOTE_WRITE));
	mr = sdr_mr_reg(end->ctx, map + 2 * page + 1, page - 1, SDR_ACCESS_REMOTE_WRITE);
	CHECK(mr);
	FAILS(sdr_mr_lkey_get(NULL, &key));
	FAILS(sdr_mr_lkey_get(mr, NULL));
	FAILS(sdr_mr_rkey_get(NULL, &key));
	FAILS(sdr_mr_rkey_get(mr, NULL));
	WORKS(sdr_mr_rkey_get(mr, &key));
	FAILS(sdr_mr_dereg(NULL));
	FAILS(sdr_mr_dereg((struct sdr_mr *)end->qp));
	WORKS(sdr_mr_dereg(mr));
	FAILS(sdr_mr_dereg(mr));
	FAILS(sdr_mr_lkey_get(mr, &key));
	munmap(map, page);
	munmap(map + 2 * page, page);
}

static void connecting(struct end *a, struct end *b)
{
	size_t size = 0;
	struct sdr_qp_attr attr = attributes();
	struct sdr_qp *other;
	struct sdr_send_wr wr = {.length = 10, .lkey = a->lkey, .local_addr = (uintptr_t)a->memory};
	struct sdr_send_handle *send;
	uint8_t *info_a, *info_b, *blob;
	unsigned int i;

	FAILS(sdr_qp_info_size_get(NULL, &size));
	FAILS(sdr_qp_info_size_get(a->qp, NULL));
	FAILS(sdr_qp_info_get(NULL, &size));
	FAILS(sdr_qp_info_get(a->qp, NULL));
	WORKS(sdr_qp_info_size_get(a->qp, &size));
	info_a = info_of(a->qp);
	info_b = info_of(b->qp);
	FAILS(sdr_qp_connect(NULL, info_b));
	FAILS(sdr_qp_connect(a->qp, NULL));
	FAILS(sdr_send_post(a->qp, &wr, &send)); /* it is not connected */

	/* Blobs of any bytes. */
	blob = malloc(size);
	srand(1);
	for (i = 0; i < 300; i++) {
		memcpy(blob, info_b, size);
		if (i < 30)
			memset(blob, (int)i * 9, size);
		else
			blob[i < 200 ? i - 30 : (unsigned int)rand() % 300] ^= (uint8_t)(1 + rand() % 255);
		(void)sdr_qp_connect(a->qp, blob);
		/* Some changes are in values that any queue pair may have: start again. */
		WORKS(sdr_qp_destroy(a->qp));
		a->qp = sdr_qp_create(a->ctx, &attr);
	}
	free(blob);
	free(info_a);
	info_a = info_of(a->qp);
	attr.bitmap_chunk_size_log_bytes = 13;
	other = sdr_qp_create(a->ctx, &attr);
	FAILS(sdr_qp_connect(other, info_b)); /* other attributes */
	WORKS(sdr_qp_destroy(other));
	WORKS(sdr_qp_connect(a->qp, info_b));
	FAILS(sdr_qp_connect(a->qp, info_b)); /* twice */
	WORKS(sdr_qp_connect(b->qp, info_a));
	free(info_a);
	free(info_b);
}

static struct sdr_recv_handle *post(struct end *end, uint32_t length)
{
	struct sdr_recv_wr wr = {
		.max_length = length, .lkey = end->lkey, .address = (uintptr_t)end->memory};
	struct sdr_recv_handle *recv = NULL;
	int code;

	/* The slot of an older message is free once its offer has come. */
	while ((code = sdr_recv_post(end->qp, &wr, &recv)) == SDR_RETRY)
		usleep(1000);
	WORKS(code);
	return recv;
}

static void receives(struct end *a, struct end *b)
{
	struct sdr_recv_wr wr = {
		.max_length = SIZE, .lkey = b->lkey, .address = (uintptr_t)b->memory};
	struct sdr_recv_handle *recv[4], *more;
	struct sdr_qp_attr attr = attributes();
	struct sdr_qp *deaf;
	uint8_t *bitmap;
	uint64_t packets;
	size_t bytes;
	uint32_t imm;
	int i;

	FAILS(sdr_recv_post(NULL, &wr, &more));
	FAILS(sdr_recv_post(b->qp, NULL, &more));
	FAILS(sdr_recv_post(b->qp, &wr, NULL));
	wr.lkey++;
	FAILS(sdr_recv_post(b->qp, &wr, &more));
	wr.lkey = a->lkey == b->lkey ? 0 : a->lkey; /* a key of another context */
	FAILS(sdr_recv_post(b->qp, &wr, &more));
	wr.lkey = b->lkey;
	wr.address++; /* ends behind the region */
	FAILS(sdr_recv_post(b->qp, &wr, &more));
	wr.address -= 2;
	FAILS(sdr_recv_post(b->qp, &wr, &more));
	wr.address = UINT64_MAX;
	FAILS(sdr_recv_post(b->qp, &wr, &more));
	wr.address = (uintptr_t)b->memory;
	wr.max_length = UINT32_MAX;
	FAILS(sdr_recv_post(b->qp, &wr, &more));
	attr.recv_enable = 0;
	deaf = sdr_qp_create(b->ctx, &attr);
	wr.max_length = 10;
	FAILS(sdr_recv_post(deaf, &wr, &more));
	WORKS(sdr_qp_destroy(deaf));
	FAILS(sdr_recv_post(deaf, &wr, &more));

	for (i = 0; i < 4; i++)
		recv[i] = post(b, SIZE);
	CHECK(sdr_recv_post(b->qp, &wr, &more) == SDR_RETRY); /* all slots are taken */
	FAILS(sdr_mr_dereg(b->mr)); /* it has open receives */
	FAILS(sdr_recv_bitmap_get(NULL, &bitmap, &bytes));
	FAILS(sdr_recv_bitmap_get(recv[0], NULL, &bytes));
	FAILS(sdr_recv_bitmap_get(recv[0], &bitmap, NULL));
	WORKS(sdr_recv_bitmap_get(recv[0], &bitmap, &bytes));
	CHECK(bytes == 1 && *bitmap == 0);
	FAILS(sdr_recv_bitmap_chunk_expand(NULL, 0, &packets));
	FAILS(sdr_recv_bitmap_chunk_expand(recv[0], 6, &packets));
	FAILS(sdr_recv_bitmap_chunk_expand(recv[0], UINT32_MAX, &packets));
	FAILS(sdr_recv_bitmap_chunk_expand(recv[0], 0, NULL));
	WORKS(sdr_recv_bitmap_chunk_expand(recv[0], 5, &packets));
	CHECK(packets == 0);
	FAILS(sdr_recv_imm_get(NULL, &imm));
	FAILS(sdr_recv_imm_get(recv[0], NULL));
	CHECK(sdr_recv_imm_get(recv[0], &imm) == SDR_RETRY);
	FAILS(sdr_recv_complete(NULL));
	FAILS(sdr_recv_complete((struct sdr_recv_handle *)b->qp));
	for (i = 0; i < 4; i++) {
		WORKS(sdr_recv_complete(recv[i]));
		FAILS(sdr_recv_complete(recv[i])); /* twice */
		FAILS(sdr_recv_bitmap_get(recv[i], &bitmap, &bytes));
		FAILS(sdr_recv_bitmap_chunk_expand(recv[i], 0, &packets));
		FAILS(sdr_recv_imm_get(recv[i], &imm));
	}
	CHECK(*bitmap == 0); /* it stays readable */
}

/* Polls until a send is complete, by what the call returns. */
static int poll_send(struct sdr_send_handle *send)
{
	struct sdr_send_status status = {.flags = 99};
	int completed, code;

	do {
		completed = 99;
		code = sdr_send_poll(send, &completed, &status);
		CHECK(completed == (code == SDR_SUCCESS));
	} while (code == SDR_RETRY);
	return code;
}

/* Polls until a send is complete, by nothing but *completed, as the program of the paper's authors does. */
static void poll_completed(struct sdr_send_handle *send)
{
	int completed = 0;

	while (!completed)
		(void)sdr_send_poll(send, &completed, NULL);
}

/* A send whose packets have left needs its region no longer, while its receive is open. Its short last
 * packet arrives whole, also if it is fewer packets on the wire than the others (FARWRITE_MTU). */
static void departed(struct end *a, struct end *b)
{
	static uint8_t bytes[1500];
	struct sdr_mr *mr = sdr_mr_reg(a->ctx, bytes, sizeof(bytes), SDR_ACCESS_REMOTE_WRITE);
	struct sdr_send_wr wr = {.length = sizeof(bytes), .local_addr = (uintptr_t)bytes};
	struct sdr_recv_handle *recv = post(b, SIZE);
	struct sdr_send_handle *send;
	uint64_t packets;
	int code;

	WORKS(sdr_mr_lkey_get(mr, &wr.lkey));
	while ((code = sdr_send_post(a->qp, &wr, &send)) == SDR_RETRY)
		usleep(1000);
	WORKS(code);
	WORKS(poll_send(send));
	WORKS(sdr_mr_dereg(mr));
	do
		WORKS(sdr_recv_bitmap_chunk_expand(recv, 0, &packets));
	while (packets != 3);
	WORKS(sdr_recv_complete(recv));
}

static void sends(struct end *a, struct end *b)
{
	struct sdr_send_wr wr = {
		.length = SIZE, .lkey = a->lkey, .local_addr = (uintptr_t)a->memory};
	struct sdr_send_start_wr start = {.opcode = SDR_WR_WRITE};
	struct sdr_send_continue_wr chunks = {
		.length = CHUNK, .lkey = a->lkey, .local_addr = (uintptr_t)a->memory};
	struct sdr_qp_attr attr = attributes();
	struct sdr_send_handle *send, *stream;
	struct sdr_recv_handle *recv;
	struct sdr_qp *mute;
	uint8_t *bitmap;
	size_t bytes;
	int completed, i;

	/* The receives that were completed take the first four messages. */
	for (i = 0; i < 4; i++) {
		wr.length = 100;
		while ((completed = sdr_send_post(a->qp, &wr, &send)) == SDR_RETRY)
			usleep(1000);
		WORKS(completed);
		WORKS(poll_send(send));
	}
	wr.length = SIZE;
	FAILS(sdr_send_post(NULL, &wr, &send));
	FAILS(sdr_send_post(a->qp, NULL, &send));
	FAILS(sdr_send_post(a->qp, &wr, NULL));
	memset(&wr.opcode, 0x55, sizeof(wr.opcode));
	FAILS(sdr_send_post(a->qp, &wr, &send));
	wr.opcode = SDR_WR_WRITE;
	wr.lkey ^= 0x100;
	FAILS(sdr_send_post(a->qp, &wr, &send));
	wr.lkey ^= 0x100;
	wr.local_addr++;
	FAILS(sdr_send_post(a->qp, &wr, &send));
	wr.local_addr--;
	wr.remote_offset = 12; /* beyond the longest message */
	FAILS(sdr_send_post(a->qp, &wr, &send));
	wr.remote_offset = UINT64_MAX;
	FAILS(sdr_send_post(a->qp, &wr, &send));
	wr.remote_offset = 1;
	wr.length = 0;
	FAILS(sdr_send_post(a->qp, &wr, &send));
	wr.remote_offset = 1; /* one packet has no room for an immediate, unless it is the first */
	wr.length = 10;
	wr.opcode = SDR_WR_WRITE_WITH_IMM;
	FAILS(sdr_send_post(a->qp, &wr, &send));
	attr.send_enable = 0;
	mute = sdr_qp_create(a->ctx, &attr);
	wr.remote_offset = 0;
	wr.opcode = SDR_WR_WRITE;
	FAILS(sdr_send_post(mute, &wr, &send));
	CHECK(strstr(farwrite_last_error(), "send_enable = 0"));
	FAILS(sdr_streaming_send_start(mute, &start, &stream));
	CHECK(strstr(farwrite_last_error(), "send_enable = 0"));
	WORKS(sdr_qp_destroy(mute));

	FAILS(sdr_streaming_send_start(NULL, &start, &stream));
	FAILS(sdr_streaming_send_start(a->qp, NULL, &stream));
	FAILS(sdr_streaming_send_start(a->qp, &start, NULL));
	memset(&start.opcode, 0x55, sizeof(start.opcode));
	FAILS(sdr_streaming_send_start(a->qp, &start, &stream));
	start.opcode = SDR_WR_WRITE;
	recv = post(b, SIZE);
	while ((completed = sdr_streaming_send_start(a->qp, &start, &stream)) == SDR_RETRY)
		usleep(1000);
	WORKS(completed);
	FAILS(sdr_streaming_send_continue(NULL, &chunks));
	FAILS(sdr_streaming_send_continue(stream, NULL));
	FAILS(sdr_streaming_send_continue(send, &chunks)); /* no stream */
	chunks.length = 0;
	FAILS(sdr_streaming_send_continue(stream, &chunks));
	chunks.length = SIZE + 1;
	FAILS(sdr_streaming_send_continue(stream, &chunks));
	chunks.length = CHUNK;
	chunks.lkey ^= 0x100;
	FAILS(sdr_streaming_send_continue(stream, &chunks));
	chunks.lkey ^= 0x100;
	chunks.remote_offset = UINT64_MAX;
	FAILS(sdr_streaming_send_continue(stream, &chunks));
	chunks.remote_offset = 16;
	FAILS(sdr_streaming_send_continue(stream, &chunks));
	chunks.remote_offset = 1;
	WORKS(sdr_streaming_send_continue(stream, &chunks));
	chunks.remote_offset = 0;
	WORKS(sdr_streaming_send_continue(stream, &chunks));
	FAILS(sdr_send_poll(NULL, &completed, NULL));
	FAILS(sdr_send_poll(stream, NULL, NULL));
	completed = 99;
	CHECK(sdr_send_poll(stream, &completed, NULL) == SDR_RETRY); /* it was not ended */
	CHECK(!completed);
	FAILS(sdr_streaming_send_end(NULL));
	FAILS(sdr_streaming_send_end(send));
	WORKS(sdr_streaming_send_end(stream));
	FAILS(sdr_streaming_send_end(stream));
	FAILS(sdr_streaming_send_continue(stream, &chunks));
	WORKS(poll_send(stream));
	WORKS(poll_send(stream)); /* again */
	do
		WORKS(sdr_recv_bitmap_get(recv, &bitmap, &bytes));
	while (__atomic_load_n(bitmap, __ATOMIC_ACQUIRE) != 3);
	CHECK(!memcmp(b->memory, a->memory, CHUNK));
	WORKS(sdr_recv_complete(recv));

	/* While a message waits for its buffer, its region is needed. */
	wr = (struct sdr_send_wr){
		.length = SIZE, .lkey = a->lkey, .local_addr = (uintptr_t)a->memory};
	while ((completed = sdr_send_post(a->qp, &wr, &send)) == SDR_RETRY)
		usleep(1000);
	WORKS(completed);
	FAILS(sdr_mr_dereg(a->mr));
	completed = 99;
	CHECK(sdr_send_poll(send, &completed, NULL) == SDR_RETRY);
	CHECK(!completed);
	recv = post(b, SIZE);
	poll_completed(send);
	WORKS(poll_send(send));
	WORKS(sdr_recv_complete(recv));

	departed(a, b);

	/* A message goes to where it is sent. */
	recv = post(b, SIZE);
	a->memory[99] = 7;
	wr = (struct sdr_send_wr){
		.length = 100, .lkey = a->lkey, .local_addr = (uintptr_t)a->memory, .remote_offset = 2};
	while ((completed = sdr_send_post(a->qp, &wr, &send)) == SDR_RETRY)
		usleep(1000);
	WORKS(completed);
	WORKS(poll_send(send));
	do
		WORKS(sdr_recv_bitmap_get(recv, &bitmap, &bytes));
	while (__atomic_load_n(bitmap, __ATOMIC_ACQUIRE) != 1 << 2);
	CHECK(!memcmp(b->memory + 2 * CHUNK, a->memory, 100));
	WORKS(sdr_recv_complete(recv));

	/* A message that is longer than its buffer fails. */
	recv = post(b, 100);
	wr = (struct sdr_send_wr){
		.length = 200, .lkey = a->lkey, .local_addr = (uintptr_t)a->memory};
	while ((completed = sdr_send_post(a->qp, &wr, &send)) == SDR_RETRY)
		usleep(1000);
	FAILS(poll_send(send));
	FAILS(poll_send(send));
	(void)sdr_recv_complete(recv);
}

/* The packets of a chunk that has more than 64 of them. */
static void wide_chunks(void)
{
	enum { WIDE = 128 * MTU, LENGTH = 69 * MTU - 500 };
	struct sdr_qp_attr attr = attributes();
	uint64_t packets[3] = {0, 0, 0x5555};
	struct sdr_send_wr wr = {.length = LENGTH};
	struct sdr_recv_handle *recv;
	struct sdr_send_handle *send;
	struct end a, b;
	void *info_a, *info_b;

	attr.bitmap_chunk_size_log_bytes = 17;
	attr.max_in_flight_log_bytes = 17;
	a = open_end_with(attr, WIDE);
	b = open_end_with(attr, WIDE);
	info_a = info_of(a.qp);
	info_b = info_of(b.qp);
	WORKS(sdr_qp_connect(a.qp, info_b));
	WORKS(sdr_qp_connect(b.qp, info_a));
	free(info_a);
	free(info_b);
	recv = post(&b, WIDE);
	wr.lkey = a.lkey;
	wr.local_addr = (uintptr_t)a.memory;
	WORKS(sdr_send_post(a.qp, &wr, &send));
	poll_completed(send);
	do
		WORKS(sdr_recv_bitmap_chunk_expand(recv, 0, packets));
	while (packets[0] != UINT64_MAX || packets[1] != 0x1f);
	CHECK(packets[2] == 0x5555);
	WORKS(sdr_recv_complete(recv));
	close_end(&a);
	close_end(&b);
}

/* FARWRITE_DEADLINE_MS ends a message whose peer does nothing. */
static void vanished_peer(void)
{
	struct end a, b;
	struct sdr_send_wr wr = {.length = 10};
	struct sdr_send_handle *send;
	void *info;

	setenv("FARWRITE_DEADLINE_MS", "200", 1);
	a = open_end();
	b = open_end();
	unsetenv("FARWRITE_DEADLINE_MS");
	info = info_of(b.qp);
	WORKS(sdr_qp_connect(a.qp, info));
	free(info);
	wr.lkey = a.lkey;
	wr.local_addr = (uintptr_t)a.memory;
	WORKS(sdr_send_post(a.qp, &wr, &send)); /* b posts no receive */
	FAILS(poll_send(send));
	WORKS(sdr_mr_dereg(a.mr)); /* the message needs it no longer */
	WORKS(sdr_qp_destroy(a.qp));
	WORKS(sdr_context_destroy(a.ctx));
	free(a.memory);
	close_end(&b);
}

static struct sdr_recv_handle *shared;
static int saw_error;

static void *use_shared(void *unused)
{
	uint64_t packets;
	time_t end = time(NULL) + 10;

	while (!__atomic_load_n(&saw_error, __ATOMIC_RELAXED) && time(NULL) < end) {
		if (sdr_recv_bitmap_chunk_expand(shared, 0, &packets) == SDR_ERROR)
			__atomic_store_n(&saw_error, 1, __ATOMIC_RELAXED);
	}
	return unused;
}

/* Two threads on one handle: calls that overlap are errors, and nothing else breaks. */
static void threads(struct end *b)
{
	pthread_t other;
	uint8_t *bitmap;
	size_t bytes;

	shared = post(b, SIZE);
	CHECK(pthread_create(&other, NULL, use_shared, NULL) == 0);
	use_shared(NULL);
	pthread_join(other, NULL);
	CHECK(saw_error || sysconf(_SC_NPROCESSORS_ONLN) == 1);
	WORKS(sdr_recv_bitmap_get(shared, &bitmap, &bytes));
	WORKS(sdr_recv_complete(shared));
}

int main(void)
{
	struct end a, b;
	struct sdr_recv_handle *left;
	uint8_t *bitmap;
	size_t bytes;

	CHECK(strlen(farwrite_version()) > 0);
	CHECK(farwrite_last_error());
	contexts();
	a = open_end();
	b = open_end();
	attributes_of_queue_pairs(a.ctx);
	regions(&a);
	connecting(&a, &b);
	receives(&a, &b);
	sends(&a, &b);
	threads(&b);
	vanished_peer();
	wide_chunks();

	left = post(&b, SIZE);
	WORKS(sdr_recv_bitmap_get(left, &bitmap, &bytes));
	WORKS(sdr_qp_destroy(b.qp));
	FAILS(sdr_recv_bitmap_get(left, &bitmap, &bytes)); /* gone with its queue pair */
	FAILS(sdr_recv_complete(left));
	FAILS(sdr_context_destroy(b.ctx)); /* it has a region */
	WORKS(sdr_mr_dereg(b.mr));
	WORKS(sdr_context_destroy(b.ctx));
	close_end(&a);
	free(b.memory);
	printf("%d failures\n", failures);
	return failures != 0;
}
