/* tests/model/barrier.pml
 * The barrier (DESIGN.md 6, docs/barrier.md): one coordinator, three clients, channels of bounded length in both directions, a
 * ledger of device and one of host memory, two phases. Gates are open, shut or held here; gate.pml looks inside. barrier.sh
 * checks each case of barrier_cases.h with spin: when nothing happens any more, every live client is open in the phase that all
 * agree on, or held for a reason that is known; nobody waits for what cannot come; ledgers add up at every step.
 * Rules that the model needs have a number, R1 to R19; docs/barrier.md lists them. Each is broken on purpose by -DBREAK_..., and
 * that must be found. This file is the coordinator; barrier_client.pml is the rest. */

#define A 0
#define B 1
#define CLIENTS 3
#define OBJECTS 3
#define EVERYBODY 7
#define NONE 255
#define BIT(c) (1 << (c))
#define AT(c, p) ((c) * 2 + (p)) /* of arrays by client or role, and phase */

mtype = {PLAN, HOLD, REOPEN, MOVE, REVERSE, OPEN, PHASE};	  /* down: a number, a value */
mtype = {JOIN, ARRIVE, PLANNED, HELD, NOT_HELD, REOPENED, MOVED}; /* up: the number of what is answered, a value */
mtype = {IDLE, PLANNING, HOLDING, REOPENING, MOVING, REVERSING};

#include "barrier_cases.h"

/* of the case; hidden, as nothing changes them after the first step */
hidden byte role[CLIENTS];
hidden byte owner[OBJECTS], size[OBJECTS], want[OBJECTS * 2];
hidden byte fresh[OBJECTS]; /* no bytes to keep: discarded and made anew */
hidden byte parks[CLIENTS]; /* what is away is parked: no hole */

/* The channels. Bounded: who would find one full fails an assertion, so these lengths are enough. */
chan down[CLIENTS] = [4] of {mtype, byte, byte};
chan up[CLIENTS] = [4] of {mtype, byte, byte};
chan command = [1] of {byte};

byte alive = EVERYBODY;

/* ledgers, in units; objects in extents of size[] units */
byte device_free, host_free;
byte lost_device;	/* of the dead, as long as free memory has not risen */
bool rises;		/* it will */
byte count[OBJECTS], dev[OBJECTS], host[OBJECTS];
byte extra[CLIENTS];	/* what else a client has allocated */

/* coordinator */
mtype state = IDLE;
byte phase = A, target = A, trigger_role = NONE, number = 0;
byte members = EVERYBODY, gone = 0;
byte parts = 0;	 /* who is in the barrier */
byte waits = 0;	 /* whose answer is awaited */
byte tries = 0;
bool wanted = false;	/* somebody has something to move */
bool asked_hold = false;
bool not_held = false, failed = false;
bool refuse = false;	/* credits are asked for in vain */
byte named = 0;		/* who could not be moved back */
byte served[CLIENTS * 2];		/* arrivals that were answered, by role and phase */
byte arrived[CLIENTS * 2]; /* the number of the client's last arrival */
bool ever[CLIENTS * 2];
byte base[CLIENTS * 2];	/* served when the client joined */
byte phase_role = NONE; /* whose change the phase came with */
byte head[CLIENTS];	/* the phase of the arrival that waits, plus 1 */
chan queue[CLIENTS] = [3] of {byte}; /* arrivals behind it */

#include "barrier_client.pml"

inline tell(c, kind, value)
{
	if
	:: alive & BIT(c) -> assert(nfull(down[c])); down[c]!kind, number, value
	:: else /* lost; its death will be noticed */
	fi
}

inline ask(kind, value)
{
	number = number % 7 + 1;
	waits = parts;
	for (i : 0 .. CLIENTS - 1) {
		if
		:: parts & BIT(i) -> tell(i, kind, value)
		:: else
		fi
	}
}

#ifdef BREAK_ANY_PHASE
#define EVER(c, p) (ever[AT(c, A)] || ever[AT(c, B)])
#else
/* R2: the quorum of a phase is who has ever triggered that phase. */
#define EVER(c, p) ever[AT(c, p)]
#endif
#define BEHIND(c, r, p) (role[c] == r && EVER(c, p) && arrived[AT(c, p)] <= served[AT(r, p)])
#define READY(c, r, p) (head[c] == p + 1 && arrived[AT(c, p)] == served[AT(r, p)] + 1 && \
	!BEHIND(0, r, p) && !BEHIND(1, r, p) && !BEHIND(2, r, p))
#define READY_FOR(c) ((members & BIT(c)) && (READY(c, role[c], A) || READY(c, role[c], B)))

/* The barrier is over, in @outcome. R12: everybody is told the phase, also who was not in the barrier, and its participants with the
 * same message that opens them. R4: the arrivals are answered also when it was given up, or they would trigger the next. */
inline finish(outcome)
{
	phase_role = (outcome == target -> trigger_role : phase_role);
	phase = outcome;
	if
#ifdef BREAK_ABORT_KEEPS
	:: trigger_role != NONE && (phase == target) -> served[AT(trigger_role, target)]++
#else
	:: trigger_role != NONE -> served[AT(trigger_role, target)]++
#endif
#ifdef BREAK_COMMAND_COUNTS
	:: trigger_role == NONE -> served[AT(0, target)]++
#endif
	:: else
	fi;
	found = (trigger_role == NONE || gone);
	for (i : 0 .. CLIENTS - 1) {
		j = 0;
		if
		:: head[i] == target + 1 && role[i] == trigger_role && arrived[AT(i, target)] <= served[AT(trigger_role, target)] ->
			head[i] = 0;
			found = true;
			j = 1
		:: else
		fi;
		if
		:: (parts & BIT(i)) && asked_hold -> tell(i, OPEN, phase * 2 + j)
#ifdef BREAK_PARTS_ONLY
		:: (parts & BIT(i)) && !asked_hold -> tell(i, PHASE, phase * 2 + j)
#else
		:: (members & BIT(i)) && !((parts & BIT(i)) && asked_hold) -> tell(i, PHASE, phase * 2 + j)
#endif
		:: else
		fi
	}
	assert(found); /* else it begins again, for ever */
	found = false;
	state = IDLE;
	target = phase;
	trigger_role = NONE;
	parts = 0;
	waits = 0;
	tries = 0;
	wanted = false;
	asked_hold = false;
	not_held = false;
	failed = false;
	refuse = false
}

/* R1: arrivals are numbered by the coordinator, by client and phase, when they come to the head of the client's queue. The first one
 * of a client at a phase may be late for a change that was made without it: it is when the phase is in force by a change of its
 * role, or when it has missed exactly one since it joined (ranks in lockstep cannot miss two). Else it is for the next. */
#ifdef BREAK_FIRST_BY_PHASE
#define IS_LATE(c, p) (phase == p && target == p)
#else
#define IS_LATE(c, p) ((phase == p && target == p && phase_role == role[c]) || served[AT(role[c], p)] == base[AT(c, p)] + 1)
#endif
inline number_arrivals()
{
	for (i : 0 .. CLIENTS - 1) {
		do
		:: (members & BIT(i)) && head[i] == 0 && nempty(queue[i]) ->
			queue[i]?j;
			if
#ifdef BREAK_UNCOUNTED
			:: !ever[AT(i, j)] -> arrived[AT(i, j)] = served[AT(role[i], j)] + 1
#else
			:: !ever[AT(i, j)] && IS_LATE(i, j) -> arrived[AT(i, j)] = served[AT(role[i], j)]
			:: !ever[AT(i, j)] && !IS_LATE(i, j) -> arrived[AT(i, j)] = served[AT(role[i], j)] + 1
#endif
			:: else -> arrived[AT(i, j)]++
			fi;
			ever[AT(i, j)] = true;
			if
			:: arrived[AT(i, j)] <= served[AT(role[i], j)] -> tell(i, PHASE, phase * 2 + 1)
			:: else -> head[i] = j + 1
			fi
		:: !(members & BIT(i)) || head[i] || empty(queue[i]) -> break
		od
	}
}

#define LARGER(o) largest = (size[o] > largest -> size[o] : largest)
/* What is to be moved, in units: out and in with a host copy, given up, made anew; the largest extent among the first two. */
inline add_up()
{
	out = 0; into = 0; given = 0; made = 0; largest = 0;
	for (i : 0 .. OBJECTS - 1) {
		j = want[AT(i, target)];
#ifdef BREAK_PLAN_COUNTS
#define NOW(o) planned[o]
#else
		/* R7: what counts is what clients say when they are held; the answers to PLAN only tell whether to hold at all. */
#define NOW(o) dev[o]
#endif
		if
		:: !(parts & BIT(owner[i]))
		:: (parts & BIT(owner[i])) && fresh[i] && NOW(i) >= j -> given = given + NOW(i) - j
		:: (parts & BIT(owner[i])) && fresh[i] && NOW(i) < j -> made = made + (j - NOW(i)) * size[i]
		:: (parts & BIT(owner[i])) && !fresh[i] && NOW(i) > j -> out = out + (NOW(i) - j) * size[i]; LARGER(i)
		:: (parts & BIT(owner[i])) && !fresh[i] && NOW(i) < j -> into = into + (j - NOW(i)) * size[i]; LARGER(i)
		:: (parts & BIT(owner[i])) && !fresh[i] && NOW(i) == j
		fi
	}
}

/* R8: both ledgers end above zero, and where extents go both ways there is room to begin with: with extents of one size one of
 * them, free on either side; with several sizes 2 * largest - 1 units, as less can be split so that neither side fits. */
#ifdef BREAK_ONE_LARGEST
#define ENOUGH largest
#else
#define ENOUGH (2 * largest - 1)
#endif
#define FEASIBLE (device_free + out + given >= into + made && host_free + into >= out && \
	(out == 0 || into == 0 || device_free + given + host_free >= ENOUGH))

#define CHANGED(o) (dev[o] != before[o] && (parts & BIT(owner[o])))

/* what no plan can know beforehand; without any, what was judged feasible is done, and with one all can go back */
#define ACCIDENTS (FAILS - fails + DEATHS - deaths)
#define IS_AT(o) (!(parts & BIT(owner[o])) || dev[o] == want[AT(o, target)])

#define BEGIN_BY(c) trigger_role = role[c]; target = head[c] - 1; parts = members; state = PLANNING; question = PLAN; value = target

/* The table of docs/barrier.md: what follows when the last answer is in. */
inline advance()
{
	number_arrivals();
	do
	:: over != NONE -> finish(over); over = NONE; number_arrivals()
	:: over == NONE && question != MOVED -> ask(question, value); question = MOVED; value = 0
	:: over == NONE && question == MOVED ->
		if
		:: state == IDLE && READY_FOR(0) -> BEGIN_BY(0)
		:: state == IDLE && READY_FOR(1) -> BEGIN_BY(1)
		:: state == IDLE && READY_FOR(2) -> BEGIN_BY(2)
		:: state == PLANNING && waits == 0 && !wanted ->
			assert(!NOTHING_CHANGES || (IS_AT(0) && IS_AT(1) && IS_AT(2)));
			over = target
		:: state == PLANNING && waits == 0 && wanted -> tries = 1; asked_hold = true; state = HOLDING; question = HOLD
		:: state == HOLDING && waits == 0 && not_held && tries == TRIES -> assert(ACCIDENTS || !MUST_HOLD); over = phase
		:: state == HOLDING && waits == 0 && not_held && tries < TRIES ->
			not_held = false;
			state = REOPENING;
			question = REOPEN;
#ifndef BREAK_ARRIVED_STAY
			/* R5: who has arrived stays in the first opening, and goes on in later ones, in the old phase: nobody can
			 * see that a drain waits for it, but that nothing else was enough. */
			value = (tries > 1)
#endif
		:: state == HOLDING && waits == 0 && !not_held ->
			add_up();
			if
			:: FEASIBLE -> state = MOVING; question = MOVE; value = target
			:: else -> assert(ACCIDENTS || !MUST_MOVE); over = phase
			fi;
			out = 0; into = 0; given = 0; made = 0; largest = 0
		:: state == REOPENING && waits == 0 -> tries++; state = HOLDING; question = HOLD
		:: state == MOVING && waits == 0 && !failed -> over = target
		:: state == MOVING && waits == 0 && failed ->
			assert(ACCIDENTS);
			refuse = false;
			if
			:: CHANGED(0) || CHANGED(1) || CHANGED(2) -> state = REVERSING; question = REVERSE
			:: else -> over = phase
			fi
		:: state == REVERSING && waits == 0 ->
			assert(ACCIDENTS > 1 || !(CHANGED(0) || CHANGED(1) || CHANGED(2)));
			over = phase
		:: else -> break
		fi
	od;
	i = 0;
	j = 0
}

#ifdef BREAK_STALE_ANSWERS
#define CURRENT true
#else
/* R6: an answer counts only with the number of the question that is open. */
#define CURRENT (n == number)
#endif

inline handle(c)
{
	if
	:: kind == JOIN ->
		/* R13: who joins is told the phase, takes no part in a barrier under way, and is told its outcome. */
		members = members | BIT(c);
		base[AT(c, A)] = served[AT(role[c], A)];
		base[AT(c, B)] = served[AT(role[c], B)];
		tell(c, PHASE, phase * 2)
	:: kind == ARRIVE ->
		queue[c]!v
	:: kind == PLANNED && state == PLANNING && CURRENT ->
		waits = waits & ~BIT(c);
		wanted = wanted || v
	:: kind == HELD && state == HOLDING && CURRENT ->
		waits = waits & ~BIT(c);
#ifdef BREAK_FIRST_HELD
		waits = 0
#endif
	:: kind == NOT_HELD && state == HOLDING && CURRENT ->
		waits = waits & ~BIT(c);
		not_held = true
	:: kind == REOPENED && state == REOPENING && CURRENT -> waits = waits & ~BIT(c)
	:: kind == MOVED && (state == MOVING || state == REVERSING) && CURRENT ->
		waits = waits & ~BIT(c);
		if
		:: v && state == MOVING ->
			failed = true;
			refuse = true /* no further: what goes on now would have to come back */
		:: v && state == REVERSING -> named = named | BIT(c) /* the others come back as far as they can */
		:: else
		fi
	:: else
	fi
}

/* R14: a death answers everything that is asked of the dead, and may make a quorum complete. Its host bytes are free; those on the
 * device when free memory rises, which a child that has the device open can put off for ever. */
inline bury(c)
{
	gone = gone | BIT(c);
	members = members & ~BIT(c);
	parts = parts & ~BIT(c);
	named = named & ~BIT(c);
#ifndef BREAK_DEAF
	waits = waits & ~BIT(c);
#endif
	head[c] = 0;
	ever[AT(c, A)] = false;
	ever[AT(c, B)] = false;
	do :: queue[c]?_ :: empty(queue[c]) -> break od;
	do :: up[c]?_, _, _ :: empty(up[c]) -> break od;
	do :: down[c]?_, _, _ :: empty(down[c]) -> break od;
	j = extra[c];
	extra[c] = 0;
	for (i : 0 .. OBJECTS - 1) {
		if
		:: owner[i] == c ->
			j = j + dev[i] * size[i] + (busy[i] == COMES -> size[i] : 0);
			host_free = host_free + host[i] * size[i] + (busy[i] == GOES -> size[i] : 0);
			dev[i] = 0; host[i] = 0; busy[i] = NOTHING; goal[i] = 0; before[i] = 0
		:: else
		fi
	}
	forget(c);
	if
	:: device_free = device_free + j
	:: j > 0 -> lost_device = lost_device + j; rises = true
	:: j > 0 -> lost_device = lost_device + j
	fi
}

#define DEAD(c) (!(alive & BIT(c)) && !(gone & BIT(c)))

/* R9: the ask for a credit waits only as long as somebody works: has one that is not settled, has not read MOVE yet, or is dead and
 * its bytes will come. When nobody does, all asks are refused. */
#define WORKS(o) (busy[o] || CAN(o))
#define STALLED ((state == MOVING || state == REVERSING) && !refuse && waits && !rises && \
	!WORKS(0) && !WORKS(1) && !WORKS(2) && !UNREAD(0) && !UNREAD(1) && !UNREAD(2) && !DEAD(0) && !DEAD(1) && !DEAD(2) && \
	!(DONE(0) && moves[0]) && !(DONE(1) && moves[1]) && !(DONE(2) && moves[2]) && \
	empty(up[0]) && empty(up[1]) && empty(up[2]))
#define WAITS_IN_VAIN(o) (MAY(o) && !fresh[o] && dev[o] > goal[o] && host_free < size[o] && \
	busy[0] != COMES && busy[1] != COMES && busy[2] != COMES)

proctype coordinator()
{
	mtype kind = PLAN;
	byte i = 0, j = 0, n = 0, v = 0;
	byte who = 0, over = NONE, value = 0;
	bool dead = false, found = false;
	mtype question = MOVED; /* none */
	byte out = 0, into = 0, given = 0, made = 0, largest = 0;

	do
	:: atomic {
		if
		:: up[0]?kind, n, v -> who = 0
		:: up[1]?kind, n, v -> who = 1
		:: up[2]?kind, n, v -> who = 2
		:: DEAD(0) -> dead = true; who = 0
		:: DEAD(1) -> dead = true; who = 1
		:: DEAD(2) -> dead = true; who = 2
		/* an arrival by command, one at a time; it has no number, or it would stand for one of a client (R3) */
		:: state == IDLE && nempty(command) -> command?target; parts = members; state = PLANNING; question = PLAN; value = target
#ifdef BREAK_NO_PATIENCE
		/* a release waits only for an acquire that holds its credit, never for one that asks */
		:: WAITS_IN_VAIN(0) || WAITS_IN_VAIN(1) || WAITS_IN_VAIN(2) -> refuse = true
#elif !defined(BREAK_WAIT_FOREVER)
		:: STALLED -> refuse = true
#endif
		:: rises -> device_free = device_free + lost_device; lost_device = 0; rises = false
		/* R6: silence is an answer too, but not while pages move: then only the death of the silent one is. */
		:: slow > 0 && waits && state == HOLDING -> slow--; not_held = true; waits = 0
		:: slow > 0 && waits && (state == PLANNING || state == REOPENING) -> slow--; over = phase
		fi;
		if
		:: dead -> bury(who)
		:: !dead && kind != PLAN -> handle(who)
		:: else
		fi;
		kind = PLAN; n = 0; v = 0; who = 0; dead = false;
		advance();
		LEDGERS
	}
	od
}

/* A client may die between any two steps. */
proctype death()
{
	do
	:: deaths > 0 -> atomic {
		deaths--;
		if
		:: alive & 1 -> alive = alive & ~1
		:: alive & 2 -> alive = alive & ~2
		:: alive & 4 -> alive = alive & ~4
		fi
	}
	:: true -> break
	od
}

#define IS_FINE(c) (!(alive & BIT(c)) || !(members & BIT(c)) || (phase_of[c] == phase && !in_barrier[c] && \
	(gate[c] == GATE_OPEN || (gate[c] == GATE_HELD && HOLE(c)))))
/* Nobody waits at a trigger for what does not come. */
#define IS_ANSWERED(c) (!(alive & BIT(c)) || !calls[c] || unanswered[c] == 0)
/* A call waits only where it cannot be served. */
#define IS_SERVED(c) (!(alive & BIT(c)) || !calls[c] || (HOLE(c) && !SERVICEABLE(c)))
/* What is not where the phase wants it is named, unless room for it is what was missing. */
#define IS_NAMED(o) (!(alive & BIT(owner[o])) || gate[owner[o]] != GATE_HELD || dev[o] >= want[AT(o, phase)] || \
	(named & BIT(owner[o])))

/* Nothing can happen any more. */
proctype at_the_end()
{
	timeout;
	assert(state == IDLE && waits == 0);
	assert(IS_FINE(0) && IS_FINE(1) && IS_FINE(2));
	assert(IS_ANSWERED(0) && IS_ANSWERED(1) && IS_ANSWERED(2));
	assert(IS_SERVED(0) && IS_SERVED(1) && IS_SERVED(2));
	assert(IS_NAMED(0) && IS_NAMED(1) && IS_NAMED(2));
	assert(ACCIDENTS || phase == LAST_PHASE || LAST_PHASE == NONE);
	ended = true
}

init
{
	atomic {
		SETUP
		run coordinator();
		run at_the_end();
		run helper0(); run helper1(); run helper2();
		run app0(); run app1(); run app2();
		run lane(0); run lane(1); run lane(2);
		run death();
		run controller()
	}
}
