/*
 * sdr_mr.h - memory regions. Include sdr.h first.
 */
#ifndef FARWRITE_SDR_MR_H
#define FARWRITE_SDR_MR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Registers memory, so that messages can be sent from it and received into it. Its pages are brought into
 * memory. A peer can write into the buffers of posted receives only.
 *
 * The memory must stay mapped and writable until sdr_mr_dereg succeeds. Memory that
 * is freed before is an error of the program, as with a network card: a packet then changes what has taken
 * its place, or ends the program with SIGSEGV.
 *
 * Returns NULL if the memory is not mapped and writable, or has no bytes.
 */
struct sdr_mr *sdr_mr_reg(struct sdr_context *ctx, void *addr, size_t length, enum sdr_access_flags flags);

/*
 * Ends a registration.
 *
 * Returns SDR_ERROR, and changes nothing, while a receive into the region is posted, or packets of a send
 * from it have not left.
 */
int sdr_mr_dereg(struct sdr_mr *mr);

/* Returns the key that work requests name the region by. */
int sdr_mr_lkey_get(struct sdr_mr *mr, uint32_t *lkey);

/* Returns the same key. Peers do not need it: each posted receive has a key of its own. */
int sdr_mr_rkey_get(struct sdr_mr *mr, uint32_t *rkey);

#ifdef __cplusplus
}
#endif

#endif
