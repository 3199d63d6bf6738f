/* lifecycle/ledger.c
 * Sums over counters that others keep (lifecycle/stats.h), so that moves, frees and the cache need not be told of. A sum may be too
 * high for a moment, when bytes are on their way from one counter to the next, and then a question is asked in vain; it is not too
 * low: what arrives is added before what left is taken off. */
#include "lifecycle/ledger.h"

#include <string.h>

#include "base/size.h"
#include "lifecycle/lifecycle.h"

static uint64_t load(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_SEQ_CST);
}

/* Not below zero: a child that is forked in the middle has nothing taken (ledger_forget), and comes here all the same. */
static void take_off(uint64_t *counter, uint64_t bytes)
{
	uint64_t now = load(counter);

	while (!__atomic_compare_exchange_n(counter, &now, now > bytes ? now - bytes : 0, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

static const struct ledger_terms *terms_of(const struct lifecycle *lc)
{
	return __atomic_load_n(&lc->ledger.terms, __ATOMIC_ACQUIRE);
}

void ledger_set_hooks(struct lifecycle *lc, const struct ledger_hooks *hooks)
{
	lc->ledger.hooks = *hooks;
}

void ledger_set_terms(struct lifecycle *lc, const struct ledger_terms *terms)
{
	__atomic_store_n(&lc->ledger.terms, terms, __ATOMIC_RELEASE);
}

void ledger_forget(struct ledger *ledger)
{
	memset(ledger->devices, 0, sizeof(ledger->devices));
	ledger->hooks = (struct ledger_hooks){0};
}

bool ledger_has_capacity(const struct lifecycle *lc)
{
	const struct ledger_terms *terms = terms_of(lc);

	return terms && policy_amount_given(&terms->capacity);
}

/* ---- sums ---- */

uint64_t ledger_used_bytes(const struct lifecycle *lc, int device)
{
	const struct stats_device *stats = &lc->stats->device[device];
	/* first: what has left it is in the counters below by now */
	uint64_t bytes = load(&lc->ledger.devices[device].taken_bytes);

	bytes += load(&stats->residency_bytes[RESIDENCY_DEVICE]);
	return bytes + load(&stats->pending_bytes) + load(&stats->cached_bytes);
}

uint64_t ledger_native_bytes(const struct lifecycle *lc, int device)
{
	uint64_t bytes = 0;

	for (int kind = 0; kind < STATS_NATIVE_COUNT; kind++)
		if (kind != STATS_NATIVE_PINNED)
			bytes += load(&lc->stats->device[device].native[kind].bytes);
	return bytes;
}

static uint64_t own_bytes(const struct lifecycle *lc, int device)
{
	return load(&lc->stats->device[device].managed.bytes) + ledger_native_bytes(lc, device);
}

bool ledger_budget(const struct lifecycle *lc, uint64_t total_bytes, uint64_t *ret_bytes)
{
	const struct ledger_terms *terms = terms_of(lc);
	uint64_t bytes;

	if (!terms || !policy_amount_given(&terms->budget))
		return false;
	bytes = policy_amount_bytes(&terms->budget, total_bytes);
	*ret_bytes = bytes < total_bytes ? bytes : total_bytes;
	return true;
}

bool ledger_memory_info(const struct lifecycle *lc, int device, uint64_t total_bytes, size_t *ret_free, size_t *ret_total)
{
	uint64_t budget, own;

	if (!ledger_budget(lc, total_bytes, &budget))
		return false;
	own = own_bytes(lc, device);
	*ret_total = budget;
	*ret_free = own < budget ? budget - own : 0;
	return true;
}

/* ---- taking ---- */

static enum sublet_err over_budget(const struct lifecycle *lc, int device, uint64_t bytes, uint64_t budget, struct errinfo *reterr)
{
	char wanted[16], whole[16], managed[16], native[16];

	return errinfo_set(reterr, SUBLET_ERR_NOMEM, 0,
		"%s of device %d are more than the budget of role '%s' leaves: %s, of which this process has %s managed and %s native",
		size_format(bytes, wanted, sizeof(wanted)), device, terms_of(lc)->role, size_format(budget, whole, sizeof(whole)),
		size_format(load(&lc->stats->device[device].managed.bytes), managed, sizeof(managed)),
		size_format(ledger_native_bytes(lc, device), native, sizeof(native)));
}

enum sublet_err ledger_take(struct lifecycle *lc, int device, uint64_t bytes, struct errinfo *reterr)
{
	struct ledger_device *of = &lc->ledger.devices[device];
	uint64_t budget;

	__atomic_fetch_add(&of->taken_bytes, bytes, __ATOMIC_SEQ_CST);
	if (ledger_budget(lc, lc->devices[device].total_bytes, &budget) &&
		load(&of->taken_bytes) + load(&of->asking_bytes) + own_bytes(lc, device) > budget) {
		ledger_done(lc, device, bytes);
		return over_budget(lc, device, bytes, budget, reterr);
	}
	if (!ledger_has_capacity(lc) || !lc->ledger.hooks.ask ||
		ledger_used_bytes(lc, device) + load(&of->asking_bytes) <= load(&of->credit_bytes))
		return SUBLET_OK;
	/* Not yet taken, and the credit that is left is nobody else's meanwhile. */
	__atomic_fetch_add(&of->asking_bytes, bytes, __ATOMIC_SEQ_CST);
	ledger_done(lc, device, bytes);
	if (lc->ledger.hooks.ask(lc->ledger.hooks.arg, device, bytes, reterr))
		return SUBLET_OK;
	take_off(&of->asking_bytes, bytes);
	return SUBLET_ERR_NOMEM;
}

void ledger_granted(struct lifecycle *lc, int device, uint64_t bytes)
{
	__atomic_fetch_add(&lc->ledger.devices[device].taken_bytes, bytes, __ATOMIC_SEQ_CST);
	take_off(&lc->ledger.devices[device].asking_bytes, bytes);
}

void ledger_done(struct lifecycle *lc, int device, uint64_t bytes)
{
	take_off(&lc->ledger.devices[device].taken_bytes, bytes);
}

void ledger_settle(struct lifecycle *lc, bool exactly)
{
	const struct ledger_hooks *hooks = &lc->ledger.hooks;

	for (int d = 0; d < lc->device_count && hooks->tell && ledger_has_capacity(lc); d++) {
		const uint64_t credit = load(&lc->ledger.devices[d].credit_bytes), used = ledger_used_bytes(lc, d);

		if (used > credit || (exactly && used < credit) || (!exactly && used + 2 * LEDGER_SLAB_BYTES < credit))
			hooks->tell(hooks->arg, d);
	}
}
