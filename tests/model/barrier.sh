#!/bin/sh
# tests/model/barrier.sh MODEL COMPILER [long]
# The model of the barrier is right in each case as it stands, and wrong when a rule is broken on purpose. Skipped without spin.
# "long" takes minutes: cases with deaths and failures beside each other, none of spin's shortcuts, and no endless round.
set -u
command -v spin >/dev/null 2>&1 || { echo 'skip: no spin here (Debian: apt-get install spin)'; exit 77; }
model=$(realpath "$1")
compiler=$2
how=${3:-short}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

# a rule that is broken needs the case in which it matters
short='right CASE_EXCHANGE
right CASE_EXCHANGE ROOM_ON_DEVICE
right CASE_FULL
right CASE_TWICE
right CASE_BOTH_WAYS
right CASE_REFILL
right CASE_DISCARD
right CASE_SIZES
right CASE_SIZES TIGHT
right CASE_FAILURES
right CASE_DEATHS
right CASE_COLLECTIVE
right CASE_ARRIVED
right CASE_STUCK
right CASE_QUORUM
right CASE_QUORUM COMMANDED
right CASE_ONE_RANK_ENTERS
right CASE_JOIN
right CASE_SERVICE
right CASE_SLOW
right CASE_ALLOCATIONS
right CASE_GROWTH
wrong CASE_QUORUM BREAK_UNCOUNTED
wrong CASE_QUORUM BREAK_FIRST_BY_PHASE
wrong CASE_ONE_RANK_ENTERS BREAK_ANY_PHASE
wrong CASE_QUORUM COMMANDED BREAK_COMMAND_COUNTS
wrong CASE_STUCK BREAK_ABORT_KEEPS
wrong CASE_ARRIVED BREAK_ARRIVED_STAY
wrong CASE_SLOW BREAK_STALE_ANSWERS
wrong CASE_GROWTH BREAK_PLAN_COUNTS
wrong CASE_SIZES TIGHT BREAK_ONE_LARGEST
wrong CASE_FAILURES BREAK_WAIT_FOREVER
wrong CASE_DEATHS BREAK_WAIT_FOREVER
wrong CASE_EXCHANGE ROOM_ON_DEVICE BREAK_NO_PATIENCE
wrong CASE_BOTH_WAYS BREAK_RELEASES_FIRST
wrong CASE_REFILL BREAK_REFILL_EARLY
wrong CASE_JOIN BREAK_PARTS_ONLY
wrong CASE_DEATHS BREAK_DEAF
wrong CASE_EXCHANGE BREAK_SERVICE_ALWAYS
wrong CASE_SERVICE BREAK_REVERSE_TO_WANTS
wrong CASE_COLLECTIVE BREAK_REOPEN_HOLES
wrong CASE_EXCHANGE BREAK_OPEN_HOLES
wrong CASE_COLLECTIVE BREAK_SHORT_OPENING
wrong CASE_ALLOCATIONS BREAK_ALLOCATE_ALWAYS
wrong CASE_ALLOCATIONS RESERVE=0
wrong CASE_EXCHANGE BREAK_FIRST_HELD'
long='right CASE_DEATHS DEATHS=2
right CASE_DEATHS FAILS=1
right CASE_FAILURES FAILS=3
right CASE_EXCHANGE DEATHS=1
right CASE_EXCHANGE FAILS=1
right CASE_BOTH_WAYS FAILS=2
right CASE_REFILL FAILS=2
right CASE_SIZES FAILS=1
right CASE_DISCARD FAILS=2
right CASE_DISCARD DEATHS=1
right CASE_COLLECTIVE DEATHS=1
right CASE_ARRIVED DEATHS=1
right CASE_STUCK DEATHS=1
right CASE_JOIN DEATHS=1
right CASE_SERVICE DEATHS=1
right CASE_SLOW SLOW=3'

# $1: a folder for it; $2: "right" or "wrong"; $3: "states" or "rounds"; the rest: what is defined
check() {
	mkdir "$1" && cd "$1" || exit 1
	wanted=$2
	defines=
	case $how in long) options=-DNOREDUCE;; *) options=;; esac
	case $3 in rounds) options="$options -DNP"; search=-l;; *) options="$options -DSAFETY"; search=;; esac
	shift 3
	for define; do defines="$defines -D$define"; done
	# what stands still is looked at by the model itself (-E), so spin need not; unoptimised, as compiling would take longer
	if ! { spin $defines -a "$model" && $compiler -O0 -DMEMLIM=900 $options -o pan pan.c && ./pan -m200000 -E $search; } >said 2>&1; then
		echo "FAIL $*: spin or the compiler refused:"
		cat said
	fi
	if grep -q 'errors: 0$' said; then got=right; else got=wrong; fi
	# who looks at the end must have seen one
	if grep -q 'search depth too small\|max search depth\|out of memory' said; then got=unfinished
	elif [ $got = right ] && grep -q 'ended = 1' said; then got=endless
	fi
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' said)
	echo "$*$search: $got, $states states"
	[ "$got" = "$wanted" ] || { sed -n '1,20p' said; echo "FAIL $*: $wanted was expected"; }
	cd .. && rm -rf "$1"
}

# every second line of the table, from the first or from the second on
half() {
	number=0
	while read -r wanted defines; do
		number=$((number + 1))
		[ $((number % 2)) = "$1" ] || continue
		check $number.$2 "$wanted" $2 $defines
	done
}

all() {
	echo "$2" | half 0 $1 >even.$1 2>&1 &
	echo "$2" | half 1 $1 >odd.$1 2>&1
	wait
	cat odd.$1 even.$1
}

all states "$short" >said
if [ $how = long ]; then
	all states "$long" >>said
	all rounds "$(echo "$short" | grep ^right)" >>said
fi
cat said
! grep -q '^FAIL' said
