/* shim/gated.h
 * The body of every gated entry point. */
#ifndef SUBLET_SHIM_GATED_H
#define SUBLET_SHIM_GATED_H

#include "shim/shim.h"

/* Through the gate, the driver's call, out. Outside the guard of shim.h: what comes back in from the driver's call is served
 * as usual. @kernel: what is launched, or NULL. */
#define GATED_CALL(symbol, args, kernel)                                                                               \
	do {                                                                                                           \
		__typeof__(&symbol) real_ = (__typeof__(&symbol))real_address(ENTRY_##symbol);                         \
		struct gate_slot *slot_;                                                                               \
		CUresult result_;                                                                                      \
                                                                                                                       \
		if (SUBLET_UNLIKELY(!real_))                                                                           \
			return shim_no_driver();                                                                       \
		if (SUBLET_UNLIKELY(!shim_active()))                                                                   \
			return real_ args;                                                                             \
		slot_ = gate_enter(&shim_lifecycle.gate, #symbol, kernel);                                             \
		result_ = real_ args;                                                                                  \
		gate_leave(slot_);                                                                                     \
		return result_;                                                                                        \
	} while (0)

#endif
