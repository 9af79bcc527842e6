/*
 * Descriptors in an event loop, statistics and resets: one thread serves both ends of a connection with poll, and never
 * waits within a call. Only opening is done by a thread of its own, as it waits for the peer. The argument is a file
 * with a pre-shared key.
 */
#include "checks.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* More than the buffers of both ends hold. */
#define BYTES ((size_t)20 << 20)
#define LIMIT_MS 20000

static struct farwrite_listener *listener;
static struct farwrite_connection *near, *far;
static struct farwrite_stream *near_stream, *far_stream;
static struct farwrite_qp *near_qp, *far_qp;

/* Whether a descriptor becomes readable within a time. */
static int readable(int fd, int timeout_ms)
{
	struct pollfd item = {.fd = fd, .events = POLLIN};

	return poll(&item, 1, timeout_ms) == 1 && item.revents == POLLIN;
}

static void *open_stream(void *name)
{
	near_stream = farwrite_stream_open(near, name, LIMIT_MS);
	return NULL;
}

static void *open_qp(void *name)
{
	near_qp = farwrite_qp_open(near, name, LIMIT_MS);
	return NULL;
}

static void connect_ends(struct farwrite_keys *keys)
{
	uint32_t port;
	char addr[64];
	int fd, again;

	listener = farwrite_listen("127.0.0.1:0", keys);
	CHECK(listener);
	WORKS(farwrite_listener_port(listener, &port));
	WORKS(farwrite_listener_fd(listener, &fd));
	CHECK(!readable(fd, 0));
	snprintf(addr, sizeof(addr), "127.0.0.1:%u", port);
	near = farwrite_connect(addr, keys, NULL);
	CHECK(near);
	CHECK(readable(fd, LIMIT_MS));
	far = farwrite_accept(listener, 0);
	CHECK(far);
	CHECK(!readable(fd, 0));
	WORKS(farwrite_listener_fd(listener, &again));
	CHECK(again == fd);
	WORKS(farwrite_listener_close(listener));
	CHECK(fcntl(fd, F_GETFD) == -1);
}

/* The connection is readable until what the peer has opened was accepted. */
static void accept_opened(void *(*open)(void *), char *name)
{
	pthread_t thread;
	int fd;

	WORKS(farwrite_connection_fd(far, &fd));
	CHECK(!readable(fd, 0));
	CHECK(pthread_create(&thread, NULL, open, name) == 0);
	CHECK(readable(fd, LIMIT_MS));
	CHECK(!farwrite_stream_accept(far, "of another name", 0));
	CHECK(farwrite_last_code() == SDR_RETRY && readable(fd, 0));
	if (open == open_qp)
		far_qp = farwrite_qp_accept(far, name, 0);
	else
		far_stream = farwrite_stream_accept(far, name, 0);
	CHECK(!readable(fd, 0));
	pthread_join(thread, NULL);
}

static void one_thread_serves_both_ends(void)
{
	static uint8_t bytes[1 << 16], buffer[1 << 16];
	struct pollfd fds[2] = {{.events = POLLIN}, {.events = POLLIN}};
	size_t written = 0, heard = 0, count;
	int code = SDR_SUCCESS, finished = 0, ended = 0;

	accept_opened(open_stream, "stream");
	CHECK(near_stream && far_stream);
	WORKS(farwrite_stream_write_fd(near_stream, &fds[0].fd));
	WORKS(farwrite_stream_read_fd(far_stream, &fds[1].fd));
	CHECK(readable(fds[0].fd, 0) && !readable(fds[1].fd, 0));
	while (code == SDR_SUCCESS) {
		code = farwrite_stream_write(near_stream, bytes, sizeof(bytes), 0, &count);
		written += code == SDR_SUCCESS ? count : 0;
	}
	CHECK(code == SDR_RETRY && written < BYTES);
	CHECK(readable(fds[1].fd, LIMIT_MS));
	while (!failures && (!finished || !ended)) {
		CHECK(poll(fds, 2, LIMIT_MS) > 0);
		if (fds[0].revents && written < BYTES) {
			/* Nobody else writes. */
			WORKS(farwrite_stream_write(near_stream, bytes, sizeof(bytes), 0, &count));
			written += count;
		} else if (fds[0].revents || (written >= BYTES && !finished)) {
			code = farwrite_stream_finish(near_stream, 0);
			CHECK(code == SDR_SUCCESS || code == SDR_RETRY);
			if (code == SDR_SUCCESS) {
				finished = 1;
				fds[0].fd = -1;
			}
		}
		if (fds[1].revents) {
			WORKS(farwrite_stream_read(far_stream, buffer, sizeof(buffer), 0, &count));
			heard += count;
			ended = count == 0;
		}
	}
	CHECK(heard == written);
}

static void statistics_count(void)
{
	struct farwrite_path_statistics path = {.size = sizeof(path)};
	struct farwrite_transfer_statistics near_side = {.size = sizeof(near_side)}, far_side = {.size = sizeof(far_side)};

	WORKS(farwrite_connection_statistics(near, &path));
	CHECK(path.rtt_ns > 0 && path.rtt_ns < 1000000000 && path.pace_bps > 0);
	CHECK(path.sent_bytes > BYTES && path.sent_packets > BYTES / 65536);
	CHECK(path.delivered_bytes > 0 && path.delivered_bytes <= path.reported_bytes);
	CHECK(path.reported_bytes <= path.sent_bytes);
	WORKS(farwrite_stream_statistics(near_stream, &near_side));
	WORKS(farwrite_stream_statistics(far_stream, &far_side));
	CHECK(near_side.sent_chunks > BYTES / 65536 && near_side.resent_chunks < near_side.sent_chunks);
	CHECK(far_side.received_bytes >= BYTES && far_side.received_packets <= near_side.sent_chunks);
	CHECK(far_side.receive_lost_chunks <= far_side.receive_judged_chunks);
}

static void streams_close(void)
{
	int fd;

	WORKS(farwrite_stream_read_fd(far_stream, &fd));
	WORKS(farwrite_stream_close(far_stream));
	CHECK(fcntl(fd, F_GETFD) == -1);
	WORKS(farwrite_stream_close(near_stream));
}

/* Waits for the stream without a limit. */
static void *wait_read(void *unused)
{
	char byte;
	size_t length;

	(void)unused;
	FAILS(farwrite_stream_read(near_stream, &byte, 1, UINT32_MAX, &length));
	return NULL;
}

static void resets_reach_the_peer(void)
{
	uint8_t byte = 0;
	uint32_t code;
	size_t count;
	pthread_t thread;
	int fds[2];

	accept_opened(open_stream, "given up");
	WORKS(farwrite_stream_read_fd(far_stream, &fds[0]));
	WORKS(farwrite_stream_write_fd(far_stream, &fds[1]));
	CHECK(farwrite_stream_reset_code(far_stream, &code) == SDR_RETRY);
	CHECK(pthread_create(&thread, NULL, wait_read, NULL) == 0);
	WORKS(farwrite_stream_reset(near_stream, 7));
	pthread_join(thread, NULL);
	CHECK(readable(fds[0], LIMIT_MS));
	FAILS(farwrite_stream_read(far_stream, &byte, 1, 0, &count));
	CHECK(strstr(farwrite_last_error(), "the peer has reset the stream, with code 7"));
	WORKS(farwrite_stream_reset_code(far_stream, &code));
	CHECK(code == 7);
	/* The other direction ends a message later. */
	do
		code = farwrite_stream_write(far_stream, &byte, 1, 0, &count);
	while (code == SDR_SUCCESS);
	CHECK(code == SDR_ERROR && strstr(farwrite_last_error(), "with code 7"));
	CHECK(readable(fds[1], 0));
	FAILS(farwrite_stream_write(near_stream, &byte, 1, 0, &count));
	streams_close();
}

static void messages_end(void)
{
	struct farwrite_transfer_statistics statistics = {.size = sizeof(statistics)};
	struct farwrite_message *sent, *received, *open;
	struct farwrite_result result = {.size = sizeof(result)};
	static uint8_t bytes[100000] = {1}, buffer[100000], unused[10];
	int fds[3];

	accept_opened(open_qp, "queue pair");
	CHECK(near_qp && far_qp);
	WORKS(farwrite_recv(far_qp, buffer, sizeof(buffer), NULL, &received));
	WORKS(farwrite_recv(far_qp, unused, sizeof(unused), NULL, &open));
	WORKS(farwrite_message_fd(received, &fds[0]));
	WORKS(farwrite_message_fd(open, &fds[1]));
	CHECK(!readable(fds[0], 0));
	WORKS(farwrite_send(near_qp, bytes, sizeof(bytes), NULL, &sent));
	WORKS(farwrite_message_fd(sent, &fds[2]));
	CHECK(readable(fds[0], LIMIT_MS) && readable(fds[2], LIMIT_MS));
	WORKS(farwrite_wait(received, 0, &result));
	CHECK(result.outcome == FARWRITE_WHOLE && !memcmp(bytes, buffer, sizeof(bytes)));
	WORKS(farwrite_wait(sent, 0, NULL));
	WORKS(farwrite_qp_statistics(far_qp, &statistics));
	CHECK(statistics.received_bytes >= sizeof(bytes));
	/* A message that had ended is readable at once. */
	WORKS(farwrite_message_close(received));
	CHECK(!readable(fds[1], 0));
	WORKS(farwrite_qp_close(far_qp));
	CHECK(readable(fds[1], LIMIT_MS));
	WORKS(farwrite_wait(open, 0, &result));
	CHECK(result.outcome == FARWRITE_FAILED);
	WORKS(farwrite_message_close(open));
	WORKS(farwrite_message_close(sent));
	WORKS(farwrite_qp_close(near_qp));
}

static void the_end_of_a_connection_is_readable(void)
{
	int fd;

	WORKS(farwrite_connection_fd(far, &fd));
	CHECK(!readable(fd, 0));
	WORKS(farwrite_connection_close(near));
	CHECK(readable(fd, LIMIT_MS));
	CHECK(!farwrite_qp_accept(far, NULL, 0) && farwrite_last_code() == SDR_ERROR);
	CHECK(readable(fd, 0));
	WORKS(farwrite_connection_close(far));
	CHECK(fcntl(fd, F_GETFD) == -1);
}

int main(int argc, char **argv)
{
	struct farwrite_keys keys = {.size = sizeof(keys), .psk_file = argc == 2 ? argv[1] : NULL, .omit_icrc = 1};

	/* Whatever hangs ends the program. */
	alarm(100);
	connect_ends(&keys);
	one_thread_serves_both_ends();
	statistics_count();
	streams_close();
	resets_reach_the_peer();
	messages_end();
	the_end_of_a_connection_is_readable();
	printf("%d failures\n", failures);
	return failures != 0;
}
