/*
 * exchange.h - how two programs exchange the information of their queue pairs: over a TCP connection.
 * The connection stays open, for what they have to tell each other besides.
 */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <sdr.h>
#include <sdr_mr.h>

static inline void die(const char *what)
{
	fprintf(stderr, "error: %s (FARWRITE_VERBOSE=1 shows the reason)\n", what);
	exit(1);
}

/* Ends the program unless a call has succeeded. */
static inline void check(int code, const char *what)
{
	if (code != SDR_SUCCESS)
		die(what);
}

static inline double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Waits for a client at a TCP port. Port 0 takes a free port, and prints it. */
static inline int serve(int port)
{
	struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	socklen_t length = sizeof(addr);
	int off = 0, on = 1, listener = socket(AF_INET6, SOCK_STREAM, 0), peer;

	setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (listener < 0 || bind(listener, (struct sockaddr *)&addr, length) || listen(listener, 1)) {
		perror("the TCP port");
		exit(1);
	}
	getsockname(listener, (struct sockaddr *)&addr, &length);
	printf("listening at TCP port %d\n", ntohs(addr.sin6_port));
	fflush(stdout);
	peer = accept(listener, NULL, NULL);
	close(listener);
	if (peer < 0) {
		perror("accept");
		exit(1);
	}
	setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return peer;
}

/* Connects to a server. */
static inline int reach(const char *host, int port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found, *at;
	char service[16];
	int peer = -1, on = 1, code;

	snprintf(service, sizeof(service), "%d", port);
	code = getaddrinfo(host, service, &hints, &found);
	if (code) {
		fprintf(stderr, "error: %s: %s\n", host, gai_strerror(code));
		exit(1);
	}
	for (at = found; at && peer < 0; at = at->ai_next) {
		peer = socket(at->ai_family, SOCK_STREAM, 0);
		if (peer >= 0 && connect(peer, at->ai_addr, at->ai_addrlen)) {
			close(peer);
			peer = -1;
		}
	}
	freeaddrinfo(found);
	if (peer < 0) {
		perror(host);
		exit(1);
	}
	setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return peer;
}

static inline void tell(int peer, const void *bytes, size_t length)
{
	const char *at = bytes;

	while (length > 0) {
		ssize_t sent = send(peer, at, length, MSG_NOSIGNAL);

		if (sent <= 0)
			die("the peer has closed the TCP connection");
		at += sent;
		length -= (size_t)sent;
	}
}

static inline void hear(int peer, void *bytes, size_t length)
{
	if (recv(peer, bytes, length, MSG_WAITALL) != (ssize_t)length)
		die("the peer has closed the TCP connection");
}

/* Connects a queue pair to that of the peer, which does the same. */
static inline void connect_qp(struct sdr_qp *qp, int peer)
{
	size_t size;
	void *info;

	check(sdr_qp_info_size_get(qp, &size), "sdr_qp_info_size_get");
	info = malloc(size);
	check(sdr_qp_info_get(qp, info), "sdr_qp_info_get");
	tell(peer, info, size);
	hear(peer, info, size);
	check(sdr_qp_connect(qp, info), "sdr_qp_connect: do both ends have the same options?");
	free(info);
}

#endif
