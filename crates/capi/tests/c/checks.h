/* Checks of calls that must work, and of calls that must fail. */
#include <sdr.h>
#include <sdr_mr.h>
#include <farwrite.h>

#include <stdio.h>

static int failures;

#define CHECK(condition)                                                                          \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			fprintf(stderr, "line %d: %s does not hold; last error: %s\n", __LINE__, #condition, \
				farwrite_last_error());                                           \
			failures++;                                                               \
		}                                                                                 \
	} while (0)
#define FAILS(call) CHECK((call) == SDR_ERROR)
#define WORKS(call) CHECK((call) == SDR_SUCCESS)
