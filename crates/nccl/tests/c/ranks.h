/* Ranks of a case: processes, what they share, and connections between them. */
#ifndef RANKS_H
#define RANKS_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "net.h"

enum { MOST_RANKS = 4, MOST_WINDOW = 32 };

/* What ranks share, in place of NCCL's bootstrap. */
static struct {
    char handles[MOST_RANKS][HANDLE_BYTES];
    atomic_int has_handle[MOST_RANKS];
    atomic_int at_barrier;
    /* When the rank that is killed has died. */
    _Atomic double died;
} *shared;

static int rank, ranks;
static void *context;
/* The last warning of the plugin. */
static char warning[1024];

static void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fprintf(stderr, "version %d, rank %d: ", net.version, rank);
    vfprintf(stderr, format, values);
    fprintf(stderr, "; last warning: %s\n", warning);
    va_end(values);
    _exit(1);
}

#define CHECK(condition) ((condition) ? (void)0 : fail("line %d: %s", __LINE__, #condition))
#define SUCCEEDS(call) do { int code_ = (call); if (code_ != 0) fail("line %d: %s: %d", __LINE__, #call, code_); } while (0)

__attribute__((format(printf, 5, 6)))
static void log_line(int level, unsigned long subsystems, const char *file, int line, const char *format, ...) {
    va_list values;
    char text[1024];
    (void)subsystems, (void)file, (void)line;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (level == 2) memcpy(warning, text, sizeof text);
    if (getenv("HARNESS_LOG") != NULL) fprintf(stderr, "rank %d, level %d: %s\n", rank, level, text);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void barrier(void) {
    static int rounds;
    atomic_fetch_add(&shared->at_barrier, 1);
    for (rounds++; atomic_load(&shared->at_barrier) < rounds * ranks;) sched_yield();
}

static void run_rank(const char *plugin, int version, void (*body)(void)) {
    const char *other = getenv("HARNESS_OTHER_PSK_FILE");
    if (rank == 1 && other != NULL) CHECK(setenv("FARWRITE_PSK_FILE", other, 1) == 0);
    if (net_load(plugin, version) != 0) fail("%s has no version %d", plugin, version);
    SUCCEEDS(net_init(&context, log_line));
    body();
    SUCCEEDS(net_finalize(context));
}

/* What ranks share: a file that HARNESS_SHARED names, or memory. */
static void share(void) {
    const char *name = getenv("HARNESS_SHARED");
    int file = name == NULL ? -1 : open(name, O_RDWR | O_CREAT, 0600);
    CHECK(name == NULL || (file >= 0 && ftruncate(file, sizeof *shared) == 0));
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0), file, 0);
    CHECK(shared != MAP_FAILED);
}

/* Starts ranks, which run `body`. Returns the number of those that did not succeed; `killed` may be killed. */
static int run_ranks(int count, const char *plugin, int version, void (*body)(void), int killed) {
    pid_t children[MOST_RANKS];
    int failures = 0;
    share();
    ranks = count;
    if (getenv("HARNESS_RANK") != NULL) {
        /* One rank of those that others start, such as on other hosts. */
        rank = atoi(getenv("HARNESS_RANK"));
        run_rank(plugin, version, body);
        return 0;
    }
    for (rank = 0; rank < count; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            run_rank(plugin, version, body);
            exit(0);
        }
    }
    for (int child = 0; child < count; child++) {
        int status = 0;
        while (waitpid(children[child], &status, 0) < 0 && errno == EINTR) {}
        if (status == 0 || (child == killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) continue;
        if (WIFSIGNALED(status)) fprintf(stderr, "rank %d: signal %d\n", child, WTERMSIG(status));
        failures++;
        for (int other = 0; other < count; other++) kill(children[other], SIGKILL);
    }
    return failures;
}

/* Connections of a rank: to the next rank, and from the previous one. */
struct ends { void *listener, *send, *receive; };

/* Both at a time, as NCCL's proxy does: neither call waits. */
static struct ends join_ring(int sends, int receives) {
    struct ends ends = {0};
    char handle[HANDLE_BYTES];
    int next = (rank + 1) % ranks, calls = 0;
    if (receives) {
        SUCCEEDS(net_listen(context, 0, shared->handles[rank], &ends.listener));
        atomic_store(&shared->has_handle[rank], 1);
    }
    if (sends) {
        while (!atomic_load(&shared->has_handle[next])) sched_yield();
        memcpy(handle, shared->handles[next], sizeof handle);
    }
    while ((sends && ends.send == NULL) || (receives && ends.receive == NULL)) {
        double start = now();
        if (sends && ends.send == NULL) SUCCEEDS(net_connect(context, 0, handle, &ends.send));
        if (receives && ends.receive == NULL) SUCCEEDS(net_accept(ends.listener, &ends.receive));
        if (calls++ == 0) CHECK(ends.send == NULL);
        if (now() - start > 2) fail("connect and accept have waited for %.1f s", now() - start);
        sched_yield();
    }
    return ends;
}

static void leave_ring(struct ends ends) {
    if (ends.send != NULL) SUCCEEDS(CALL(close_send, ends.send));
    if (ends.receive != NULL) SUCCEEDS(CALL(close_recv, ends.receive));
    if (ends.listener != NULL) SUCCEEDS(CALL(close_listen, ends.listener));
}

static uint64_t mix(uint64_t number) {
    number += 0x9e3779b97f4a7c15;
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
    number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
    return number ^ (number >> 31);
}

/* The bytes of a message: a word for every eight of them. */
static void fill(char *memory, size_t size, uint64_t number) {
    uint64_t word = mix(number);
    for (size_t at = 0; at < size; at += 8, word += 0x9e3779b97f4a7c15)
        memcpy(memory + at, &word, size - at < 8 ? size - at : 8);
}

static int is_filled(const char *memory, size_t size, uint64_t number) {
    uint64_t word = mix(number);
    for (size_t at = 0; at < size; at += 8, word += 0x9e3779b97f4a7c15)
        if (memcmp(memory + at, &word, size - at < 8 ? size - at : 8) != 0) return 0;
    return 1;
}

/* Messages one way, with several requests open, in one registered buffer as NCCL has it. */
struct flow {
    void *comm, *registered;
    int is_send, window, count, posted, done;
    size_t most;
    size_t (*size_of)(int number);
    char *memory;
    void *requests[MOST_WINDOW];
};

static struct flow start_flow(void *comm, int is_send, int window, int count, size_t most, size_t (*size_of)(int)) {
    struct flow flow = {.comm = comm, .is_send = is_send, .window = window, .count = count, .most = most, .size_of = size_of};
    flow.memory = mmap(NULL, most * (size_t)window, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(flow.memory != MAP_FAILED);
    SUCCEEDS(CALL(reg_mr, comm, flow.memory, most * (size_t)window, PTR_HOST, &flow.registered));
    return flow;
}

/* Returns the first code that is no success. */
static int step_flow(struct flow *flow) {
    while (flow->posted < flow->count && flow->posted - flow->done < flow->window) {
        int slot = flow->posted % flow->window, code;
        char *data = flow->memory + flow->most * (size_t)slot;
        void *request = NULL;
        if (flow->is_send) {
            size_t size = flow->size_of(flow->posted);
            fill(data, size, (uint64_t)flow->posted);
            code = net_isend(flow->comm, data, size, flow->registered, &request);
        } else {
            code = net_irecv(flow->comm, 1, data, flow->most, flow->registered, &request);
        }
        if (code != 0) return code;
        if (request == NULL) break;
        flow->requests[slot] = request;
        flow->posted++;
    }
    while (flow->done < flow->posted) {
        int slot = flow->done % flow->window, is_done = 0, size = -1;
        int code = CALL(test, flow->requests[slot], &is_done, &size);
        if (code != 0) return code;
        if (!is_done) break;
        CHECK((size_t)size == flow->size_of(flow->done));
        if (!flow->is_send) CHECK(is_filled(flow->memory + flow->most * (size_t)slot, (size_t)size, (uint64_t)flow->done));
        flow->done++;
    }
    return 0;
}

static void end_flow(struct flow *flow) {
    SUCCEEDS(CALL(dereg_mr, flow->comm, flow->registered));
    CHECK(munmap(flow->memory, flow->most * (size_t)flow->window) == 0);
}

/* All messages of a rank's flows. */
static void run_flows(struct flow *flows, int count) {
    for (int open = count; open > 0;) {
        open = 0;
        for (int each = 0; each < count; each++) {
            int code = step_flow(&flows[each]);
            if (code != 0) fail("message %d of a flow: %d", flows[each].done, code);
            open += flows[each].done < flows[each].count;
        }
    }
    for (int each = 0; each < count; each++) end_flow(&flows[each]);
}

#endif
