/* tests/model/barrier_cases.h
 * What barrier.pml is checked with; one case each with -DCASE_.... Client 0 and its object 0 come in for phase B, client 1 and
 * object 1 leave for it; capacities are the smallest that do. */

/* number, who has it, units per extent, extents, of these on the device in A and in B */
#define OBJECT(o, who, units, extents, in_a, in_b) \
	owner[o] = who; size[o] = units; count[o] = extents; want[AT(o, A)] = in_a; want[AT(o, B)] = in_b; \
	dev[o] = in_a; host[o] = extents - in_a;
#define NO_OBJECT(o) OBJECT(o, o, 1, 0, 0, 0)
/* the same, without content to keep */
#define REFILLED(o, who, extents, in_a, in_b) OBJECT(o, who, 1, extents, in_a, in_b) fresh[o] = true; host[o] = 0;

/* what the objects have left of the capacities; gates of clients with holes are held */
#define BEGIN \
	device_free = DEVICE - dev[0] * size[0] - dev[1] * size[1] - dev[2] * size[2]; \
	host_free = HOST - host[0] * size[0] - host[1] * size[1] - host[2] * size[2]; \
	gate[0] = (HOLE(0) -> GATE_HELD : GATE_OPEN); \
	gate[1] = (HOLE(1) -> GATE_HELD : GATE_OPEN); \
	gate[2] = (HOLE(2) -> GATE_HELD : GATE_OPEN);

#define EXCHANGE OBJECT(0, 0, 1, 2, 0, 2) OBJECT(1, 1, 1, 2, 2, 0) NO_OBJECT(2)
#define THERE_AND_BACK trigger(0, B); call(0); trigger(0, A)

#if defined(CASE_EXCHANGE) /* one unit is free in all; client 1 calls whenever it likes, and wakes parked */
#ifdef ROOM_ON_DEVICE
#define DEVICE 3
#define HOST 2
#else
#define DEVICE 2
#define HOST 3
#endif
#define CAN_PARK
#define SETUP EXCHANGE BEGIN
#define SCRIPT_0 THERE_AND_BACK
#define SCRIPT_1 call(1)
#define SCRIPT_2 call(2)
#define LAST_PHASE A
#define MUST_MOVE true

#elif defined(CASE_FULL) /* nothing is free: no exchange, the old phase stays */
#define DEVICE 2
#define HOST 2
#define CAN_PARK
#define SETUP EXCHANGE BEGIN
#define SCRIPT_0 THERE_AND_BACK; call(0)
#define SCRIPT_1 call(1)
#define SCRIPT_2 call(2)
#define LAST_PHASE A

#elif defined(CASE_TWICE) /* two arrivals without a call in between */
#define DEVICE 2
#define HOST 3
#define CAN_PARK
#define SETUP EXCHANGE BEGIN role[2] = 1;
#define SCRIPT_0 trigger(0, B); trigger(0, A); call(0)
#define SCRIPT_1 skip
#define SCRIPT_2 trigger(2, A); call(2)
#define LAST_PHASE A
#define MUST_MOVE true

#elif defined(CASE_BOTH_WAYS) /* one client has what leaves and what comes */
#define DEVICE 2
#define HOST 3
#define CAN_PARK
#define SETUP OBJECT(0, 0, 1, 2, 0, 2) OBJECT(1, 0, 1, 2, 2, 0) NO_OBJECT(2) BEGIN
#define SCRIPT_0 THERE_AND_BACK; call(0)
#define SCRIPT_1 call(1)
#define SCRIPT_2 skip
#define LAST_PHASE A
#define MUST_MOVE true

#elif defined(CASE_REFILL) /* one unit is free, which a refill would take for good */
#define DEVICE 2
#define HOST 1
#define CAN_PARK
#define SETUP REFILLED(0, 0, 1, 0, 1) OBJECT(1, 1, 1, 1, 1, 0) OBJECT(2, 2, 1, 1, 0, 1) BEGIN
#define SCRIPT_0 trigger(0, B); call(0)
#define SCRIPT_1 call(1)
#define SCRIPT_2 call(2)
#define LAST_PHASE B
#define MUST_MOVE true

#elif defined(CASE_DISCARD) /* what leaves is given up, and made anew later; an extent cannot be moved */
#define DEVICE 2
#define HOST 2
#ifndef RESERVE
#define RESERVE 0
#endif
#ifndef FAILS
#define FAILS 1
#endif
#define SETUP OBJECT(0, 0, 1, 2, 0, 2) REFILLED(1, 1, 2, 2, 0) NO_OBJECT(2) BEGIN
#define SCRIPT_0 THERE_AND_BACK; call(0)
#define SCRIPT_1 call(1)
#define SCRIPT_2 skip

#elif defined(CASE_SIZES) /* extents of two sizes; three units are free in all, two with TIGHT */
#define DEVICE 3
#define CAN_PARK
#ifdef TIGHT
#define HOST 3
#define SETUP OBJECT(0, 0, 2, 1, 0, 1) OBJECT(1, 1, 2, 1, 1, 0) NO_OBJECT(2) BEGIN
#define LAST_PHASE A
#else
#define HOST 5
#define SETUP OBJECT(0, 0, 2, 1, 0, 1) OBJECT(1, 1, 2, 1, 1, 0) OBJECT(2, 2, 1, 1, 0, 1) BEGIN
#define LAST_PHASE B
#define MUST_MOVE true
#endif
#define SCRIPT_0 trigger(0, B); call(0)
#define SCRIPT_1 call(1)
#define SCRIPT_2 skip

#elif defined(CASE_FAILURES) /* two extents cannot be moved, there or back */
#define DEVICE 2
#define HOST 3
#define CAN_PARK
#ifndef FAILS
#define FAILS 2
#endif
#define SETUP EXCHANGE BEGIN
#define SCRIPT_0 trigger(0, B); call(0)
#define SCRIPT_1 call(1)
#define SCRIPT_2 call(2)

#elif defined(CASE_DEATHS)
#define DEVICE 2
#define HOST 3
#ifndef DEATHS
#define DEATHS 1
#endif
#define SETUP EXCHANGE BEGIN
#define SCRIPT_0 trigger(0, B); call(0)
#define SCRIPT_1 call(1)
#define SCRIPT_2 call(2)

#elif defined(CASE_COLLECTIVE) /* client 1's work waits for a call of client 2, which waits at its gate; 0 has holes and calls */
#define DEVICE 1
#define HOST 2
#define CAN_PARK
#define COLLECTIVE 6
#define SETUP OBJECT(0, 0, 1, 1, 0, 1) OBJECT(1, 1, 1, 1, 1, 0) NO_OBJECT(2) BEGIN calls[1] = true; calls[2] = true;
#define SCRIPT_0 call(0)
#define SCRIPT_1 launch(1)
#define SCRIPT_2 launch(2)
#define SCRIPT_COMMAND command!B
#define MUST_HOLD true
#define LAST_PHASE B

#elif defined(CASE_ARRIVED) /* the same, and client 2's call stands behind its arrival */
#define DEVICE 1
#define HOST 2
#define CAN_PARK
#define COLLECTIVE 6
#define SETUP OBJECT(0, 0, 1, 1, 0, 1) OBJECT(1, 1, 1, 1, 1, 0) NO_OBJECT(2) BEGIN role[1] = 2; role[2] = 2; calls[1] = true; \
	calls[2] = true;
#define SCRIPT_0 skip
#define SCRIPT_1 launch(1); trigger(1, B); call(1)
#define SCRIPT_2 trigger(2, B); launch(2)
#define MUST_HOLD true
#define LAST_PHASE B

#elif defined(CASE_STUCK) /* the other half never comes: the old phase stays, all go on */
#define DEVICE 1
#define HOST 2
#define CAN_PARK
#define COLLECTIVE 6
#define SETUP OBJECT(0, 0, 1, 1, 0, 1) OBJECT(1, 1, 1, 1, 1, 0) NO_OBJECT(2) BEGIN launched = 2;
#define SCRIPT_0 trigger(0, B); call(0)
#define SCRIPT_1 call(1)
#define SCRIPT_2 trigger(2, A); call(2)
#define LAST_PHASE A

#elif defined(CASE_QUORUM) /* two ranks in lockstep, and an engine or a person at the command that goes its own way */
#define DEVICE 1
#define HOST 1
#define CAN_PARK
#define SETUP NO_OBJECT(0) NO_OBJECT(1) NO_OBJECT(2) BEGIN role[2] = 1;
#define SCRIPT_0 trigger(0, B); step(0); trigger(0, B); step(0)
#define SCRIPT_1 trigger(1, B); step(1); trigger(1, B); step(1)
#ifdef COMMANDED
#define SCRIPT_2 skip
#define SCRIPT_COMMAND command!B; command!A
#else
#define SCRIPT_2 trigger(2, A); call(2)
#endif

#elif defined(CASE_ONE_RANK_ENTERS) /* one rank enters both phases, the other B alone; one may die */
#define DEVICE 1
#define HOST 1
#define CAN_PARK
#ifndef DEATHS
#define DEATHS 1
#endif
#define SETUP NO_OBJECT(0) NO_OBJECT(1) NO_OBJECT(2) BEGIN role[2] = 1;
#define SCRIPT_0 trigger(0, B); call(0); trigger(0, A); call(0)
#define SCRIPT_1 trigger(1, B); call(1)
#define SCRIPT_2 skip

#elif defined(CASE_JOIN) /* client 2 comes at any time */
#define DEVICE 2
#define HOST 3
#define CAN_PARK
#define SETUP EXCHANGE BEGIN members = 3; phase_of[2] = NONE;
#define SCRIPT_0 THERE_AND_BACK; call(0)
#define SCRIPT_1 call(1)
#define SCRIPT_2 join(2); call(2)
#define LAST_PHASE A
#define MUST_MOVE true

#elif defined(CASE_SERVICE) /* client 2 has holes and calls; nothing can be parked here; an extent cannot be moved */
#define DEVICE 3
#define HOST 4
#ifndef RESERVE
#define RESERVE 0
#endif
#ifndef FAILS
#define FAILS 1
#endif
#define SETUP EXCHANGE OBJECT(2, 2, 1, 1, 0, 1) BEGIN
#define SCRIPT_0 trigger(0, B); call(0)
#define SCRIPT_1 skip
#define SCRIPT_2 call(2)

#elif defined(CASE_SLOW) /* answers come late, also those of questions that were given up */
#define DEVICE 1
#define HOST 2
#define CAN_PARK
#ifndef SLOW
#define SLOW 2
#endif
#define NOTHING_CHANGES true
#define SETUP OBJECT(0, 0, 1, 1, 0, 1) OBJECT(1, 1, 1, 1, 1, 0) NO_OBJECT(2) BEGIN
#define SCRIPT_0 trigger(0, A); trigger(0, B); call(0)
#define SCRIPT_1 call(1)
#define SCRIPT_2 skip

#elif defined(CASE_ALLOCATIONS) /* device memory is asked for at any time, and the new phase needs all there is */
#define DEVICE 2
#define HOST 3
#define CAN_PARK
#define SETUP OBJECT(0, 0, 1, 2, 0, 2) OBJECT(1, 1, 1, 1, 1, 0) NO_OBJECT(2) BEGIN
#define SCRIPT_0 trigger(0, B); call(0)
#define SCRIPT_1 allocate(1)
#define SCRIPT_2 allocate(2)
#define MUST_MOVE true

#elif defined(CASE_GROWTH) /* what is to be moved grows, and then the host pool is too small */
#define DEVICE 4
#define HOST 2
#define CAN_PARK
#define SETUP EXCHANGE OBJECT(2, 2, 1, 0, 0, 0) BEGIN
#define SCRIPT_0 trigger(0, B); call(0)
#define SCRIPT_1 skip
#define SCRIPT_2 grow(2)
#endif

#ifndef RESERVE
#define RESERVE 1
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifndef SLOW
#define SLOW 0
#endif
#ifndef COLLECTIVE
#define COLLECTIVE 0
#endif
#ifndef SCRIPT_COMMAND
#define SCRIPT_COMMAND skip
#endif
#ifndef LAST_PHASE
#define LAST_PHASE NONE
#endif
#ifndef MUST_MOVE
#define MUST_MOVE false
#endif
#ifndef NOTHING_CHANGES
#define NOTHING_CHANGES false
#endif
#ifndef MUST_HOLD
#define MUST_HOLD false
#endif
#define TRIES 3 /* then the barrier's timeout has passed */
