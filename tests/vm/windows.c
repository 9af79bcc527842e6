/* What it costs to open and close a window: to register its bytes and deregister them, and to bind a type-1 memory
 * window and close it by a bind of length 0, each waited for.
 *
 *     cc -O2 -o windows tests/vm/windows.c -libverbs
 *     ./windows rxe0 1        # the device, and an index of its table of GIDs (`ibv_devinfo -v`)
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LARGEST (16 << 20)
#define NEED(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static struct ibv_context *open_device(const char *name)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    for (int i = 0; list && list[i]; i++)
        if (!strcmp(ibv_get_device_name(list[i]), name))
            return ibv_open_device(list[i]);
    return NULL;
}

/* An unreliable-connected queue pair that is connected to itself. */
static struct ibv_qp *queue_pair(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq, int gid_index)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UC,
        .cap = {.max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    NEED(qp);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND,
    };
    NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = gid_index, .hop_limit = 1}},
    };
    NEED(!ibv_query_gid(context, 1, gid_index, &attr.ah_attr.grh.dgid));
    NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));
    attr.qp_state = IBV_QPS_RTS;
    NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
    return qp;
}

static void bind_window(struct ibv_qp *qp, struct ibv_mw *window, struct ibv_mr *mr, size_t length)
{
    struct ibv_mw_bind request = {
        .send_flags = IBV_SEND_SIGNALED,
        .bind_info = {.mr = mr, .addr = (uintptr_t)mr->addr, .length = length,
                      .mw_access_flags = length ? IBV_ACCESS_REMOTE_WRITE : 0},
    };
    struct ibv_wc completion;
    NEED(!ibv_bind_mw(qp, window, &request));
    while (ibv_poll_cq(qp->send_cq, 1, &completion) == 0)
        ;
    NEED(completion.status == IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
    struct ibv_context *context = argc == 3 ? open_device(argv[1]) : NULL;
    NEED(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 32, NULL, NULL, 0);
    NEED(pd && cq);
    struct ibv_qp *qp = queue_pair(context, pd, cq, atoi(argv[2]));
    char *bytes = aligned_alloc(4096, LARGEST);
    NEED(bytes);
    memset(bytes, 1, LARGEST);
    for (size_t length = 4096; length <= LARGEST; length *= 16) {
        int rounds = length < LARGEST ? 500 : 50;
        int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        double start = now();
        for (int i = 0; i < rounds; i++) {
            struct ibv_mr *mr = ibv_reg_mr(pd, bytes, length, access);
            NEED(mr && !ibv_dereg_mr(mr));
        }
        double registering = (now() - start) / rounds;
        struct ibv_mr *mr = ibv_reg_mr(pd, bytes, length, access | IBV_ACCESS_MW_BIND);
        struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
        NEED(mr && window);
        start = now();
        for (int i = 0; i < rounds; i++) {
            bind_window(qp, window, mr, length);
            bind_window(qp, window, mr, 0);
        }
        double binding = (now() - start) / rounds;
        printf("%9zu bytes: registered %8.1f us, bound %8.1f us, ratio %.2f\n", length, registering * 1e6, binding * 1e6,
               binding / registering);
        NEED(!ibv_dealloc_mw(window) && !ibv_dereg_mr(mr));
    }
    return 0;
}
