/* tools/json.h
 * What the commands share when they write JSON (by jansson): text that need not be UTF-8, and the printing. */
#ifndef SUBLET_TOOLS_JSON_H
#define SUBLET_TOOLS_JSON_H

#include <jansson.h>

/* A JSON string of @text. File names and what a driver says are bytes, JSON is UTF-8: bytes that are not become '?'.
 * NULL when memory ran out, which jansson's _new functions pass on as a failure. */
json_t *json_text(const char *text);

/* Print @json on stdout, indented, members in the order they were set, and give it back. Returns STATUS_GOOD, else says
 * why not; NULL is a document that memory did not suffice for. */
int json_print(json_t *json);

#endif
