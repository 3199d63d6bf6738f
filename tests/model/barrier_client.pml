/* tests/model/barrier_client.pml
 * The clients of barrier.pml: the thread that talks to the coordinator (helper), the threads of the application (app), and what
 * moves the extents of one object (lane). */

#define GATE_OPEN 0
#define GATE_SHUT 1
#define GATE_HELD 2

#define NOTHING 0
#define GOES 1	/* an extent on its way to host memory; its host credit is taken */
#define COMES 2 /* on its way to the device; its device credit is taken */

byte gate[CLIENTS];
byte phase_of[CLIENTS];	  /* as the client knows it */
byte unanswered[CLIENTS]; /* arrivals */
bool calls[CLIENTS];	  /* a gated call is due: it waits, or comes soon */
bool through[CLIENTS];	  /* this opening lets threads on that have arrived */
bool in_barrier[CLIENTS]; /* between HOLD and what ends it */
byte tries_to[CLIENTS];	  /* hold; the number of the question */
byte reopened[CLIENTS];	  /* the number of the question */
byte moves[CLIENTS];	  /* the number of the question */
bool broken[CLIENTS];	  /* an extent could not be moved */
bool parked[CLIENTS];	  /* what is away is mapped: no hole */
byte busy[OBJECTS], goal[OBJECTS], before[OBJECTS];
#ifdef BREAK_PLAN_COUNTS
byte planned[OBJECTS];
#endif
byte launched = 0; /* the halves of a collective that were, by client; ends when both are */
byte steps[CLIENTS]; /* of ranks in lockstep */
bool ended = false;
byte deaths = DEATHS, fails = FAILS, slow = SLOW;

#define HOLE_OF(o, c) (owner[o] == c && (fresh[o] && dev[o] < count[o] || !fresh[o] && host[o] > 0 && !parked[c]))
#define HOLE(c) (HOLE_OF(0, c) || HOLE_OF(1, c) || HOLE_OF(2, c))
#define DRAINED(c) (!(launched & BIT(c)) || launched == COLLECTIVE)

/* ---- the ledgers ---- */

#define ON_DEVICE(o) (dev[o] * size[o] + (busy[o] == COMES -> size[o] : 0))
#define IN_HOST(o) (host[o] * size[o] + (busy[o] == GOES -> size[o] : 0))
#define LEDGERS \
	assert(device_free + lost_device + extra[0] + extra[1] + extra[2] + ON_DEVICE(0) + ON_DEVICE(1) + ON_DEVICE(2) == DEVICE); \
	assert(host_free + IN_HOST(0) + IN_HOST(1) + IN_HOST(2) == HOST);

/* ---- moving ---- */

#define MAY(o) (moves[owner[o]] && (alive & BIT(owner[o])) && !broken[owner[o]] && !refuse && !busy[o])
#define LEFT_OF(o) (moves[owner[o]] && !fresh[o] && dev[o] != goal[o])
/* has not read MOVE yet, or has answered it */
#define UNREAD(c) ((waits & BIT(c)) && !moves[c])
#define EXCHANGES (LEFT_OF(0) || LEFT_OF(1) || LEFT_OF(2) || UNREAD(0) || UNREAD(1) || UNREAD(2))
#define CAN_DISCARD(o) (MAY(o) && fresh[o] && dev[o] > goal[o])
#define CAN_RELEASE(o) (MAY(o) && !fresh[o] && dev[o] > goal[o] && host_free >= size[o])
#ifdef BREAK_RELEASES_FIRST
#define STILL_GOES(o, p) (owner[o] == owner[p] && !fresh[p] && dev[p] > goal[p])
#define CAN_ACQUIRE(o) (MAY(o) && !fresh[o] && dev[o] < goal[o] && device_free >= size[o] && \
	!STILL_GOES(o, 0) && !STILL_GOES(o, 1) && !STILL_GOES(o, 2))
#else
/* R10: a client asks for both credits and uses the one that comes; a release may wait for its own acquire. */
#define CAN_ACQUIRE(o) (MAY(o) && !fresh[o] && dev[o] < goal[o] && device_free >= size[o])
#endif
#ifdef BREAK_REFILL_EARLY
#define CAN_REFILL(o) (MAY(o) && fresh[o] && dev[o] < goal[o] && device_free >= size[o])
#else
/* R11: what returns without content gives nothing back, so it comes when nothing is exchanged any more. */
#define CAN_REFILL(o) (MAY(o) && fresh[o] && dev[o] < goal[o] && device_free >= size[o] && !EXCHANGES)
#endif
#define CAN(o) (CAN_DISCARD(o) || CAN_RELEASE(o) || CAN_ACQUIRE(o) || CAN_REFILL(o))

#define DONE_OF(o, c) (owner[o] != c || (!busy[o] && (dev[o] == goal[o] || broken[c] || refuse)))
#define DONE(c) (DONE_OF(0, c) && DONE_OF(1, c) && DONE_OF(2, c))
#define SHORT_OF(o, c) (owner[o] == c && dev[o] != goal[o])

#define STANDS(c) (!(parts & BIT(c)) || !(alive & BIT(c)) || gate[c] == GATE_HELD)
#define MOVES_ONLY_WHEN_ALL_STAND assert(STANDS(0) && STANDS(1) && STANDS(2)); LEDGERS

proctype lane(byte o)
{
	do
	:: atomic {
		if
		:: CAN_DISCARD(o) -> dev[o]--; device_free = device_free + size[o]
		:: CAN_REFILL(o) -> device_free = device_free - size[o]; dev[o]++
		:: CAN_RELEASE(o) -> host_free = host_free - size[o]; busy[o] = GOES
		:: CAN_ACQUIRE(o) -> device_free = device_free - size[o]; busy[o] = COMES
		:: busy[o] == GOES && (alive & BIT(owner[o])) -> /* commit */
			busy[o] = NOTHING;
			dev[o]--; host[o]++;
			device_free = device_free + size[o];
			parked[owner[o]] = parks[owner[o]]
		:: busy[o] == COMES && (alive & BIT(owner[o])) ->
			busy[o] = NOTHING;
			dev[o]++; host[o]--;
			host_free = host_free + size[o]
		:: busy[o] && fails > 0 && (alive & BIT(owner[o])) ->
			fails--;
			broken[owner[o]] = true;
			device_free = device_free + (busy[o] == COMES -> size[o] : 0);
			host_free = host_free + (busy[o] == GOES -> size[o] : 0);
			busy[o] = NOTHING
		fi;
		MOVES_ONLY_WHEN_ALL_STAND
	}
	od
}

/* ---- the helper ---- */

inline answer(c, what, question, value)
{
	assert(nfull(up[c]));
	up[c]!what, question, value
}

#define NEEDS_OF(o, c, p) (owner[o] == c && dev[o] != want[AT(o, p)])

#define NEED_OF(o, c) (owner[o] == c -> (count[o] - dev[o]) * size[o] : 0)
#define NEED(c) (NEED_OF(0, c) + NEED_OF(1, c) + NEED_OF(2, c))
/* R15: a soft hold is served at any time but between HOLD and what ends it; one credit for all it needs, or two that have half each
 * would wait for each other. Parking needs none. */
#ifdef CAN_PARK
#define SERVICEABLE(c) true
#else
#define SERVICEABLE(c) (device_free >= NEED(c) + RESERVE)
#endif
#ifdef BREAK_SERVICE_ALWAYS
#define MAY_SERVE(c) true
#else
#define MAY_SERVE(c) (!in_barrier[c])
#endif
#define IS_WAITING_SOFTLY(c) (gate[c] == GATE_HELD && HOLE(c) && calls[c] && (unanswered[c] == 0 || through[c]))

inline restore(o, c)
{
	if
	:: owner[o] == c ->
		device_free = device_free - (count[o] - dev[o]) * size[o];
		host_free = host_free + host[o] * size[o];
		dev[o] = count[o];
		host[o] = 0
	:: else
	fi
}

inline save(o, c, p)
{
	if
	:: owner[o] == c -> before[o] = dev[o]; goal[o] = want[AT(o, p)]
	:: else
	fi
}

inline turn(o, c)
{
	if
#ifdef BREAK_REVERSE_TO_WANTS
	:: owner[o] == c -> goal[o] = want[AT(o, phase)]
#else
	/* R16: back to where it was, which need not be where the old phase wants it */
	:: owner[o] == c -> goal[o] = before[o]
#endif
	:: else
	fi
}

inline clean(o, c)
{
	if
	:: owner[o] == c -> before[o] = 0; goal[o] = 0
	:: else
	fi
}

inline forget(c)
{
	clean(0, c); clean(1, c); clean(2, c);
	gate[c] = GATE_OPEN;
	unanswered[c] = 0; calls[c] = false; through[c] = false; in_barrier[c] = false;
	tries_to[c] = 0; reopened[c] = 0; moves[c] = 0; broken[c] = false; parked[c] = false
}

inline told(c)
{
	phase_of[c] = v / 2;
	unanswered[c] = unanswered[c] - v % 2
}

inline obey(c)
{
	if
	:: kind == PLAN ->
#ifdef BREAK_PLAN_COUNTS
		if :: owner[0] == c -> planned[0] = dev[0] :: else fi;
		if :: owner[1] == c -> planned[1] = dev[1] :: else fi;
		if :: owner[2] == c -> planned[2] = dev[2] :: else fi;
#endif
		answer(c, PLANNED, n, (NEEDS_OF(0, c, v) || NEEDS_OF(1, c, v) || NEEDS_OF(2, c, v)))
	:: kind == HOLD ->
		in_barrier[c] = true;
		through[c] = false;
		if
		:: gate[c] == GATE_HELD -> answer(c, HELD, n, 0)
		:: else -> gate[c] = GATE_SHUT; tries_to[c] = n
		fi
	:: kind == REOPEN ->
		in_barrier[c] = false;
		through[c] = v;
		reopened[c] = n;
		if
#ifndef BREAK_REOPEN_HOLES
		/* R17: whatever opens a gate leaves one with holes held, so that holes are served and never stepped into */
		:: HOLE(c) -> gate[c] = GATE_HELD
#endif
		:: else -> gate[c] = GATE_OPEN
		fi
	:: kind == MOVE ->
		moves[c] = n;
		save(0, c, v); save(1, c, v); save(2, c, v)
	:: kind == REVERSE ->
		moves[c] = n;
		turn(0, c); turn(1, c); turn(2, c)
	:: kind == OPEN ->
		in_barrier[c] = false;
		through[c] = false;
		clean(0, c); clean(1, c); clean(2, c);
		told(c);
		if
#ifndef BREAK_OPEN_HOLES
		:: HOLE(c) -> gate[c] = GATE_HELD
#endif
		:: else -> gate[c] = GATE_OPEN
		fi
	:: kind == PHASE -> told(c)
	fi
}

#define COULD_GO_ON(c) (calls[c] && (unanswered[c] == 0 || through[c]) && \
	(gate[c] == GATE_OPEN || (gate[c] == GATE_HELD && HOLE(c) && SERVICEABLE(c))))

inline help(c)
{
	do
	:: atomic {
		if
		:: !tries_to[c] && !reopened[c] && !moves[c] && nempty(down[c]) -> down[c]?kind, n, v; obey(c)
		:: tries_to[c] && DRAINED(c) -> gate[c] = GATE_HELD; answer(c, HELD, tries_to[c], 0); tries_to[c] = 0
		/* the deadline; alone it opens at once, as what it waits for may wait here */
		:: tries_to[c] && !DRAINED(c) -> gate[c] = GATE_OPEN; answer(c, NOT_HELD, tries_to[c], 0); tries_to[c] = 0
#ifdef BREAK_SHORT_OPENING
		:: reopened[c] ->
#else
		/* R18: an opening lasts until the calls that waited, or come soon, are through */
		:: reopened[c] && !COULD_GO_ON(c) ->
#endif
			answer(c, REOPENED, reopened[c], 0); reopened[c] = 0
		:: moves[c] && DONE(c) ->
			answer(c, MOVED, moves[c], (SHORT_OF(0, c) || SHORT_OF(1, c) || SHORT_OF(2, c)));
			moves[c] = 0;
			broken[c] = false
		:: IS_WAITING_SOFTLY(c) && MAY_SERVE(c) && SERVICEABLE(c) ->
#ifdef CAN_PARK
			parked[c] = true;
#else
			restore(0, c); restore(1, c); restore(2, c);
#endif
			named = named & ~BIT(c);
			gate[c] = GATE_OPEN;
			LEDGERS
		fi;
		kind = PLAN; n = 0; v = 0
	}
	od
}

/* A dead process does nothing more. */
proctype helper0() provided (alive & 1) { mtype kind = PLAN; byte n = 0, v = 0; help(0) }
proctype helper1() provided (alive & 2) { mtype kind = PLAN; byte n = 0, v = 0; help(1) }
proctype helper2() provided (alive & 4) { mtype kind = PLAN; byte n = 0, v = 0; help(2) }

/* ---- the application ---- */

/* A trigger records the arrival and sends it; what waits is the next gated call. */
inline trigger(c, p)
{
	atomic { unanswered[c]++; answer(c, ARRIVE, 0, p) }
}

inline passes(c)
{
	gate[c] == GATE_OPEN && (unanswered[c] == 0 || through[c]) ->
	calls[c] = false;
	assert(!HOLE(c));
	assert(!moves[c])
}

inline call(c)
{
	calls[c] = true;
	atomic { passes(c) }
}

/* a half of a collective: what runs then waits for the other half */
inline launch(c)
{
	calls[c] = true;
	atomic { passes(c); launched = launched | BIT(c) }
}

/* ranks in lockstep: the step ends when both are in it */
inline step(c)
{
	atomic { call(c); steps[c]++ };
	steps[0] >= steps[c] && steps[1] >= steps[c]
}

/* Allocations are not gated: at any time, a bounded wait, then the plain answer that there is none. */
#ifdef BREAK_ALLOCATE_ALWAYS
#define IS_FREE (device_free > RESERVE)
#else
/* R19: from the judgement to the end no credit goes to allocations, and at other times none of the reserve */
#define IS_FREE (state != MOVING && state != REVERSING && device_free > RESERVE)
#endif

inline allocate(c)
{
	if
	:: atomic { IS_FREE -> device_free--; extra[c]++; LEDGERS }
	:: skip
	fi
}

/* One that belongs to an object. */
inline grow(o)
{
	if
	:: atomic { IS_FREE -> device_free--; count[o]++; dev[o]++; LEDGERS }
	:: skip
	fi
}

inline join(c)
{
	answer(c, JOIN, 0, 0);
	phase_of[c] != NONE
}

proctype app0() provided (alive & 1) { SCRIPT_0 }
proctype app1() provided (alive & 2) { SCRIPT_1 }
proctype app2() provided (alive & 4) { SCRIPT_2 }
proctype controller() { SCRIPT_COMMAND }
