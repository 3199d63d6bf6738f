/* tests/sim/interpose/tls.c
 * A library whose thread-local data must lie in the block that the loader set aside at the start: what others with such
 * data (a preloaded one among them) take of it is missing here. */
static __thread char block[1024] __attribute__((tls_model("initial-exec")));

char *tls_block(void);

__attribute__((visibility("default"))) char *tls_block(void)
{
	return block;
}
