/* tools/policy_json.h
 * What `sublet check` says of policy files, as JSON (by jansson): the complaints, an explanation, and the JSON Schema of
 * the language. Text for people is policy/source's own. Each returns a new object, NULL when memory ran out. */
#ifndef SUBLET_TOOLS_POLICY_JSON_H
#define SUBLET_TOOLS_POLICY_JSON_H

#include <jansson.h>

#include "policy/source/diagnostics.h"
#include "policy/source/facts.h"

/* One array, in the order of @diagnostics. @file: what the place of each is called. */
json_t *policy_json_diagnostics(const struct diagnostics *diagnostics, const char *file);

/* The winner, what speaks against the others, and what happens in each phase. */
json_t *policy_json_explain(const struct policy *policy, const char *file, const struct typed_facts *facts);

/* Made from keys.def, types.def and words.def, for editors and other people's validators. It knows shapes and words; what
 * names stand for and what is safe only `sublet check` knows. */
json_t *policy_json_schema(void);

#endif
