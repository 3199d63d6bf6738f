/* policy/source/document.c
 * libyaml's events into nodes. Depth, size and texts are bounded, so that a hostile file costs what it is long. */
#include "policy/source/document.h"

#include <string.h>
#include <strings.h>
#include <yaml.h>

#define YAML_TAGS "tag:yaml.org,2002:"

struct reading {
	yaml_parser_t parser;
	struct diagnostics *diagnostics;
	struct arena *arena;
	const char *source;
	size_t bytes;
};

static struct where where_of(yaml_mark_t start, yaml_mark_t end)
{
	struct where where = {(uint32_t)start.line + 1, (uint32_t)start.column + 1, 1};

	/* over several lines: the first character stands for all */
	if (end.line == start.line && end.column > start.column)
		where.length = (uint32_t)(end.column - start.column);
	return where;
}

/* Line and column of byte @offset, for errors that libyaml gives as an offset only. */
static struct where where_of_byte(const struct reading *reading, size_t offset)
{
	struct where where = {1, 1, 1};

	for (size_t i = 0; i < offset && i < reading->bytes;) {
		size_t length = utf8_length(reading->source + i, reading->bytes - i);

		size_t end = utf8_break(reading->source + i, reading->bytes - i);

		if (end) {
			where.line++;
			where.column = 1;
			i += end;
			continue;
		}
		where.column++;
		i += length ? length : 1;
	}
	return where;
}

/* What libyaml says, where people say it otherwise. */
static const char *syntax_fix(const char *problem, char at)
{
	if (at == '\t')
		return "; indent with spaces, YAML does not take tabs";
	if (strstr(problem, "comment or line break"))
		return "; put a value that starts with '>' or '|' in quotes";
	if (strstr(problem, "incompatible YAML document") || strstr(problem, "YAML directive"))
		return "; leave out the line with '%YAML'";
	if (strstr(problem, "<document start>"))
		return "; leave out what follows '...', a file holds one policy";
	if (strstr(problem, "cannot start any token"))
		return "; put the value in quotes";
	if (strstr(problem, "could not find expected ':'"))
		return "; write 'key: value', with a space behind the colon";
	if (strstr(problem, "mapping values are not allowed"))
		return "; put a value that holds ': ' in quotes, or check the indentation";
	if (strstr(problem, "did not find expected key") || strstr(problem, "did not find expected '-'"))
		return "; check the indentation of this line and the one before";
	if (strstr(problem, "',' or"))
		return "; close the bracket";
	if (strstr(problem, "unexpected end of stream"))
		return "; close the quote";
	if (strstr(problem, "undefined alias") || strstr(problem, "alphabetic or numeric"))
		return "; put a pattern that starts with '*' in quotes";
	return "";
}

static void complain_syntax(struct reading *reading)
{
	const yaml_parser_t *parser = &reading->parser;
	struct where where;
	const char *problem = parser->problem ? parser->problem : "cannot be read";
	size_t offset;

	if (parser->error == YAML_MEMORY_ERROR) {
		reading->arena->failed = true;
		return;
	}
	if (parser->error == YAML_READER_ERROR) {
		where = where_of_byte(reading, parser->problem_offset);
		complain(reading->diagnostics, MESSAGE_SYNTAX, where,
			"%s; write the file in UTF-8 without control characters", problem);
		return;
	}
	where = where_of(parser->problem_mark, parser->problem_mark);
	offset = parser->problem_mark.index;
	complain(reading->diagnostics, MESSAGE_SYNTAX, where, "%s%s", problem,
		syntax_fix(problem, offset < reading->bytes ? reading->source[offset] : '\0'));
	if (parser->context && parser->context_mark.line != parser->problem_mark.line)
		remark(reading->diagnostics, where_of(parser->context_mark, parser->context_mark), "%s",
			parser->context);
}

static struct node *node_new(struct reading *reading, enum node_kind kind, const yaml_event_t *event)
{
	struct node *node = arena_new(reading->arena, 1, sizeof(*node));

	if (node) {
		node->kind = kind;
		node->where = where_of(event->start_mark, event->end_mark);
	}
	return node;
}

static void node_append(struct node *parent, struct node *child)
{
	if (parent->last)
		parent->last->next = child;
	else
		parent->first = child;
	parent->last = child;
	parent->count++;
}

/* Anchors and tags are said once each and ignored, so that the rest of the file is checked too. */
static void refuse_extras(
	struct reading *reading, const yaml_event_t *event, const yaml_char_t *anchor, const yaml_char_t *tag)
{
	struct where where = where_of(event->start_mark, event->start_mark);

	if (anchor)
		complain(reading->diagnostics, MESSAGE_ALIAS, where,
			"anchors are not part of the policy language; leave out '&%s' and write the value where it is needed",
			anchor);
	if (tag && strcmp((const char *)tag, "!") != 0) {
		/* libyaml writes them out; people write '!!int' */
		bool is_short = strncmp((const char *)tag, YAML_TAGS, sizeof(YAML_TAGS) - 1) == 0;

		complain(reading->diagnostics, MESSAGE_ALIAS, where,
			"tags are not part of the policy language; leave out '%s%s'", is_short ? "!!" : "",
			(const char *)tag + (is_short ? sizeof(YAML_TAGS) - 1 : 0));
	}
}

static struct node *scalar_node(struct reading *reading, const yaml_event_t *event)
{
	const char *text = (const char *)event->data.scalar.value;
	size_t length = event->data.scalar.length;
	struct node *node = node_new(reading, NODE_SCALAR, event);

	refuse_extras(reading, event, event->data.scalar.anchor, event->data.scalar.tag);
	if (!node)
		return NULL;
	if (length > DOCUMENT_TEXT_MAX) {
		complain(reading->diagnostics, MESSAGE_TOO_LARGE, node->where,
			"a text of %zu bytes; at most %d are taken", length, DOCUMENT_TEXT_MAX);
		length = 0;
		node->is_refused = true;
	} else if (memchr(text, '\0', length)) {
		complain(reading->diagnostics, MESSAGE_VALUE, node->where,
			"a text with a zero byte; leave out the '\\0'");
		length = 0;
		node->is_refused = true;
	}
	node->text = arena_copy(reading->arena, text, length);
	node->is_quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	return node->text ? node : NULL;
}

/* The node that @event begins. A list or mapping is returned empty. */
static struct node *node_of(struct reading *reading, const yaml_event_t *event)
{
	struct node *node;

	switch ((int)event->type) {
	case YAML_SCALAR_EVENT:
		return scalar_node(reading, event);
	case YAML_SEQUENCE_START_EVENT:
		node = node_new(reading, NODE_LIST, event);
		refuse_extras(reading, event, event->data.sequence_start.anchor, event->data.sequence_start.tag);
		break;
	case YAML_MAPPING_START_EVENT:
		node = node_new(reading, NODE_MAP, event);
		refuse_extras(reading, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
		break;
	default: /* an alias, or what cannot stand here */
		node = node_new(reading, NODE_SCALAR, event);
		if (node) {
			node->text = "";
			node->is_refused = true;
		}
		complain(reading->diagnostics, MESSAGE_ALIAS, where_of(event->start_mark, event->end_mark),
			"aliases are not part of the policy language; write the value, and put a pattern that starts with '*' in quotes");
	}
	/* a block collection has no width of its own at its start */
	if (node && node->kind != NODE_SCALAR)
		node->where.length = 1;
	return node;
}

struct level {
	struct node *node;
	struct node *key; /* of a mapping: read, its value is not */
};

/* Hang @node into the innermost open collection. False when the file cannot be gone on with. */
static bool place_node(struct reading *reading, struct level *level, struct node *node)
{
	if (level->node->kind == NODE_MAP && !level->key) {
		if (node->kind != NODE_SCALAR) {
			complain(reading->diagnostics, MESSAGE_TYPE, node->where,
				"a list or mapping cannot be a key; write a word");
			return false;
		}
		level->key = node;
		return true;
	}
	node->key = level->key;
	level->key = NULL;
	node_append(level->node, node);
	return true;
}

static bool read_event(
	struct reading *reading, const yaml_event_t *event, struct level *levels, int *depth, struct node **root)
{
	struct node *node;

	if (event->type == YAML_SEQUENCE_END_EVENT || event->type == YAML_MAPPING_END_EVENT) {
		(*depth)--;
		return true;
	}
	node = node_of(reading, event);
	if (!node)
		return false;
	if (!*root)
		*root = node;
	else if (*depth > 0 && !place_node(reading, &levels[*depth - 1], node))
		return false;
	if (node->kind == NODE_SCALAR)
		return true;
	if (*depth == DOCUMENT_DEPTH_MAX) {
		complain(reading->diagnostics, MESSAGE_TOO_LARGE, node->where,
			"nested %d deep; a policy needs 6 levels at most", DOCUMENT_DEPTH_MAX + 1);
		return false;
	}
	levels[(*depth)++] = (struct level){.node = node};
	return true;
}

static struct node *read_events(struct reading *reading)
{
	struct level levels[DOCUMENT_DEPTH_MAX];
	struct node *root = NULL;
	int depth = 0, documents = 0;
	bool more = true;

	while (more) {
		yaml_event_t event;

		if (!yaml_parser_parse(&reading->parser, &event)) {
			complain_syntax(reading);
			return NULL;
		}
		switch ((int)event.type) {
		case YAML_STREAM_END_EVENT:
			more = false;
			break;
		case YAML_STREAM_START_EVENT:
		case YAML_DOCUMENT_END_EVENT:
			break;
		case YAML_DOCUMENT_START_EVENT:
			if (documents++) {
				complain(reading->diagnostics, MESSAGE_SECOND_DOCUMENT,
					where_of(event.start_mark, event.end_mark),
					"a second document starts here; a file holds one policy, give each its own file");
				more = false;
			}
			break;
		default:
			if (!read_event(reading, &event, levels, &depth, &root)) {
				yaml_event_delete(&event);
				return NULL;
			}
		}
		yaml_event_delete(&event);
	}
	return root;
}

struct node *document_read(const char *source, size_t bytes, struct diagnostics *diagnostics)
{
	struct reading reading = {
		.diagnostics = diagnostics, .arena = diagnostics->arena, .source = source, .bytes = bytes};
	struct node *root;

	if (bytes > DOCUMENT_BYTES_MAX) {
		complain(diagnostics, MESSAGE_TOO_LARGE, NOWHERE, "the file has %zu bytes; at most %d are read", bytes,
			DOCUMENT_BYTES_MAX);
		return NULL;
	}
	if (!yaml_parser_initialize(&reading.parser)) {
		diagnostics->arena->failed = true;
		return NULL;
	}
	/* without this libyaml guesses UTF-16 from a mark, and then its columns are not the file's */
	yaml_parser_set_encoding(&reading.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&reading.parser, (const unsigned char *)source, bytes);
	root = read_events(&reading);
	yaml_parser_delete(&reading.parser);
	if (!root && !diagnostics->errors && !diagnostics->arena->failed)
		complain(
			diagnostics, MESSAGE_EMPTY, NOWHERE, "the file says nothing; the least policy is 'version: 1'");
	return root;
}

const struct node *node_get(const struct node *map, const char *key)
{
	if (map->kind != NODE_MAP)
		return NULL;
	for (const struct node *value = map->first; value; value = value->next)
		if (strcmp(value->key->text, key) == 0)
			return value;
	return NULL;
}

bool node_is_null(const struct node *node)
{
	return node->kind == NODE_SCALAR && !node->is_quoted && !node->is_refused &&
	       (!node->text[0] || strcmp(node->text, "~") == 0 || strcasecmp(node->text, "null") == 0);
}
