/* tools/cmd_entries.c
 * `sublet entries`: the table of the driver's entry points, printed from the lists the library is built from. Needs no
 * driver. */
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tools/command.h"
#include "tools/entry_list.h"
#include "tools/json.h"

static const char help[] =
	"usage: sublet entries [OPTION...] [NAME-GLOB]\n"
	"\n"
	"Lists the entry points of the CUDA driver: which Sublet wraps, gates or passes on, and why.\n"
	"\n"
	"options:\n"
	"      --wrapped  only those that Sublet answers itself\n"
	"      --gated    only those that wait while pages move, and are then the driver's own\n"
	"      --passed   only those for which programs get the driver's own\n"
	"      --json     an array of objects\n"
	"  -h, --help     this text\n"
	"\n"
	"NAME-GLOB is matched against the exported symbol and the name cuGetProcAddress knows; quote it.\n"
	"\n"
	"environment: none\n"
	"\n"
	"example:\n"
	"  sublet entries --wrapped 'cuMem*'\n";

struct entries_options {
	bool wrapped, gated, passed, json;
	const char *glob; /* NULL: all */
};

static bool is_wanted(const struct entry_row *entry, const struct entries_options *options)
{
	if ((options->wrapped && entry->kind != ENTRY_WRAP) || (options->gated && entry->kind != ENTRY_GATED) ||
		(options->passed && entry->kind != ENTRY_PASS))
		return false;
	return !options->glob || fnmatch(options->glob, entry->symbol, 0) == 0 ||
	       fnmatch(options->glob, entry->base, 0) == 0;
}

static const char *const kinds[] = {[ENTRY_WRAP] = "wrap", [ENTRY_GATED] = "gated", [ENTRY_PASS] = "pass"};

/* LEGACY -> legacy, PER_THREAD -> per-thread */
static const char *spoken(const char *token, char *text, size_t room)
{
	size_t i;

	for (i = 0; token[i] && i < room - 1; i++) {
		text[i] = token[i] == '_' ? '-' : token[i];
		if (text[i] >= 'A' && text[i] <= 'Z')
			text[i] = (char)(text[i] - 'A' + 'a');
	}
	text[i] = '\0';
	return text;
}

/* 12040 -> 12.4 */
static const char *version(int since, char *text, size_t room)
{
	snprintf(text, room, "%d.%d", since / 1000, since % 1000 / 10);
	return text;
}

static void print_table(const struct entries_options *options)
{
	int symbol_width = 6, base_width = 4;
	char since[16], stream[16], need[16], why[32];

	for (size_t i = 0; i < entry_row_count; i++) {
		if (!is_wanted(&entry_rows[i], options))
			continue;
		if ((int)strlen(entry_rows[i].symbol) > symbol_width)
			symbol_width = (int)strlen(entry_rows[i].symbol);
		if ((int)strlen(entry_rows[i].base) > base_width)
			base_width = (int)strlen(entry_rows[i].base);
	}
	printf("%-*s  %-*s  %-5s  %-10s  %-8s  %-5s  %-13s  %s\n", symbol_width, "symbol", base_width, "base", "since",
		"stream", "need", "what", "group", "because");
	for (size_t i = 0; i < entry_row_count; i++) {
		const struct entry_row *entry = &entry_rows[i];

		if (!is_wanted(entry, options))
			continue;
		printf("%-*s  %-*s  %-5s  %-10s  %-8s  %-5s  %-13s  %s\n", symbol_width, entry->symbol, base_width,
			entry->base, version(entry->since, since, sizeof(since)),
			spoken(entry->stream, stream, sizeof(stream)), spoken(entry->need, need, sizeof(need)),
			kinds[entry->kind], spoken(entry->why, why, sizeof(why)),
			entry_row_sentence(entry));
	}
}

static int print_json(const struct entries_options *options)
{
	char since[16], stream[16], need[16], why[32];
	json_t *list = json_array();
	int failed = !list;

	for (size_t i = 0; !failed && i < entry_row_count; i++) {
		const struct entry_row *entry = &entry_rows[i];

		if (!is_wanted(entry, options))
			continue;
		failed = json_array_append_new(
			list, json_pack("{ss ss ss ss ss ss ss ss}", "symbol", entry->symbol, "base", entry->base,
				      "since", version(entry->since, since, sizeof(since)), "stream",
				      spoken(entry->stream, stream, sizeof(stream)), "need",
				      spoken(entry->need, need, sizeof(need)), "what",
				      kinds[entry->kind], "group",
				      spoken(entry->why, why, sizeof(why)), "because", entry_row_sentence(entry)));
	}
	if (failed) {
		json_decref(list);
		list = NULL;
	}
	return json_print(list);
}

int cmd_entries(int argc, char **argv)
{
	static const struct option known[] = {
		{"wrapped", no_argument, NULL, 'w'},
		{"gated", no_argument, NULL, 'g'},
		{"passed", no_argument, NULL, 'p'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	struct entries_options options = {0};
	size_t wanted = 0;
	int got;

	opterr = 0;
	while ((got = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
		switch (got) {
		case 'w':
			options.wrapped = true;
			break;
		case 'g':
			options.gated = true;
			break;
		case 'p':
			options.passed = true;
			break;
		case 'j':
			options.json = true;
			break;
		case 'h':
			fputs(help, stdout);
			return STATUS_GOOD;
		default:
			return fail_option("entries", got, argv, known);
		}
	}
	if (options.wrapped + options.gated + options.passed > 1)
		return fail(STATUS_USAGE, "'--wrapped', '--gated' and '--passed' together leave nothing; give one of them");
	if (argc - optind > 1)
		return fail(
			STATUS_USAGE, "one pattern at most, not %d; quote it: sublet entries 'cuMem*'", argc - optind);
	options.glob = optind < argc ? argv[optind] : NULL;
	for (size_t i = 0; i < entry_row_count; i++)
		wanted += is_wanted(&entry_rows[i], &options);
	if (!wanted)
		return fail(STATUS_BAD, "no entry point matches '%s'; see 'sublet entries' for all", options.glob);
	if (options.json)
		return print_json(&options);
	print_table(&options);
	return STATUS_GOOD;
}
