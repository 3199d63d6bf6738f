/* base/clock.h
 * Time that only goes forward, for deadlines and pauses. Source: CLOCK_MONOTONIC, clock_gettime(2). */
#ifndef SUBLET_BASE_CLOCK_H
#define SUBLET_BASE_CLOCK_H

#include <stdint.h>

#define CLOCK_NS_PER_MS 1000000ull

/* Nanoseconds since some moment of this boot. */
uint64_t clock_now_ns(void);

/* Sleep about @ns nanoseconds; a signal may end it early. */
void clock_sleep_ns(uint64_t ns);

#endif
