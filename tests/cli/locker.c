/* tests/cli/locker.c
 * As PyTorch allocates: with a mutex of its own held and the GIL released, while another thread has the GIL and waits for that mutex. Called
 * from Python by ctypes: allocate_locked without the GIL, wait_for_lock with it. */
#include <pthread.h>
#include <stdint.h>

#include <cuda.h>

int allocate_locked(size_t bytes, CUdeviceptr *ret_address);
int wait_for_lock(void);
int is_locked(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int locked, waiting; /* atomic */

int allocate_locked(size_t bytes, CUdeviceptr *ret_address)
{
	CUresult result;

	pthread_mutex_lock(&lock);
	__atomic_store_n(&locked, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&waiting, __ATOMIC_ACQUIRE))
		;
	result = cuMemAlloc(ret_address, bytes);
	pthread_mutex_unlock(&lock);
	return (int)result;
}

int is_locked(void)
{
	return __atomic_load_n(&locked, __ATOMIC_ACQUIRE);
}

int wait_for_lock(void)
{
	__atomic_store_n(&waiting, 1, __ATOMIC_RELEASE);
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	return 0;
}
