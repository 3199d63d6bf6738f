/* base/size.h
 * Byte sizes as people write them: 80GiB, 512MiB, 64k, 1048576. */
#ifndef SUBLET_BASE_SIZE_H
#define SUBLET_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parse @text into bytes. Units B, KiB, MiB, GiB, TiB (powers of 1024; K, M, G, T and KB, MB, GB, TB mean the same here,
 * as GPU users write them), any letter case, decimals allowed ("1.5GiB"). False on anything else, overflow, a sign;
 * then *ret_bytes is untouched. */
bool size_parse(const char *text, uint64_t *ret_bytes);

/* Write @bytes for a person into @buffer ("1.50 GiB", "512 B"); at least 16 bytes of room. Returns @buffer. */
char *size_format(uint64_t bytes, char *buffer, size_t buffer_bytes);

#endif
