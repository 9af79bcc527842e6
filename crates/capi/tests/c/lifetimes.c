/*
 * What ends, ends for all: calls of other threads that wait for a handle return when it is closed, a child process
 * finds that the handles of its parent do not exist, and signals stay those of the program. The argument is a file
 * with a pre-shared key.
 */
#include "checks.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct farwrite_listener *listener;
static struct farwrite_connection *near, *far;
static struct farwrite_stream *near_stream, *far_stream;
static struct farwrite_qp *near_qp, *far_qp;
static struct farwrite_message *receive;

static void *accept_ends(void *unused)
{
	(void)unused;
	far = farwrite_accept(listener, 20000);
	far_stream = farwrite_stream_accept(far, "stream", 20000);
	far_qp = farwrite_qp_accept(far, "queue pair", 20000);
	return NULL;
}

static void connect_ends(struct farwrite_keys *keys)
{
	pthread_t thread;
	uint32_t port;
	char addr[64];

	listener = farwrite_listen("127.0.0.1:0", keys);
	CHECK(listener);
	WORKS(farwrite_listener_port(listener, &port));
	snprintf(addr, sizeof(addr), "127.0.0.1:%u", port);
	CHECK(pthread_create(&thread, NULL, accept_ends, NULL) == 0);
	near = farwrite_connect(addr, keys, NULL);
	CHECK(near);
	near_stream = farwrite_stream_open(near, "stream", 20000);
	near_qp = farwrite_qp_open(near, "queue pair", 20000);
	pthread_join(thread, NULL);
	CHECK(near_stream && near_qp && far_stream && far_qp);
}

/* Each of these waits without a limit. */
static void *wait_accept(void *unused)
{
	(void)unused;
	CHECK(!farwrite_accept(listener, UINT32_MAX));
	CHECK(farwrite_last_code() == SDR_ERROR);
	return NULL;
}

static void *wait_read(void *unused)
{
	char byte;
	size_t length;

	(void)unused;
	FAILS(farwrite_stream_read(near_stream, &byte, 1, UINT32_MAX, &length));
	return NULL;
}

static void *wait_message(void *unused)
{
	struct farwrite_result result = {.size = sizeof(result)};

	(void)unused;
	WORKS(farwrite_wait(receive, UINT32_MAX, &result));
	CHECK(result.outcome == FARWRITE_FAILED);
	return NULL;
}

static void closing_wakes(void)
{
	void *(*waits[])(void *) = {wait_accept, wait_read, wait_message};
	pthread_t threads[3];
	uint8_t buffer[100];

	WORKS(farwrite_recv(near_qp, buffer, sizeof(buffer), NULL, &receive));
	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, waits[i], NULL) == 0);
	usleep(200000);
	WORKS(farwrite_listener_close(listener));
	WORKS(farwrite_stream_close(near_stream));
	WORKS(farwrite_qp_close(near_qp));
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	WORKS(farwrite_message_close(receive));
}

static void children_have_no_handles(struct farwrite_keys *keys)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		uint32_t port;

		FAILS(farwrite_listener_port(listener, &port));
		CHECK(strstr(farwrite_last_error(), "forked"));
		CHECK(!farwrite_accept(listener, UINT32_MAX));
		FAILS(farwrite_connection_close(near));
		/* It can make its own. */
		listener = farwrite_listen("127.0.0.1:0", keys);
		CHECK(listener);
		WORKS(farwrite_listener_port(listener, &port));
		WORKS(farwrite_listener_close(listener));
		_exit(failures != 0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void ended_connections_say_so(void)
{
	struct farwrite_message *message;
	uint8_t buffer[100];

	WORKS(farwrite_connection_close(near));
	for (int i = 0; i < 100 && farwrite_recv(far_qp, buffer, sizeof(buffer), NULL, &message) == SDR_SUCCESS; i++) {
		WORKS(farwrite_message_close(message));
		usleep(100000);
	}
	FAILS(farwrite_recv(far_qp, buffer, sizeof(buffer), NULL, &message));
	CHECK(strstr(farwrite_last_error(), "the connection is over: the peer has ended it"));
}

int main(int argc, char **argv)
{
	struct farwrite_keys keys = {.size = sizeof(keys), .psk_file = argc == 2 ? argv[1] : NULL};
	sigset_t terminate;
	int signal = 0;

	/* Whatever hangs ends the program. */
	alarm(60);
	connect_ends(&keys);
	/* Threads of the library exist, and would die of this signal. */
	sigemptyset(&terminate);
	sigaddset(&terminate, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &terminate, NULL);
	kill(getpid(), SIGTERM);
	CHECK(sigwait(&terminate, &signal) == 0 && signal == SIGTERM);
	children_have_no_handles(&keys);
	closing_wakes();
	ended_connections_say_so();
	WORKS(farwrite_stream_close(far_stream));
	WORKS(farwrite_qp_close(far_qp));
	WORKS(farwrite_connection_close(far));
	printf("%d failures\n", failures);
	return failures != 0;
}
