/* tests/unit/test_policy_decide.c
 * policy/decide.h, by table: what a policy says, where the bytes are, what is decided and why; and for every reachable
 * combination, what must never be decided. */
#include "tests/unit/policy_harness.h"

static const char text[] =
	"version: 1\n"
	"roles: [train, rollout]\n"
	"phases:\n"
	"  - {name: decode, roles: [rollout]}\n"
	"  - {name: score, roles: [train], idle: [rollout]}\n"
	"  - {name: update, roles: [train]}\n"
	"triggers:\n"
	"  - {enter: decode, command: true}\n"
	"  - {enter: score, command: true}\n"
	"  - {enter: update, role: rollout, kernel: x}\n"
	"pinned:\n"
	"  - {library: '*libnccl*'}\n"
	"objects:\n"
	"  - {name: kv, match: {tag: kv}, class: phase-local, resident: [decode], otherwise: discard, exclusive: true, scannable: k}\n"
	"  - {name: held, match: {role: rollout, tag: held}, class: regenerable, resident: [decode], otherwise: discard, exclusive: true}\n"
	"  - {name: mixed, match: {role: rollout, tag: mixed}, class: phase-local, resident: [decode], otherwise: discard}\n"
	"  - {name: weights, match: {role: rollout, tag: weights}, class: permanent, resident: [decode], otherwise: offload}\n"
	"  - {name: parked, match: {tag: parked}, class: permanent, resident: [update]}\n"
	"  - {name: kept, match: {tag: kept}, class: permanent, resident: [decode], otherwise: keep}\n"
	"  - {name: optimizer, match: {tag: optimizer}, class: permanent, resident: {update: demand, score: parked, decode: device},\n"
	"     window: 4GiB}\n"
	"  - {name: steady, match: {tag: steady}, class: permanent, resident: demand, window: 1GiB, prefetch: false}\n"
	"  - {name: bound, match: {role: rollout, tag: bound}, class: boundary, producer: update, consumer: decode, otherwise: park}\n"
	"defaults: {class: permanent, resident: all}\n";

struct row {
	const char *tag, *role, *phase;
	enum policy_residency now;
	uint32_t flags;
	enum policy_residency target;
	enum policy_reason reason;
	uint32_t actions;
};

enum {
	OUT = POLICY_ACT_TAKE_HOST | POLICY_ACT_COPY_OUT | POLICY_ACT_UNMAP | POLICY_ACT_GIVE_DEVICE,
	IN = POLICY_ACT_TAKE_DEVICE | POLICY_ACT_COPY_IN | POLICY_ACT_MAP_DEVICE | POLICY_ACT_GIVE_HOST,
};

static const struct row rows[] = {
	/* resident, and the way back */
	{"weights", "rollout", "decode", POLICY_DEVICE, 0, POLICY_DEVICE, POLICY_BECAUSE_RESIDENT, 0},
	{"weights", "rollout", "decode", POLICY_HOST, 0, POLICY_DEVICE, POLICY_BECAUSE_RESIDENT, IN},
	{"weights", "rollout", "decode", POLICY_PARKED, 0, POLICY_DEVICE, POLICY_BECAUSE_RESIDENT,
		IN | POLICY_ACT_UNMAP},
	{"held", "rollout", "decode", POLICY_EMPTY, 0, POLICY_DEVICE, POLICY_BECAUSE_RESIDENT,
		POLICY_ACT_TAKE_DEVICE | POLICY_ACT_MAP_DEVICE},
	/* offload */
	{"weights", "rollout", "score", POLICY_DEVICE, 0, POLICY_HOST, POLICY_BECAUSE_OTHERWISE, OUT},
	{"weights", "rollout", "score", POLICY_HOST, 0, POLICY_HOST, POLICY_BECAUSE_OTHERWISE, 0},
	{"weights", "rollout", "score", POLICY_PARKED, 0, POLICY_HOST, POLICY_BECAUSE_OTHERWISE, POLICY_ACT_UNMAP},
	{"weights", "rollout", "score", POLICY_EMPTY, 0, POLICY_EMPTY, POLICY_BECAUSE_NOTHING_THERE, 0},
	/* a process that runs after all: the rule is for rollout, but nothing may be left to chance */
	{"weights", "rollout", "score", POLICY_DEVICE, POLICY_STATE_PINNED, POLICY_DEVICE, POLICY_BECAUSE_PINNED, 0},
	/* park */
	{"parked", "train", "decode", POLICY_DEVICE, 0, POLICY_PARKED, POLICY_BECAUSE_UNSAID,
		OUT | POLICY_ACT_MAP_HOST},
	{"parked", "train", "decode", POLICY_HOST, 0, POLICY_PARKED, POLICY_BECAUSE_UNSAID, POLICY_ACT_MAP_HOST},
	{"parked", "train", "decode", POLICY_EMPTY, 0, POLICY_PARKED, POLICY_BECAUSE_UNSAID,
		POLICY_ACT_TAKE_HOST | POLICY_ACT_MAP_HOST},
	{"parked", "train", "decode", POLICY_DEVICE, POLICY_STATE_NO_PARKING, POLICY_HOST, POLICY_BECAUSE_NO_PARKING,
		OUT},
	{"parked", "rollout", "decode", POLICY_DEVICE, POLICY_STATE_NO_PARKING, POLICY_DEVICE,
		POLICY_BECAUSE_NO_PARKING, 0},
	{"parked", NULL, "decode", POLICY_DEVICE, POLICY_STATE_NO_PARKING, POLICY_DEVICE, POLICY_BECAUSE_NO_PARKING, 0},
	/* discard: who arrived, who is idle, who is neither */
	{"held", "rollout", "score", POLICY_DEVICE, 0, POLICY_EMPTY, POLICY_BECAUSE_OTHERWISE,
		POLICY_ACT_UNMAP | POLICY_ACT_GIVE_DEVICE},
	{"held", "rollout", "update", POLICY_DEVICE, 0, POLICY_HOST, POLICY_BECAUSE_NOT_ARRIVED, OUT},
	{"held", "rollout", "update", POLICY_DEVICE, POLICY_STATE_ARRIVED, POLICY_EMPTY, POLICY_BECAUSE_OTHERWISE,
		POLICY_ACT_UNMAP | POLICY_ACT_GIVE_DEVICE},
	{"held", "rollout", "score", POLICY_PARKED, 0, POLICY_EMPTY, POLICY_BECAUSE_OTHERWISE,
		POLICY_ACT_UNMAP | POLICY_ACT_GIVE_HOST},
	{"held", "rollout", "score", POLICY_HOST, 0, POLICY_EMPTY, POLICY_BECAUSE_OTHERWISE, POLICY_ACT_GIVE_HOST},
	{"held", "rollout", "score", POLICY_EMPTY, 0, POLICY_EMPTY, POLICY_BECAUSE_OTHERWISE, 0},
	{"mixed", "rollout", "score", POLICY_DEVICE, 0, POLICY_HOST, POLICY_BECAUSE_NOT_EXCLUSIVE, OUT},
	/* scannable: a hole may be where the role runs, for every touch is seen */
	{"kv", "train", "score", POLICY_DEVICE, POLICY_STATE_ARRIVED, POLICY_EMPTY, POLICY_BECAUSE_OTHERWISE,
		POLICY_ACT_UNMAP | POLICY_ACT_GIVE_DEVICE},
	/* keep */
	{"kept", "train", "score", POLICY_DEVICE, 0, POLICY_DEVICE, POLICY_BECAUSE_OTHERWISE, 0},
	{"kept", "train", "score", POLICY_PARKED, 0, POLICY_PARKED, POLICY_BECAUSE_OTHERWISE, 0},
	{"kept", "train", "score", POLICY_HOST, 0, POLICY_PARKED, POLICY_BECAUSE_GATE_OPEN, POLICY_ACT_MAP_HOST},
	{"kept", "rollout", "score", POLICY_HOST, 0, POLICY_HOST, POLICY_BECAUSE_OTHERWISE, 0},
	/* demand */
	{"optimizer", "train", "update", POLICY_DEVICE, 0, POLICY_PARKED, POLICY_BECAUSE_RESIDENT,
		OUT | POLICY_ACT_MAP_HOST | POLICY_ACT_ON_TOUCH | POLICY_ACT_PREFETCH},
	{"optimizer", "train", "score", POLICY_DEVICE, 0, POLICY_PARKED, POLICY_BECAUSE_RESIDENT,
		OUT | POLICY_ACT_MAP_HOST},
	{"optimizer", "train", "decode", POLICY_PARKED, 0, POLICY_DEVICE, POLICY_BECAUSE_RESIDENT,
		IN | POLICY_ACT_UNMAP},
	{"steady", "train", NULL, POLICY_PARKED, 0, POLICY_PARKED, POLICY_BECAUSE_RESIDENT, POLICY_ACT_ON_TOUCH},
	/* boundary, over the end of the cycle */
	{"bound", "rollout", "update", POLICY_DEVICE, 0, POLICY_DEVICE, POLICY_BECAUSE_BOUNDARY, 0},
	{"bound", "rollout", "decode", POLICY_DEVICE, 0, POLICY_DEVICE, POLICY_BECAUSE_BOUNDARY, 0},
	{"bound", "rollout", "score", POLICY_DEVICE, 0, POLICY_PARKED, POLICY_BECAUSE_OTHERWISE,
		OUT | POLICY_ACT_MAP_HOST},
	/* defaults, pinned, no phase */
	{"?", "train", "score", POLICY_PARKED, 0, POLICY_DEVICE, POLICY_BECAUSE_RESIDENT, IN | POLICY_ACT_UNMAP},
	{"nccl", "train", "score", POLICY_DEVICE, 0, POLICY_DEVICE, POLICY_BECAUSE_PINNED_RULE, 0},
	{"weights", "rollout", NULL, POLICY_DEVICE, 0, POLICY_DEVICE, POLICY_BECAUSE_RESIDENT, 0},
};

static struct policy_source source;
static struct policy policy;

static int setup(void **state)
{
	given_policy(&source, text, &policy);
	return 0;
}

static int teardown(void **state)
{
	policy_source_release(&source);
	return 0;
}

static void decide_by_table(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *row = &rows[i];
		struct policy_facts facts = {
			.role = policy_role_find(&policy, row->role), .phase = POLICY_NONE, .tag = row->tag};
		struct policy_state now = {.role = facts.role,
			.phase = policy_phase_find(&policy, row->phase),
			.now = row->now,
			.flags = row->flags};
		struct policy_decision decision;

		if (strcmp(row->tag, "nccl") == 0)
			facts.library[0] = "/usr/lib/libnccl.so.2";
		now.rule = policy_match(&policy, &facts);
		policy_decide(&policy, &now, &decision);
		if (decision.target != row->target || decision.reason != row->reason ||
			decision.actions != row->actions)
			fail_msg("row %zu (%s in %s): %s because %s, actions %#x; expected %s because %s, actions %#x",
				i, row->tag, row->phase ? row->phase : "-", policy_residency_text(decision.target),
				policy_reason_text(decision.reason), decision.actions,
				policy_residency_text(row->target), policy_reason_text(row->reason), row->actions);
	}
}

static void every_reason_of_the_decision_is_in_the_table(void **state)
{
	bool seen[POLICY_BECAUSE_COUNT] = {false};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		seen[rows[i].reason] = true;
	/* the checker refuses such a policy (PERMANENT), and this one has 'defaults' (DEFAULT): tests of their own
	 * below */
	seen[POLICY_BECAUSE_PERMANENT] = seen[POLICY_BECAUSE_DEFAULT] = true;
	for (int reason = 0; reason < POLICY_BECAUSE_COUNT; reason++)
		if (!seen[reason])
			fail_msg("no row is decided because: %s", policy_reason_text((enum policy_reason)reason));
}

/* What holds for every rule, role, phase, residency and set of flags. */
static void decide_never_leaves_a_hole_or_loses_bytes(void **state)
{
	size_t decisions = 0;

	for (uint32_t rule = 0; rule < policy.rules_count; rule++) {
		for (uint32_t role = 0; role <= policy.roles_count; role++) {
			for (uint32_t phase = 0; phase <= policy.phases_count; phase++) {
				for (uint32_t now = 0; now < POLICY_RESIDENCY_COUNT; now++) {
					for (uint32_t flags = 0; flags < 8; flags++) {
						struct policy_state given = {rule,
							role < policy.roles_count ? role : POLICY_NONE,
							phase < policy.phases_count ? phase : POLICY_NONE,
							(enum policy_residency)now, flags};
						struct policy_decision d;
						bool is_hole, runs = policy_role_runs(&policy, given.role, given.phase);

						policy_decide(&policy, &given, &d);
						decisions++;
						is_hole = d.target == POLICY_HOST || d.target == POLICY_EMPTY;
						if (flags & POLICY_STATE_PINNED) {
							assert_int_equal(d.target, now);
							continue;
						}
						assert_false(is_hole && runs && !policy.rules[rule].scannable.count);
						assert_false(
							(flags & POLICY_STATE_NO_PARKING) && d.target == POLICY_PARKED);
						if (policy.rules[rule].class == POLICY_CLASS_PERMANENT &&
							now != POLICY_EMPTY)
							assert_int_not_equal(d.target, POLICY_EMPTY);
						/* leaving the device with bytes means a copy, or a discard that the
						 * policy asked for */
						if (now == POLICY_DEVICE && d.target != POLICY_DEVICE &&
							!(d.actions & POLICY_ACT_COPY_OUT))
							assert_int_equal(d.want, POLICY_WANT_EMPTY);
						/* what is given back was either copied, moved, or discarded */
						if (d.target == (enum policy_residency)now)
							assert_int_equal(d.actions & ~(POLICY_ACT_ON_TOUCH |
											     POLICY_ACT_PREFETCH),
								0);
					}
				}
			}
		}
	}
	assert_int_equal(decisions, policy.rules_count * 3 * 4 * 4 * 8);
}

/* A block that another compiler wrote, or that was damaged and mended, must not make permanent bytes go away. */
static void decide_offloads_permanent_bytes_that_a_block_would_discard(void **state)
{
	struct policy_source own;
	struct policy opened;
	struct policy_header *header;
	struct policy_rule *rules;
	struct policy_state now = {.role = 1, .phase = 1, .flags = POLICY_STATE_ARRIVED};
	struct policy_decision decision;
	struct errinfo error;

	given_policy(&own, text, &opened);
	header = own.block.bytes;
	rules = (void *)((char *)own.block.bytes + header->sections[POLICY_SECTION_RULES].offset);
	while (strcmp(policy_text(&opened, rules[now.rule].name), "held") != 0)
		now.rule++;
	policy_decide(&opened, &now, &decision);
	assert_int_equal(decision.target, POLICY_EMPTY);
	rules[now.rule].class = POLICY_CLASS_PERMANENT;
	header->checksum = policy_checksum(own.block.bytes, own.block.size_bytes);
	assert_int_equal(policy_open(own.block.bytes, own.block.size_bytes, &opened, &error), SUBLET_OK);
	policy_decide(&opened, &now, &decision);
	assert_int_equal(decision.target, POLICY_HOST);
	assert_int_equal(decision.reason, POLICY_BECAUSE_PERMANENT);
	assert_true(decision.actions & POLICY_ACT_COPY_OUT);
	policy_source_release(&own);
}

static void decide_without_defaults_keeps_on_the_device(void **state)
{
	struct policy_source own;
	struct policy opened;
	struct policy_state now = {.role = POLICY_NONE, .phase = 0, .now = POLICY_PARKED};
	struct policy_decision decision;

	given_policy(&own, "version: 1\nphases: [only]\n", &opened);
	policy_decide(&opened, &now, &decision);
	assert_int_equal(decision.target, POLICY_DEVICE);
	assert_int_equal(decision.reason, POLICY_BECAUSE_DEFAULT);
	policy_source_release(&own);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(decide_by_table, setup, teardown),
		cmocka_unit_test_setup_teardown(every_reason_of_the_decision_is_in_the_table, setup, teardown),
		cmocka_unit_test_setup_teardown(decide_never_leaves_a_hole_or_loses_bytes, setup, teardown),
		cmocka_unit_test(decide_offloads_permanent_bytes_that_a_block_would_discard),
		cmocka_unit_test(decide_without_defaults_keeps_on_the_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
