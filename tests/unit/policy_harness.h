/* tests/unit/policy_harness.h
 * A policy from a text in the test to an opened block. */
#ifndef SUBLET_TESTS_UNIT_POLICY_HARNESS_H
#define SUBLET_TESTS_UNIT_POLICY_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "policy/decide.h"
#include "policy/match.h"
#include "policy/source/source.h"

/* Fails the test with the complaints when @text has errors. Release the source at the end. */
static inline void given_policy(struct policy_source *source, const char *text, struct policy *ret_policy)
{
	struct errinfo error = {0};
	struct output said = {0};

	assert_int_equal(policy_source_load(source, text, strlen(text), &error), SUBLET_OK);
	diagnostics_print(&source->diagnostics, "test", text, strlen(text), &said);
	if (source->diagnostics.errors)
		fail_msg("%s", output_get(&said));
	output_release(&said);
	assert_int_equal(policy_open(source->block.bytes, source->block.size_bytes, ret_policy, &error), SUBLET_OK);
}

#endif
