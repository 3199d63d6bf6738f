/* base/words.h
 * What a person most likely meant. */
#ifndef SUBLET_BASE_WORDS_H
#define SUBLET_BASE_WORDS_H

/* The word of the NULL-ended list @words that a person most likely meant by @word, NULL when none is near. */
const char *nearest_word(const char *word, const char *const *words);

#endif
