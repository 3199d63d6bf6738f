/* lifecycle/callers/cxx_name.c
 * Goes through the name by its grammar: the parts of the qualified name are written, types and template arguments only stepped over,
 * which takes knowing their ends. Every step eats a byte or gives up. */
#include "lifecycle/callers/cxx_name.h"

#include <string.h>

enum { DEPTH_MAX = 40 };

struct parse {
	const char *at;
	char *out;
	size_t length, room;
	size_t last, last_length; /* of the last part written: what a constructor is called */
	unsigned depth, silent;
	bool bad;
};

static void type(struct parse *parse);
static void encoding(struct parse *parse);
static void name(struct parse *parse);

static bool eat(struct parse *parse, char c)
{
	if (parse->bad || *parse->at != c)
		return false;
	parse->at++;
	return true;
}

static void must(struct parse *parse, char c)
{
	if (!eat(parse, c))
		parse->bad = true;
}

static bool enter(struct parse *parse)
{
	if (parse->depth >= DEPTH_MAX)
		parse->bad = true;
	parse->depth++;
	return !parse->bad;
}

static void write_bytes(struct parse *parse, const char *bytes, size_t count)
{
	if (parse->silent || parse->bad)
		return;
	if (count >= parse->room - parse->length) {
		parse->bad = true;
		return;
	}
	memcpy(parse->out + parse->length, bytes, count);
	parse->length += count;
}

/* One part of the qualified name. */
static void part(struct parse *parse, const char *before, const char *bytes, size_t count)
{
	if (parse->silent)
		return;
	if (parse->length > 0)
		write_bytes(parse, "::", 2);
	write_bytes(parse, before, strlen(before));
	parse->last = parse->length;
	parse->last_length = count;
	write_bytes(parse, bytes, count);
}

static size_t number(struct parse *parse)
{
	size_t value = 0;

	while (*parse->at >= '0' && *parse->at <= '9' && value < 100000)
		value = value * 10 + (size_t)(*parse->at++ - '0');
	return value;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

/* <number> <that many bytes> */
static void source_name(struct parse *parse)
{
	static const char hidden[] = "_GLOBAL__N";
	static const char unnamed[] = "(anonymous namespace)";
	size_t bytes = number(parse);

	if (bytes == 0 || strnlen(parse->at, bytes) < bytes) {
		parse->bad = true;
		return;
	}
	if (bytes >= sizeof(hidden) - 1 && memcmp(parse->at, hidden, sizeof(hidden) - 1) == 0)
		part(parse, "", unnamed, sizeof(unnamed) - 1);
	else
		part(parse, "", parse->at, bytes);
	parse->at += bytes;
}

static void until_underscore(struct parse *parse)
{
	while (is_digit(*parse->at) || (*parse->at >= 'A' && *parse->at <= 'Z'))
		parse->at++;
	must(parse, '_');
}

static void types_until(struct parse *parse, char end)
{
	while (!parse->bad && *parse->at != end)
		type(parse);
	must(parse, end);
}

static void operator_name(struct parse *parse)
{
	static const char names[][2][12] = {{"cl", "()"}, {"ix", "[]"}, {"nw", " new"}, {"na", " new[]"}, {"dl", " delete"},
		{"da", " delete[]"}, {"aS", "="}, {"pL", "+="}, {"mI", "-="}, {"mL", "*="}, {"pl", "+"}, {"mi", "-"}, {"ml", "*"},
		{"dv", "/"}, {"eq", "=="}, {"ne", "!="}, {"lt", "<"}, {"gt", ">"}, {"le", "<="}, {"ge", ">="}, {"ls", "<<"},
		{"rs", ">>"}, {"pt", "->"}, {"de", "*"}, {"nt", "!"}, {"pp", "++"}, {"mm", "--"}};
	char text[24] = "operator";

	if (memcmp(parse->at, "cv", 2) == 0) {
		parse->at += 2;
		parse->silent++;
		type(parse);
		parse->silent--;
		part(parse, "", text, strlen(text));
		return;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (memcmp(parse->at, names[i][0], 2) != 0)
			continue;
		parse->at += 2;
		strcat(text, names[i][1]);
		part(parse, "", text, strlen(text));
		return;
	}
	parse->bad = true;
}

/* Lambdas and types without a name. */
static void unnamed(struct parse *parse)
{
	if (eat(parse, 'l')) {
		parse->silent++;
		types_until(parse, 'E');
		parse->silent--;
		part(parse, "", "{lambda}", 8);
	} else {
		must(parse, 't');
		part(parse, "", "{unnamed}", 9);
	}
	number(parse);
	must(parse, '_');
}

static void unqualified(struct parse *parse)
{
	char c = *parse->at;

	if (c == 'L') { /* known in its own file alone */
		parse->at++;
		c = *parse->at;
	}
	if (is_digit(c)) {
		source_name(parse);
	} else if (c == 'U') {
		parse->at++;
		unnamed(parse);
	} else if ((c == 'C' || c == 'D') && parse->at[1] >= '0' && parse->at[1] <= '5') {
		char own[256];
		size_t bytes = parse->last_length < sizeof(own) ? parse->last_length : sizeof(own);

		parse->at += 2;
		if (!parse->silent && !parse->bad) {
			memcpy(own, parse->out + parse->last, bytes);
			part(parse, c == 'D' ? "~" : "", own, bytes);
		}
	} else if (is_lower(c) && parse->at[1]) {
		operator_name(parse);
	} else {
		parse->bad = true;
	}
	while (eat(parse, 'B')) { /* tags of the ABI */
		parse->silent++;
		source_name(parse);
		parse->silent--;
	}
}

/* Behind an L: <type> <value> E, _Z <function> E */
static void literal(struct parse *parse)
{
	if (eat(parse, '_')) {
		must(parse, 'Z');
		encoding(parse);
	} else {
		type(parse);
		while (is_digit(*parse->at) || *parse->at == 'n' || *parse->at == '_' || (*parse->at >= 'a' && *parse->at <= 'f'))
			parse->at++;
	}
	must(parse, 'E');
}

/* X <expression> E; of all expressions only the address of a function, which stands in many names */
static void expression(struct parse *parse)
{
	must(parse, 'a');
	must(parse, 'd');
	must(parse, 'L');
	literal(parse);
	must(parse, 'E');
}

static void template_arguments(struct parse *parse)
{
	parse->silent++;
	if (enter(parse)) {
		while (!parse->bad && *parse->at != 'E') {
			if (eat(parse, 'L'))
				literal(parse);
			else if (eat(parse, 'X'))
				expression(parse);
			else if (eat(parse, 'I') || eat(parse, 'J'))
				template_arguments(parse);
			else
				type(parse);
		}
		must(parse, 'E');
	}
	parse->depth--;
	parse->silent--;
}

/* Behind an S. What an abbreviation stands for is not kept: inside the qualified name it cannot be written. */
static void substitution(struct parse *parse)
{
	static const char letters[] = "absiod";
	static const char *const names[] = {"allocator", "basic_string", "string", "istream", "ostream", "iostream"};
	const char *letter = *parse->at ? strchr(letters, *parse->at) : NULL;

	if (eat(parse, 't')) {
		part(parse, "", "std", 3);
	} else if (letter) {
		parse->at++;
		part(parse, "", "std", 3);
		part(parse, "", names[letter - letters], strlen(names[letter - letters]));
	} else {
		parse->bad |= !parse->silent;
		until_underscore(parse);
	}
}

static void nested(struct parse *parse)
{
	while (!parse->bad && *parse->at && strchr("rVKRO", *parse->at))
		parse->at++;
	while (!parse->bad && *parse->at != 'E') {
		if (eat(parse, 'S'))
			substitution(parse);
		else if (eat(parse, 'I'))
			template_arguments(parse);
		else if (*parse->at == 'T') { /* a parameter of the template */
			parse->bad |= !parse->silent;
			parse->at++;
			until_underscore(parse);
		} else
			unqualified(parse);
	}
	must(parse, 'E');
}

/* Z <function> E <what is in it> */
static void local(struct parse *parse)
{
	encoding(parse);
	must(parse, 'E');
	if (eat(parse, 's'))
		return; /* a string of the function */
	if (eat(parse, 'd')) { /* of a default argument */
		number(parse);
		must(parse, '_');
	}
	name(parse);
	if (eat(parse, '_')) {
		if (eat(parse, '_')) {
			number(parse);
			must(parse, '_');
		} else {
			number(parse);
		}
	}
}

static void name(struct parse *parse)
{
	if (enter(parse)) {
		if (eat(parse, 'N'))
			nested(parse);
		else if (eat(parse, 'Z'))
			local(parse);
		else {
			if (eat(parse, 'S')) {
				substitution(parse);
				if (!is_digit(*parse->at) && !is_lower(*parse->at) && *parse->at != 'I')
					parse->bad = true;
			}
			if (*parse->at != 'I')
				unqualified(parse);
			if (eat(parse, 'I'))
				template_arguments(parse);
		}
	}
	parse->depth--;
}

static void extended(struct parse *parse)
{
	char c = *parse->at;

	if (!c) {
		parse->bad = true;
		return;
	}
	parse->at++;
	if (c == 'p' || c == 'o' || c == 'O') /* an expansion; a function that does or does not throw */
		type(parse);
	else if (c == 'v') { /* a vector */
		number(parse);
		must(parse, '_');
		type(parse);
	} else if (c == 'F') {
		number(parse);
		parse->at += *parse->at == 'b' || *parse->at == 'x';
		if (*parse->at == '_')
			parse->at++;
	} else if (!strchr("defhisuacn", c))
		parse->bad = true;
}

/* Steps over a type. */
static void type(struct parse *parse)
{
	char c = *parse->at;

	parse->silent++;
	if (!enter(parse) || !c) {
		parse->bad = true;
	} else if (is_digit(c) || c == 'N' || c == 'Z') {
		name(parse);
	} else if (strchr("PROKVrCG", c)) {
		parse->at++;
		type(parse);
	} else if (c == 'F') {
		parse->at++;
		eat(parse, 'Y');
		while (!parse->bad && *parse->at != 'E' && !((*parse->at == 'R' || *parse->at == 'O') && parse->at[1] == 'E'))
			type(parse);
		if (*parse->at == 'R' || *parse->at == 'O')
			parse->at++;
		must(parse, 'E');
	} else if (c == 'A') {
		parse->at++;
		number(parse);
		must(parse, '_');
		type(parse);
	} else if (c == 'M') {
		parse->at++;
		type(parse);
		type(parse);
	} else if (c == 'T') {
		parse->at++;
		until_underscore(parse);
		if (eat(parse, 'I'))
			template_arguments(parse);
	} else if (c == 'S') {
		parse->at++;
		if (eat(parse, 't'))
			unqualified(parse);
		else
			substitution(parse);
		if (eat(parse, 'I'))
			template_arguments(parse);
	} else if (c == 'D') {
		parse->at++;
		extended(parse);
	} else if (c == 'U') {
		parse->at++;
		if (is_digit(*parse->at)) {
			source_name(parse);
			type(parse);
		} else {
			unnamed(parse);
		}
	} else if (c == 'u') {
		parse->at++;
		source_name(parse);
	} else if (is_lower(c) && !strchr("kpqruE", c)) {
		parse->at++;
	} else {
		parse->bad = true;
	}
	parse->depth--;
	parse->silent--;
}

/* A function's name, then its types, up to the end of the text or of what it stands in. */
static void encoding(struct parse *parse)
{
	if (enter(parse)) {
		name(parse);
		while (!parse->bad && *parse->at && *parse->at != 'E' && *parse->at != '.')
			type(parse);
	}
	parse->depth--;
}

bool cxx_name(const char *mangled, char *ret, size_t room)
{
	struct parse parse = {.at = mangled + 2, .out = ret, .room = room};

	if (mangled[0] != '_' || mangled[1] != 'Z' || room == 0)
		return false;
	encoding(&parse);
	/* a dot: a part that the compiler has cut off or made a copy of (.cold, .constprop.0), which stays visible */
	if (*parse.at == '.')
		write_bytes(&parse, parse.at, strlen(parse.at));
	else
		parse.bad |= *parse.at != '\0';
	if (parse.bad || parse.length == 0)
		return false;
	ret[parse.length] = '\0';
	return true;
}
