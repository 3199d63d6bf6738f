/* tools/entry_list.c
 * The two lists, expanded. */
#include "tools/entry_list.h"

#include <string.h>

const struct entry_row entry_rows[] = {
#define WRAP(symbol, base, since, stream, need, group, ...) {#symbol, base, since, #stream, #need, ENTRY_WRAP, #group},
#define GATED(symbol, base, since, stream, need, group, ...)                                                           \
	{#symbol, base, since, #stream, #need, ENTRY_GATED, #group},
#define PASS(symbol, base, since, stream, need, reason, ...)                                                           \
	{#symbol, base, since, #stream, #need, ENTRY_PASS, #reason},
#include "shim/entries.def"
};

const size_t entry_row_count = sizeof(entry_rows) / sizeof(entry_rows[0]);

static const struct {
	enum entry_kind kind;
	const char *token;
	const char *sentence;
} sentences[] = {
#define GROUP(token, sentence) {ENTRY_WRAP, #token, sentence},
#define GATE(token, sentence) {ENTRY_GATED, #token, sentence},
#define REASON(token, sentence) {ENTRY_PASS, #token, sentence},
#include "shim/reasons.def"
};

const struct entry_row *entry_row_find(const char *symbol)
{
	for (size_t i = 0; i < entry_row_count; i++)
		if (strcmp(entry_rows[i].symbol, symbol) == 0)
			return &entry_rows[i];
	return NULL;
}

bool entry_row_required(const struct entry_row *row)
{
	return strcmp(row->need, "REQUIRED") == 0;
}

const char *entry_row_sentence(const struct entry_row *row)
{
	for (size_t i = 0; i < sizeof(sentences) / sizeof(sentences[0]); i++)
		if (sentences[i].kind == row->kind && strcmp(sentences[i].token, row->why) == 0)
			return sentences[i].sentence;
	return "";
}
