/* policy/source/schema.h
 * The JSON Schema of the policy language, for editors and other people's validators; made from keys.def, types.def and
 * words.def. It knows shapes and words; what names stand for and what is safe only `sublet check` knows. */
#ifndef SUBLET_POLICY_SOURCE_SCHEMA_H
#define SUBLET_POLICY_SOURCE_SCHEMA_H

#include "policy/source/output.h"

void schema_print(struct output *to);

#endif
