/* lifecycle/ledger.c
 * Sums over counters that others keep (lifecycle/stats.h), so that moves and the cache need not be told of. Allocations and frees change
 * them under the lock under which they are added up. Elsewhere a sum may be too high for a moment, when bytes are on their way from
 * one counter to the next; it is hardly too low: what arrives is added before what left is taken off. */
#include "lifecycle/ledger.h"

#include <string.h>

#include "base/size.h"
#include "lifecycle/lifecycle.h"

static uint64_t load(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_SEQ_CST);
}

/* Caller holds the lock. Not below zero: a child that is forked in the middle has nothing taken (ledger_forget), and comes here all
 * the same. */
static void take_off(uint64_t *counter, uint64_t bytes)
{
	__atomic_store_n(counter, *counter > bytes ? *counter - bytes : 0, __ATOMIC_SEQ_CST);
}

static const struct ledger_terms *terms_of(const struct lifecycle *lc)
{
	return __atomic_load_n(&lc->ledger.terms, __ATOMIC_ACQUIRE);
}

void ledger_init(struct ledger *ledger)
{
	memset(ledger, 0, sizeof(*ledger));
	ranked_lock_init(&ledger->lock, RANK_LEDGER);
}

void ledger_release(struct ledger *ledger)
{
	ranked_lock_release(&ledger->lock);
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

/* Caller holds the lock. */
static bool within_credit(const struct lifecycle *lc, int device, uint64_t bytes)
{
	const struct ledger_device *of = &lc->ledger.devices[device];

	return ledger_used_bytes(lc, device) + of->asking_bytes + bytes <= of->credit_bytes;
}

enum sublet_err ledger_take(struct lifecycle *lc, int device, uint64_t bytes, struct errinfo *reterr)
{
	struct ledger_device *of = &lc->ledger.devices[device];
	uint64_t budget = UINT64_MAX;
	bool asks, refused;

	(void)ledger_budget(lc, lc->devices[device].total_bytes, &budget);
	ranked_lock(&lc->ledger.lock);
	refused = of->taken_bytes + of->asking_bytes + own_bytes(lc, device) + bytes > budget;
	asks = !refused && ledger_has_capacity(lc) && lc->ledger.hooks.ask && !within_credit(lc, device, bytes);
	/* The credit that is left is nobody else's while more is asked for. */
	if (asks)
		of->asking_bytes += bytes;
	else if (!refused)
		__atomic_store_n(&of->taken_bytes, of->taken_bytes + bytes, __ATOMIC_SEQ_CST);
	ranked_unlock(&lc->ledger.lock);
	if (refused)
		return over_budget(lc, device, bytes, budget, reterr);
	if (!asks || lc->ledger.hooks.ask(lc->ledger.hooks.arg, device, bytes, reterr))
		return SUBLET_OK;
	ranked_lock(&lc->ledger.lock);
	take_off(&of->asking_bytes, bytes);
	ranked_unlock(&lc->ledger.lock);
	return SUBLET_ERR_NOMEM;
}

void ledger_done(struct lifecycle *lc, int device, uint64_t bytes)
{
	ranked_lock(&lc->ledger.lock);
	take_off(&lc->ledger.devices[device].taken_bytes, bytes);
	ranked_unlock(&lc->ledger.lock);
}

void ledger_made(struct lifecycle *lc, const struct allocation *allocation)
{
	ranked_lock(&lc->ledger.lock);
	stats_allocated(&lc->stats->device[allocation->device], allocation->span_bytes, allocation->size_bytes);
	take_off(&lc->ledger.devices[allocation->device].taken_bytes, allocation->span_bytes);
	ranked_unlock(&lc->ledger.lock);
}

void ledger_freed(struct lifecycle *lc, const struct allocation *allocation)
{
	struct stats_device *stats = &lc->stats->device[allocation->device];

	ranked_lock(&lc->ledger.lock);
	__atomic_fetch_add(&stats->pending_bytes, backing_held_bytes(&allocation->backing), __ATOMIC_RELAXED);
	stats_freed(stats, allocation->span_bytes, allocation->size_bytes, allocation->residency);
	ranked_unlock(&lc->ledger.lock);
}

void ledger_granted(struct lifecycle *lc, int device, uint64_t bytes)
{
	struct ledger_device *of = &lc->ledger.devices[device];

	ranked_lock(&lc->ledger.lock);
	__atomic_store_n(&of->taken_bytes, of->taken_bytes + bytes, __ATOMIC_SEQ_CST);
	take_off(&of->asking_bytes, bytes);
	ranked_unlock(&lc->ledger.lock);
}

bool ledger_fits(struct lifecycle *lc, int device, uint64_t bytes)
{
	bool fits;

	ranked_lock(&lc->ledger.lock);
	fits = ledger_used_bytes(lc, device) + bytes <= lc->ledger.devices[device].credit_bytes;
	ranked_unlock(&lc->ledger.lock);
	return fits;
}

void ledger_set_credit(struct lifecycle *lc, int device, uint64_t bytes)
{
	ranked_lock(&lc->ledger.lock);
	lc->ledger.devices[device].credit_bytes = bytes;
	ranked_unlock(&lc->ledger.lock);
}

uint64_t ledger_credit(struct lifecycle *lc, int device)
{
	uint64_t bytes;

	ranked_lock(&lc->ledger.lock);
	bytes = lc->ledger.devices[device].credit_bytes;
	ranked_unlock(&lc->ledger.lock);
	return bytes;
}

uint64_t ledger_trim(struct lifecycle *lc, int device, bool may_rise)
{
	uint64_t *credit = &lc->ledger.devices[device].credit_bytes, used;

	ranked_lock(&lc->ledger.lock);
	used = ledger_used_bytes(lc, device);
	if (used < *credit || may_rise)
		*credit = used;
	used = *credit;
	ranked_unlock(&lc->ledger.lock);
	return used;
}

void ledger_settle(struct lifecycle *lc, bool moved)
{
	const struct ledger_hooks *hooks = &lc->ledger.hooks;

	for (int d = 0; d < lc->device_count && hooks->tell && ledger_has_capacity(lc); d++) {
		const uint64_t credit = ledger_credit(lc, d), used = ledger_used_bytes(lc, d);

		/* Beside a free of another thread a sum may be too high: that is never a reason to count more. */
		if (moved ? used != credit : used + 2 * LEDGER_SLAB_BYTES < credit)
			hooks->tell(hooks->arg, d, moved);
	}
}
