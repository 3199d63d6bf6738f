/* tests/sim/python/embedder.c
 * A program with interpreters as libraries, loaded so that no name of theirs is found by dlsym: embedder OUTER INNER
 * CODE. CODE runs in OUTER and has `frames()`, the text of probe.c, and `inner(code)`, which runs other code in INNER,
 * on the same thread and inside of the call. No header of Python's: what is used of it is in its stable ABI. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int probe_frames(char *text, size_t room);
void probe_prepare(void);

/* PyMethodDef */
struct method {
	const char *name;
	void *(*function)(void *self, void *args);
	int flags;
	const char *text;
};
enum { TAKES_NOTHING = 4, TAKES_ONE = 8 };

static const char *inner_path;
static void *(*make_text[2])(const char *);
static const char *(*text_of[2])(void *);
static int inside; /* which of the two runs */

static int run(const char *path, const char *code);

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);

	if (!found) {
		fprintf(stderr, "embedder: %s\n", dlerror());
		exit(3);
	}
	return found;
}

static void *frames(void *self, void *args)
{
	static char text[1 << 20];

	(void)self;
	(void)args;
	return probe_frames(text, sizeof(text)) < 0 ? NULL : make_text[inside](text);
}

static void *inner(void *self, void *code)
{
	const char *text = text_of[0](code);
	int status;

	(void)self;
	inside = 1;
	status = run(inner_path, text);
	inside = 0;
	return make_text[0](status == 0 ? "good" : "bad");
}

static struct method methods[] = {{"frames", frames, TAKES_NOTHING, NULL}, {"inner", inner, TAKES_ONE, NULL}};

static int run(const char *path, const char *code)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void (*initialize)(int);
	int (*run_string)(const char *, void *);
	void *(*new_function)(struct method *, void *, void *), *(*builtins)(void);
	int (*set_item)(void *, const char *, void *);
	int status;

	if (!library) {
		fprintf(stderr, "embedder: %s\n", dlerror());
		exit(3);
	}
	/* before it has started; what is in it must be enough */
	probe_prepare();
	initialize = (void (*)(int))symbol(library, "Py_InitializeEx");
	run_string = (int (*)(const char *, void *))symbol(library, "PyRun_SimpleStringFlags");
	new_function = (void *(*)(struct method *, void *, void *))symbol(library, "PyCFunction_NewEx");
	builtins = (void *(*)(void))symbol(library, "PyEval_GetBuiltins");
	set_item = (int (*)(void *, const char *, void *))symbol(library, "PyDict_SetItemString");
	make_text[inside] = (void *(*)(const char *))symbol(library, "PyUnicode_FromString");
	text_of[inside] = (const char *(*)(void *))symbol(library, "PyUnicode_AsUTF8");
	initialize(0);
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		if (set_item(builtins(), methods[i].name, new_function(&methods[i], NULL, NULL)) != 0)
			return 1;
	}
	status = run_string(code, NULL);
	fflush(stdout);
	return status;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	inner_path = argv[2];
	return run(argv[1], argv[3]) == 0 ? 0 : 1;
}
