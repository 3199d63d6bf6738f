/* shim/gated.h
 * The body of every gated entry point. */
#ifndef SUBLET_SHIM_GATED_H
#define SUBLET_SHIM_GATED_H

#include "shim/shim.h"

/* An atomic load, acquire, of a member of shim_hot. The compiler takes the address of the whole into a register first, and a call of
 * eleven arguments has none to spare. */
#if defined(__x86_64__)
#define HOT(member)                                                                                                    \
	({                                                                                                             \
		__typeof__(shim_hot.member) loaded_;                                                                   \
		__asm__ volatile("mov shim_hot+%c1(%%rip), %0"                                                         \
				 : "=r"(loaded_)                                                                       \
				 : "i"(offsetof(struct shim_hot, member))                                              \
				 : "memory");                                                                          \
		loaded_;                                                                                               \
	})
#else
#define HOT(member) __atomic_load_n(&shim_hot.member, __ATOMIC_ACQUIRE)
#endif

/* Through the gate, the driver's call, out. Outside the guard of shim.h: what comes back in from the driver's call is served
 * as usual. @kernel: what is launched, or NULL. Two functions: the first makes no call but the driver's, so that the
 * arguments stay where they are, and is left for the second by a jump. */
#define GATED_ENTRY(symbol, params, args, kernel)                                                                      \
	static __attribute__((noinline, cold)) CUresult symbol##_slowly params                                         \
	{                                                                                                              \
		__typeof__(&symbol) real_ = (__typeof__(&symbol))real_address(ENTRY_##symbol);                         \
		struct gate_slot *slot_;                                                                               \
		CUresult result_;                                                                                      \
                                                                                                                       \
		if (!real_)                                                                                            \
			return shim_no_driver();                                                                       \
		if (!shim_active())                                                                                    \
			return real_ args;                                                                             \
		/* before the gate: it waits for what it begins */                                                     \
		if ((kernel) && SUBLET_UNLIKELY(gate_kernels_matter(&shim_hot.lifecycle.gate)))                        \
			SHIM_OWN(kernels_launched(&shim_hot.lifecycle, kernel));                                           \
		slot_ = gate_enter(&shim_hot.lifecycle.gate, #symbol, kernel);                                         \
		if (!slot_)                                                                                            \
			return GATE_REFUSAL;                                                                           \
		result_ = real_ args;                                                                                  \
		gate_leave(slot_);                                                                                     \
		return result_;                                                                                        \
	}                                                                                                              \
	CUresult CUDAAPI symbol params                                                                                 \
	{                                                                                                              \
		struct gate_slot *slot_;                                                                               \
		CUresult result_;                                                                                      \
		unsigned word_;                                                                                        \
		void *real_;                                                                                           \
                                                                                                                       \
		if (SUBLET_UNLIKELY(HOT(state) != SHIM_ACTIVE || shim_depth))                                          \
			return symbol##_slowly args;                                                                   \
		real_ = HOT(real_addresses)[ENTRY_##symbol]; /* active: it is there */                                 \
		slot_ = gate_own_slot;                                                                                 \
		if (SUBLET_UNLIKELY(!real_ || !slot_))                                                                 \
			return symbol##_slowly args;                                                                   \
		gate_mark(slot_);                                                                                      \
		word_ = HOT(lifecycle.gate.word);                                                                      \
		if (SUBLET_UNLIKELY(!gate_pass(slot_, word_, #symbol, kernel)))                                        \
			return symbol##_slowly args;                                                                   \
		result_ = ((__typeof__(&symbol))real_)args;                                                            \
		gate_leave_own(slot_);                                                                                 \
		return result_;                                                                                        \
	}

#endif
