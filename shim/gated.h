/* shim/gated.h
 * The body of every gated entry point. */
#ifndef SUBLET_SHIM_GATED_H
#define SUBLET_SHIM_GATED_H

#include "shim/shim.h"

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
		slot_ = gate_enter(&shim_lifecycle.gate, #symbol, kernel);                                             \
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
		void *real_;                                                                                           \
                                                                                                                       \
		if (SUBLET_UNLIKELY(__atomic_load_n(&shim_state, __ATOMIC_ACQUIRE) != SHIM_ACTIVE || shim_depth))      \
			return symbol##_slowly args;                                                                   \
		real_ = __atomic_load_n(&real_addresses, __ATOMIC_RELAXED)[ENTRY_##symbol]; /* active: it is there */  \
		if (SUBLET_UNLIKELY(!real_))                                                                           \
			return symbol##_slowly args;                                                                   \
		slot_ = gate_enter_open(&shim_lifecycle.gate, #symbol, kernel);                                        \
		if (SUBLET_UNLIKELY(!slot_))                                                                           \
			return symbol##_slowly args;                                                                   \
		result_ = ((__typeof__(&symbol))real_)args;                                                            \
		gate_leave_own(slot_);                                                                                 \
		return result_;                                                                                        \
	}

#endif
