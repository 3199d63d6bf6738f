/* lifecycle/client_policy.c
 * The policy in this process: which role it is, which rule an allocation falls under.
 * What stands behind `policy` is never unmapped: threads read it without a lock. A coordinator that comes back with the same
 * policy costs nothing; each other policy costs its size. */
#include "lifecycle/client_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "lifecycle/lifecycle.h"
#include "policy/match.h"
#include "policy/roles.h"

enum { COMMAND_BYTES = 4096, ENVIRONMENT_BYTES = 1 << 20, PATH_BYTES = 4096 };

#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)

const struct client_policy *client_policy(const struct client *client)
{
	return __atomic_load_n(&client->policy, __ATOMIC_ACQUIRE);
}

/* What a file of /proc holds, NUL behind it; NULL when it cannot be had. The caller frees it. */
static char *read_proc(const char *path, size_t room, size_t *ret_bytes)
{
	char *text = malloc(room + 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t got;

	while (text && fd >= 0 && used < room && (got = read(fd, text + used, room - used)) > 0)
		used += (size_t)got;
	if (fd >= 0)
		close(fd);
	if (!text)
		return NULL;
	text[used] = '\0';
	*ret_bytes = used;
	return text;
}

struct environment {
	char *text;
	size_t bytes;
};

/* As the process was started: its own may be changed by another thread in this moment. */
static const char *variable(const char *name, void *arg)
{
	const struct environment *environment = arg;
	const size_t length = strlen(name);

	for (size_t at = 0; environment->text && at < environment->bytes; at += strlen(environment->text + at) + 1)
		if (strncmp(environment->text + at, name, length) == 0 && environment->text[at + length] == '=')
			return environment->text + at + length + 1;
	return NULL;
}

static uint32_t find_role(const struct client *client, const struct policy *policy)
{
	struct environment environment = {0};
	struct policy_process process = {.role = client->given_role, .variable = variable, .arg = &environment};
	char executable[PATH_BYTES], *command;
	size_t bytes = 0;
	ssize_t length;
	uint32_t role;

	environment.text = read_proc("/proc/self/environ", ENVIRONMENT_BYTES, &environment.bytes);
	command = read_proc("/proc/self/cmdline", COMMAND_BYTES, &bytes);
	for (size_t i = 0; command && i + 1 < bytes; i++)
		if (!command[i])
			command[i] = ' ';
	length = readlink("/proc/self/exe", executable, sizeof(executable) - 1);
	executable[length < 0 ? 0 : length] = '\0';
	process.command = command;
	process.executable = length > 0 ? executable : NULL;
	role = policy_role_of(policy, &process);
	free(command);
	free(environment.text);
	return role;
}

static const struct {
	enum policy_match_key key;
	unsigned want; /* enum caller_wants; 0: no thing of the caller */
	const char *name;
} asked_keys[] = {{POLICY_KEY_LIBRARY, CALLER_LIBRARY, "library"}, {POLICY_KEY_THREAD, CALLER_THREAD, "thread"},
	{POLICY_KEY_TAG, CALLER_TAG, "tag"}, {POLICY_KEY_STACK, CALLER_STACK, "stack"}, {POLICY_KEY_PYTHON, CALLER_PYTHON, "python"}};
enum { ASKED_KEYS = sizeof(asked_keys) / sizeof(asked_keys[0]) };

static bool is_for_role(const struct client_policy *new, uint32_t rule)
{
	const struct policy_facts facts = {.role = new->role};

	return policy_rule_allows(&new->policy, &new->policy.rules[rule], &facts, POLICY_KEY_ROLE);
}

/* What a rule asks and is not seen here: said once per policy, since the rule then matches nothing. @ready: what can be had. */
static void say_unseen(const struct client_policy *new, unsigned ready)
{
	char names[64] = "";
	uint32_t rules = 0;

	for (uint32_t i = 0; i < new->policy.rules_count; i++) {
		bool counted = false;

		for (size_t k = 0; is_for_role(new, i) && k < ASKED_KEYS; k++) {
			if ((asked_keys[k].want & ready) || !policy_rule_asks(&new->policy.rules[i], asked_keys[k].key))
				continue;
			rules += !counted;
			counted = true;
			if (!strstr(names, asked_keys[k].name))
				snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", names[0] ? ", " : "",
					asked_keys[k].name);
		}
	}
	if (rules)
		log_say(LOG_SESSION, LOG_WARN, WHOSE_POLICY, "%u rule%s for this role ask%s for %s, which is not seen here: they match nothing",
			rules, rules == 1 ? "" : "s", rules == 1 ? "s" : "", names);
}

static uint32_t match(const struct client *client, const struct client_policy *current, const struct allocation *allocation, struct policy_facts *facts)
{
	facts->role = current->role;
	facts->phase = client_current_phase(client);
	facts->api = POLICY_API_MEM_ALLOC;
	facts->device = (uint32_t)allocation->device;
	facts->size_bytes = allocation->size_bytes;
	facts->order = allocation->serial;
	return policy_match(&current->policy, facts);
}

uint32_t client_rule(const struct client *client, const struct allocation *allocation, const struct caller *caller)
{
	const struct client_policy *current = client_policy(client);
	struct policy_facts facts = {
		.library = {caller->library[0], caller->library[1]},
		.thread = caller->thread,
		.tag = caller->tag,
		.stack = caller->stack,
		.stack_count = caller->stack_count,
		.python = caller->python,
		.python_count = caller->python_count,
	};

	return current && current->bytes ? match(client, current, allocation, &facts) : RULE_NONE;
}

/* For one that was made before the policy was known: what was kept of its caller. */
static uint32_t rule_of_old(const struct client *client, const struct client_policy *current, const struct allocation *allocation)
{
	const struct site *site = allocation->site;
	struct policy_facts facts = {0};

	if (site)
		facts = (struct policy_facts){
			.library = {site->library[0], site->library[1]},
			.thread = site->thread,
			.tag = site->tag,
			.stack = site->frames,
			.stack_count = site->stack_count,
			.python = site->frames + site->stack_count,
			.python_count = site->python_count,
		};
	return match(client, current, allocation, &facts);
}

void client_release_policies(struct client *client)
{
	const struct client_policy *policy = client->policy;

	client->policy = NULL;
	while (policy) {
		const struct client_policy *older = policy->older;

		if (policy->bytes)
			munmap((void *)policy->bytes, policy->size_bytes);
		free((void *)policy);
		policy = older;
	}
}

/* Publish, then all that was made before. What is made meanwhile waits for the lock and finds the new one. */
static void publish(struct lifecycle *lc, const struct client_policy *new, unsigned ready)
{
	ranked_lock(&lc->records.lock);
	__atomic_store_n(&lc->caller_wants, ready, __ATOMIC_RELEASE);
	__atomic_store_n(&lc->client.policy, new, __ATOMIC_RELEASE);
	ledger_set_terms(lc, &new->terms);
	if (new->bytes && !lc->config.extent_bytes)
		__atomic_store_n(&lc->copied_extent_bytes, EXTENT_POLICY_BYTES, __ATOMIC_RELAXED);
	for (struct allocation *allocation = lc->records.live; allocation; allocation = allocation->next)
		allocation->rule = new->bytes ? rule_of_old(&lc->client, new, allocation) : RULE_NONE;
	ranked_unlock(&lc->records.lock);
	if (lc->config.triggers)
		triggers_use(lc->config.triggers, new->bytes ? &new->triggers : NULL);
	kernels_policy_came(lc);
}

static bool map(struct client_policy *new, int fd, uint64_t bytes, struct errinfo *reterr)
{
	struct stat status;
	void *mapped;
	int seals = (int)syscall(SYS_fcntl, fd, F_GET_SEALS); /* as in client.c */

	/* What policy_open finds right must stay right, and a page cut off would raise SIGBUS here. */
	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &status) || (uint64_t)status.st_size != bytes) {
		errinfo_set(reterr, SUBLET_ERR_INVALID, 0, "the policy is not sealed; use one version of Sublet in the session");
		return false;
	}
	mapped = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (mapped == MAP_FAILED) {
		errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "the policy cannot be mapped");
		return false;
	}
	if (policy_open(mapped, bytes, &new->policy, reterr) != SUBLET_OK) {
		munmap(mapped, bytes);
		return false;
	}
	new->bytes = mapped;
	new->size_bytes = bytes;
	return true;
}

static bool is_same(const struct client_policy *old, const struct client_policy *new)
{
	return old && old->size_bytes == new->size_bytes &&
	       (!new->bytes || memcmp(old->bytes, new->bytes, new->size_bytes) == 0);
}

static void look_at_rules(struct client_policy *new)
{
	for (uint32_t i = 0; i < new->policy.rules_count; i++) {
		new->has_pinned |= new->policy.rules[i].kind == POLICY_RULE_PINNED;
		for (size_t k = 0; is_for_role(new, i) && k < ASKED_KEYS; k++)
			if (policy_rule_asks(&new->policy.rules[i], asked_keys[k].key))
				new->wants |= asked_keys[k].want;
	}
}

static void read_terms(struct client_policy *new)
{
	const struct policy_role *role = new->role == POLICY_NONE ? NULL : &new->policy.roles[new->role];

	new->terms.capacity = new->policy.header->capacity;
	new->terms.reserve = new->policy.header->reserve;
	if (role) {
		new->terms.budget = role->budget;
		new->terms.role = policy_text(&new->policy, role->name);
	}
}

bool client_adopt_policy(struct lifecycle *lc, int fd, uint64_t bytes, char *ret_role, size_t room, struct errinfo *reterr)
{
	const struct client_policy *old = client_policy(&lc->client);
	struct client_policy *new = calloc(1, sizeof(*new));
	unsigned ready;

	if (!new) {
		errinfo_set(reterr, SUBLET_ERR_SYSTEM, 0, "no memory for the policy");
		return false;
	}
	new->role = POLICY_NONE;
	if (bytes && !map(new, fd, bytes, reterr)) {
		free(new);
		return false;
	}
	if (is_same(old, new)) {
		if (new->bytes)
			munmap((void *)new->bytes, new->size_bytes);
		free(new);
	} else {
		if (new->bytes) {
			new->role = find_role(&lc->client, &new->policy);
			look_at_rules(new);
			read_terms(new);
			triggers_policy_init(&new->triggers, &new->policy, new->role);
		}
		/* without a GPU it allocates nothing */
		ready = lc->client.without_gpu ? 0 : caller_prepare(new->wants | lc->config.caller_wants);
		if (new->bytes && !lc->client.without_gpu)
			say_unseen(new, ready);
		new->older = old;
		publish(lc, new, ready);
	}
	new = (struct client_policy *)client_policy(&lc->client);
	protocol_text(ret_role, room,
		new->role == POLICY_NONE ? lc->client.given_role : policy_text(&new->policy, new->policy.roles[new->role].name));
	if (new->bytes && new->role == POLICY_NONE && lc->client.given_role[0])
		log_say(LOG_SESSION, LOG_WARN, WHOSE_POLICY, "role '%s' is not in the policy; only rules without a role match here, set SUBLET_ROLE to one of its roles",
			lc->client.given_role);
	return true;
}
