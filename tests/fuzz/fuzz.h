/* tests/fuzz/fuzz.h
 * A fuzz target is one function with libFuzzer's name. It is built twice: by clang with libFuzzer (run.sh), and by the
 * project's compiler with replay.c, which feeds it the files of the corpus. */
#ifndef SUBLET_TESTS_FUZZ_FUZZ_H
#define SUBLET_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#endif
