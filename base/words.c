/* base/words.c
 * Edit distance on a table of fixed size: no heap, and the cost of a hostile word is bounded. */
#include "base/words.h"

#include <string.h>

enum { WORD_MAX = 32 }; /* longer words are not compared */

static unsigned int min3(unsigned int a, unsigned int b, unsigned int c)
{
	unsigned int least = a < b ? a : b;

	return least < c ? least : c;
}

/* Edits that turn @a into @b: insert, delete, replace, swap of neighbours. */
static unsigned int distance(const char *a, const char *b)
{
	unsigned int d[WORD_MAX + 1][WORD_MAX + 1];
	size_t na = strlen(a), nb = strlen(b);

	if (na > WORD_MAX || nb > WORD_MAX)
		return WORD_MAX;
	for (unsigned int i = 0; i <= na; i++)
		d[i][0] = i;
	for (unsigned int j = 0; j <= nb; j++)
		d[0][j] = j;
	for (unsigned int i = 1; i <= na; i++) {
		for (unsigned int j = 1; j <= nb; j++) {
			unsigned int change = a[i - 1] != b[j - 1];

			d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
				d[i - 2][j - 2] + 1 < d[i][j])
				d[i][j] = d[i - 2][j - 2] + 1;
		}
	}
	return d[na][nb];
}

/* The one word that starts with @word: people shorten. */
static const char *only_longer(const char *word, const char *const *words)
{
	const char *found = NULL;
	size_t length = strlen(word);

	if (length < 2)
		return NULL;
	for (; *words; words++) {
		if (strncmp(*words, word, length) != 0)
			continue;
		if (found)
			return NULL;
		found = *words;
	}
	return found;
}

const char *nearest_word(const char *word, const char *const *words)
{
	const char *const *all = words;
	const char *best = NULL;
	unsigned int best_distance = 3; /* two slips; more is another word */

	for (; *words; words++) {
		unsigned int now = distance(word, *words);

		/* half of a short word changed is no slip either */
		if (now < best_distance && 2 * now <= strlen(*words)) {
			best = *words;
			best_distance = now;
		}
	}
	return best ? best : only_longer(word, all);
}
