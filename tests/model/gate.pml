/* tests/model/gate.pml
 * The race between gated calls and the closer (lifecycle/gate.c, hold.c), with the store buffer that lets a call's load of the
 * gate overtake its mark. Checked by gate.sh with spin: in no order does a call submit while pages move, and nobody is left
 * waiting. Each of these breaks the model on purpose, and must be found:
 *   WITHOUT_BARRIER  the closer makes no membarrier
 *   LATE_THROUGH     `through` is read after the slots were waited for
 *   WITHOUT_CHECK    held without a second look at slots and `through`
 *   DEAF_CALLBACK    a call-back waits like any other call
 * FENCED: no membarrier, a full fence in each call instead. */

#define CALLERS 2 /* threads that launch */
#define CALLBACK 2 /* the number of the thread that runs a host function, which launches */
#define SLOTS 3

#define OPEN 0
#define SHUT 1
#define HELD 2

/* work on the device; the host function is one, what it launches another */
#define HOST_FUNCTION 2
#define INSIDE 3
#define WORKS 4
#define IDLE 0
#define RUNS 1

byte word = OPEN;
byte through = 0;
byte depth[SLOTS];	/* as the closer sees it */
byte work[WORKS];
bool moving = false;	/* the closer touches the pages */
bool ended = false;
chan buffer[SLOTS] = [2] of {byte}; /* stores of `depth` on their way */

inline drain_buffer(i)
{
	do
	:: nempty(buffer[i]) -> buffer[i]?depth[i]
	:: empty(buffer[i]) -> break
	od
}

/* The processor writes stores back when it likes. */
active proctype write_back()
{
end:	do
	:: buffer[0]?depth[0]
	:: buffer[1]?depth[1]
	:: buffer[2]?depth[2]
	od
}

/* The device ends what runs, in any order. A host function ends by itself. */
active proctype device()
{
end:	do
	:: atomic { work[0] == RUNS -> work[0] = IDLE }
	:: atomic { work[1] == RUNS -> work[1] = IDLE }
	:: atomic { work[INSIDE] == RUNS -> work[INSIDE] = IDLE }
	od
}

inline mark(i)
{
	buffer[i]!1;
#ifdef FENCED
	atomic { drain_buffer(i) }
#endif
}

inline unmark(i)
{
	buffer[i]!0
}

inline submit(item)
{
	assert(!moving);
	work[item] = RUNS
}

proctype caller(byte me)
{
	byte seen, calls = 0;

	do
	:: calls < 2 ->
		do
		:: mark(me);
			seen = word;
			if
			:: seen == OPEN -> break
			:: else -> unmark(me); word == OPEN
			fi
		od;
		/* one piece of work of its own at a time is enough */
		if
		:: work[me] == IDLE -> submit(me)
		:: else -> assert(!moving)
		fi;
		unmark(me);
		calls++
	:: calls == 2 -> break
	od
}

/* A host function: it runs on the device's time, and launches. */
proctype callback()
{
	byte seen;

	do
	:: mark(CALLBACK);
		seen = word;
		if
		:: seen == OPEN -> break
#ifdef DEAF_CALLBACK
		:: else -> unmark(CALLBACK); word == OPEN
#else
		:: seen == SHUT ->
			atomic { drain_buffer(CALLBACK) } /* counting is a locked step */
			through++;
			break
		:: seen == HELD -> unmark(CALLBACK); word != HELD
#endif
		fi
	od;
	submit(INSIDE);
	unmark(CALLBACK);
	work[HOST_FUNCTION] = IDLE
}

inline barrier()
{
#if !defined(WITHOUT_BARRIER) && !defined(FENCED)
	atomic { drain_buffer(0); drain_buffer(1); drain_buffer(2) }
#else
	skip
#endif
}

#define NO_MARK (depth[0] == 0 && depth[1] == 0 && depth[2] == 0)

proctype closer()
{
	byte before;
	bool marked[WORKS];

	do
	:: word = SHUT;
#ifndef LATE_THROUGH
		before = through;
#endif
		barrier();
		depth[0] == 0;
		depth[1] == 0;
		depth[2] == 0;
#ifdef LATE_THROUGH
		before = through;
#endif
		atomic {
			marked[0] = (work[0] == RUNS);
			marked[1] = (work[1] == RUNS);
			marked[2] = (work[2] == RUNS);
			marked[3] = (work[3] == RUNS)
		}
		(!marked[0] || work[0] == IDLE);
		(!marked[1] || work[1] == IDLE);
		(!marked[2] || work[2] == IDLE);
		(!marked[3] || work[3] == IDLE);
		word = HELD;
		barrier();
#ifdef WITHOUT_CHECK
		break
#else
		if
		:: NO_MARK && before == through -> break
		:: else
		fi
#endif
	od;
	moving = true;
	assert(work[0] == IDLE && work[1] == IDLE && work[HOST_FUNCTION] == IDLE && work[INSIDE] == IDLE);
	moving = false;
	word = OPEN;
	ended = true
}

init
{
	atomic {
		work[HOST_FUNCTION] = RUNS;
		run caller(0);
		run caller(1);
		run callback();
		run closer()
	}
}

