/* tools/cmd_check.c
 * `sublet check`: says everything that is wrong with policy files, explains what a policy does with an allocation,
 * prints the JSON Schema of the language. What it says about a file is its result and goes to stdout. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "policy/source/explain.h"
#include "policy/source/source.h"
#include "tools/command.h"
#include "tools/json.h"
#include "tools/policy_json.h"
#include "tools/policy_file.h"

static const char help[] =
	"usage: sublet check [OPTION...] FILE...\n"
	"\n"
	"Checks policy files and says what is wrong with them, where, and what to write instead.\n"
	"\n"
	"options:\n"
	"      --explain FACTS  which rule takes an allocation, why the others do not, and what happens in each phase;\n"
	"                       FACTS are the keys of 'match': 'role=rollout size=464MiB python=llm.py:allocate_kv_cache'\n"
	"      --strict         warnings count as errors\n"
	"      --json           the same as JSON, for programs\n"
	"      --schema         print the JSON Schema of policy files, for editors\n"
	"  -h, --help           this text\n"
	"\n"
	"FILE '-' is the standard input. The status is 0 when all files can be used, 1 when one cannot.\n"
	"\n"
	"environment: none\n"
	"\n"
	"example:\n"
	"  sublet check --explain 'role=rollout size=464MiB' grpo.yaml\n";

struct check_options {
	bool strict, json, schema;
	const char *explain; /* NULL: do not */
};

static void add_summary(const struct policy_source *source, const char *name, struct output *to)
{
	const struct diagnostics *d = &source->diagnostics;
	size_t objects = 0;

	for (size_t i = 0; i < source->tree.objects_count; i++)
		objects += source->tree.objects[i].kind == POLICY_RULE_OBJECT;
	output_add(to, "%s: ", name);
	if (d->errors)
		output_add(to, "%zu error%s", d->errors, d->errors == 1 ? "" : "s");
	else
		output_add(to, "good: %zu role%s, %zu phase%s, %zu object%s", source->tree.roles_count,
			source->tree.roles_count == 1 ? "" : "s", source->tree.phases_count,
			source->tree.phases_count == 1 ? "" : "s", objects, objects == 1 ? "" : "s");
	if (d->warnings)
		output_add(to, ", %zu warning%s", d->warnings, d->warnings == 1 ? "" : "s");
	output_add(to, "\n");
}

/* Where the answer goes: text for people, or one entry for each file. */
struct answer {
	struct output text;
	json_t *files; /* NULL: text is wanted */
};

/* The explanation behind a file's complaints, into @to or *ret_json. */
static enum exit_status add_explanation(struct policy_source *source, const char *name,
	const struct check_options *options, struct output *to, json_t **ret_json)
{
	struct typed_facts facts;
	struct policy policy;
	struct errinfo error;

	if (policy_open(source->block.bytes, source->block.size_bytes, &policy, &error))
		return fail(STATUS_BAD, "sublet bug: the compiled policy does not open: %s", error.text);
	if (typed_facts_parse(&policy, &source->arena, options->explain, &facts, &error))
		return fail(STATUS_USAGE, "'--explain': %s; see 'sublet check -h'", error.text);
	if (options->json)
		*ret_json = policy_json_explain(&policy, name, &facts);
	else
		explain(&policy, name, &facts, to);
	return STATUS_GOOD;
}

static enum exit_status file_status(const struct diagnostics *d, const struct check_options *options)
{
	return d->errors || (options->strict && d->warnings) ? STATUS_BAD : STATUS_GOOD;
}

static enum exit_status add_file_json(
	struct policy_source *source, const char *name, const struct check_options *options, json_t *files)
{
	const struct diagnostics *d = &source->diagnostics;
	enum exit_status status = file_status(d, options), explained = STATUS_GOOD;
	json_t *file = json_object(), *explanation = NULL;
	int failed = json_object_set_new(file, "file", json_text(name));

	failed |= json_object_set_new(file, "good", json_boolean(status == STATUS_GOOD));
	failed |= json_object_set_new(file, "errors", json_integer((json_int_t)d->errors));
	failed |= json_object_set_new(file, "warnings", json_integer((json_int_t)d->warnings));
	failed |= json_object_set_new(file, "diagnostics", policy_json_diagnostics(d, name));
	if (options->explain && source->block.bytes) {
		explained = add_explanation(source, name, options, NULL, &explanation);
		if (!explained)
			failed |= json_object_set_new(file, "explain", explanation);
	}
	if (failed)
		json_decref(file);
	else
		failed = json_array_append_new(files, file);
	if (failed)
		return fail(STATUS_BAD, "out of memory");
	return explained ? explained : status;
}

static enum exit_status add_file_text(struct policy_source *source, const char *name, const char *text, size_t bytes,
	const struct check_options *options, struct output *to)
{
	enum exit_status explained;

	diagnostics_print(&source->diagnostics, name, text, bytes, to);
	if (options->explain && source->block.bytes) {
		explained = add_explanation(source, name, options, to, NULL);
		if (explained)
			return explained;
	} else {
		add_summary(source, name, to);
		if (options->explain)
			output_add(to, "nothing is explained before the errors are mended\n");
	}
	return file_status(&source->diagnostics, options);
}

static enum exit_status check_file(const char *name, const struct check_options *options, struct answer *answer)
{
	struct policy_source source;
	enum exit_status status;
	struct errinfo error;
	size_t bytes = 0;
	char shown[4096], *text;

	if (!policy_file_read(name, &text, &bytes))
		return STATUS_BAD;
	if (strcmp(name, "-") == 0)
		name = "stdin";
	snprintf(shown, sizeof(shown), "%s", name);
	if (!options->json) /* a name may hold what a terminal obeys; JSON has escapes */
		text_make_printable(shown);
	if (policy_source_load(&source, text, bytes, &error))
		status = fail(STATUS_BAD, "cannot check '%s': %s", shown, error.text);
	else if (options->json)
		status = add_file_json(&source, shown, options, answer->files);
	else
		status = add_file_text(&source, shown, text, bytes, options, &answer->text);
	policy_source_release(&source);
	free(text);
	return status;
}

/* Print what there is, and give it back. */
static enum exit_status print_answer(struct answer *answer, enum exit_status status)
{
	if (answer->files)
		return json_print(answer->files) ? STATUS_BAD : status;
	if (answer->text.failed)
		status = fail(STATUS_BAD, "out of memory");
	else
		fwrite(output_get(&answer->text), 1, answer->text.length, stdout);
	output_release(&answer->text);
	return status;
}

static enum exit_status check_files(char **names, int count, const struct check_options *options)
{
	struct answer answer = {.files = options->json ? json_array() : NULL};
	enum exit_status status = STATUS_GOOD;

	if (options->json && !answer.files)
		return fail(STATUS_BAD, "out of memory");
	for (int i = 0; i < count; i++) {
		enum exit_status now = check_file(names[i], options, &answer);

		if (now == STATUS_USAGE) { /* the same words would be wrong for the next file */
			output_release(&answer.text);
			json_decref(answer.files);
			return now;
		}
		if (now != STATUS_GOOD)
			status = now;
	}
	return print_answer(&answer, status);
}

int cmd_check(int argc, char **argv)
{
	static const struct option known[] = {
		{"explain", required_argument, NULL, 'e'},
		{"strict", no_argument, NULL, 's'},
		{"json", no_argument, NULL, 'j'},
		{"schema", no_argument, NULL, 'c'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	struct check_options options = {0};
	int got;

	opterr = 0;
	while ((got = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
		switch (got) {
		case 'e':
			options.explain = optarg;
			break;
		case 's':
			options.strict = true;
			break;
		case 'j':
			options.json = true;
			break;
		case 'c':
			options.schema = true;
			break;
		case 'h':
			fputs(help, stdout);
			return STATUS_GOOD;
		default:
			return fail_option("check", got, argv, known);
		}
	}
	if (options.schema) {
		if (optind < argc || options.explain)
			return fail(STATUS_USAGE, "'--schema' takes no file and no '--explain'; see 'sublet check -h'");
		return json_print(policy_json_schema());
	}
	if (optind == argc)
		return fail(STATUS_USAGE, "no policy file; try 'sublet check grpo.yaml', or see 'sublet check -h'");
	return check_files(argv + optind, argc - optind, &options);
}
