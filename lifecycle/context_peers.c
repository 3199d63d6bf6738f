/* lifecycle/context_peers.c
 * Which contexts may reach which other's memory; under the lock of the contexts. No driver call. */
#include "lifecycle/contexts.h"

#include "base/list.h"
#include "lifecycle/backing.h"

void contexts_forget_peers(struct contexts *contexts, CUcontext handle, uint64_t before_id)
{
	bool changed = false;

	for (size_t i = 0; i < contexts->peer_count;) {
		const struct peer *peer = &contexts->peers[i];

		if ((peer->from_context == handle || peer->to_context == handle) && peer->next_id <= before_id) {
			contexts->peers[i] = contexts->peers[--contexts->peer_count];
			changed = true;
		} else {
			i++;
		}
	}
	if (changed)
		__atomic_add_fetch(&contexts->peer_generation, 1, __ATOMIC_ACQ_REL);
}

bool contexts_peer_enable(struct contexts *contexts, CUcontext from_context, CUcontext to_context, int from, int to)
{
	bool noted;

	ranked_lock(&contexts->lock);
	noted = list_room(&contexts->peers, contexts->peer_count, &contexts->peer_capacity, sizeof(*contexts->peers));
	if (noted) {
		contexts->peers[contexts->peer_count++] = (struct peer){from_context, to_context, from, to, contexts->next_id};
		__atomic_add_fetch(&contexts->peer_generation, 1, __ATOMIC_ACQ_REL);
	}
	ranked_unlock(&contexts->lock);
	return noted;
}

void contexts_peer_disable(struct contexts *contexts, CUcontext from_context, CUcontext to_context)
{
	ranked_lock(&contexts->lock);
	for (size_t i = 0; i < contexts->peer_count; i++) {
		if (contexts->peers[i].from_context == from_context && contexts->peers[i].to_context == to_context) {
			contexts->peers[i] = contexts->peers[--contexts->peer_count];
			__atomic_add_fetch(&contexts->peer_generation, 1, __ATOMIC_ACQ_REL);
			break;
		}
	}
	ranked_unlock(&contexts->lock);
}

size_t contexts_access_list(struct contexts *contexts, int device, CUmemAccessDesc *access, size_t capacity,
	uint64_t *ret_generation)
{
	uint64_t seen = 1ull << device;
	size_t count = 0;

	access[count++] = (CUmemAccessDesc){
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	ranked_lock(&contexts->lock);
	for (size_t i = 0; i < contexts->peer_count && count < capacity; i++) {
		int from = contexts->peers[i].from;

		if (contexts->peers[i].to != device || from >= ACCESS_MAX || (seen & (1ull << from)))
			continue;
		seen |= 1ull << from;
		access[count] = access[0];
		access[count++].location.id = from;
	}
	*ret_generation = __atomic_load_n(&contexts->peer_generation, __ATOMIC_ACQUIRE);
	ranked_unlock(&contexts->lock);
	return count;
}
