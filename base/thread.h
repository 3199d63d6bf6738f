/* base/thread.h
 * Threads of Sublet's own, and sleeping on a word of memory. Source: futex(2). */
#ifndef SUBLET_BASE_THREAD_H
#define SUBLET_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

#define WAIT_FOR_GOOD UINT64_MAX

/* Start a thread on which all signals are blocked: they are for the program's own. 0, or an errno. */
int thread_start(pthread_t *ret_thread, void *(*body)(void *arg), void *arg);

/* Sleep while *@word is @value: until word_wake, for @ns at most, or for no reason. No cancellation point. Changes errno. */
void word_wait(const unsigned *word, unsigned value, uint64_t ns);
/* Wake all who sleep on it. */
void word_wake(const unsigned *word);

#endif
