/* tools/sim/sim_machine.c
 * The physical memory of one simulated machine, in a table that its processes map: who holds which piece. A process that
 * died is swept by whoever looks next. The bytes themselves are memfds, so a small /dev/shm does not limit them. */
#include "tools/sim/sim_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"

#define MACHINE_MAGIC 0x53494d33u /* of this layout; rises with it */
#define PIECES 65536
#define PROCESSES 256

struct piece {
	uint64_t id, bytes;
	int32_t location;
	uint32_t exported; /* a descriptor of it went out of the driver's hands */
	uint32_t holders;  /* processes with references */
	uint32_t seen;     /* the scan that found it open in some process */
};
struct process {
	int32_t pid;
	uint64_t start;
};
struct machine {
	uint32_t magic;
	pthread_mutex_t lock;
	uint64_t next_id;
	uint64_t used[SIM_DEVICES_MAX + 1]; /* [0] is host */
	uint64_t peak[SIM_DEVICES_MAX + 1]; /* the most of it since the last reset */
	uint32_t hint;   /* pieces from here on were never used */
	uint32_t cursor; /* where the search for a free piece goes on */
	uint32_t scans;
	struct process processes[PROCESSES];
	struct piece pieces[PIECES];
	/* References of each process to each piece. The pages of processes that never were take no memory. */
	uint32_t references[PROCESSES][PIECES];
};

static struct machine *machine;
static int own_process; /* index plus one */
static char token[64];

/* 0 for a process that is gone; a zombie holds nothing any more. */
static uint64_t start_of(int pid)
{
	bool zombie;
	uint64_t ticks = process_start_ticks(pid, &zombie);

	return zombie ? 0 : ticks;
}

static void mend(void);

static void lock_machine(void)
{
	/* The owner died in the middle of a change. */
	if (pthread_mutex_lock(&machine->lock) == EOWNERDEAD) {
		mend();
		pthread_mutex_consistent(&machine->lock);
	}
}

static void unlock_machine(void)
{
	pthread_mutex_unlock(&machine->lock);
}

const char *sim_machine_token(void)
{
	return token;
}

static void set_up(bool shared)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	if (shared) {
		pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
		pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	}
	pthread_mutex_init(&machine->lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
	machine->next_id = 1;
	__atomic_store_n(&machine->magic, MACHINE_MAGIC, __ATOMIC_RELEASE);
}

static struct machine *map_table(int fd)
{
	void *table = mmap(NULL, sizeof(struct machine), PROT_READ | PROT_WRITE,
		fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED, fd, 0);

	return table == MAP_FAILED ? NULL : table;
}

static uint64_t *used_at(int location)
{
	return &machine->used[location + 1];
}

/* Marks the exported pieces of which a descriptor is open in any process: their bytes are there, whoever made them. One
 * pass over all processes for all pieces. */
static void scan(void)
{
	char name[64], link[512], target[160], prefix[96];
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	size_t prefix_length;

	machine->scans++;
	snprintf(prefix, sizeof(prefix), "/memfd:sublet-sim-%s-", token);
	prefix_length = strlen(prefix);
	while (processes && (entry = readdir(processes))) {
		struct dirent *fd;
		DIR *fds;

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		snprintf(name, sizeof(name), "/proc/%.20s/fd", entry->d_name);
		fds = opendir(name);
		while (fds && (fd = readdir(fds))) {
			struct piece *piece;
			uint64_t id;
			ssize_t n;

			snprintf(link, sizeof(link), "%s/%.20s", name, fd->d_name);
			n = readlink(link, target, sizeof(target) - 1);
			if (n <= 0)
				continue;
			target[n] = '\0';
			if (strncmp(target, prefix, prefix_length) != 0)
				continue;
			id = strtoull(target + prefix_length, NULL, 10);
			piece = &machine->pieces[id & (PIECES - 1)];
			if (piece->id == id)
				piece->seen = machine->scans;
		}
		if (fds)
			closedir(fds);
	}
	if (processes)
		closedir(processes);
}

static void clear_piece(struct piece *piece)
{
	*used_at(piece->location) -= piece->bytes;
	*piece = (struct piece){0};
}

/* One process less holds @piece. An exported one may live on in a descriptor: sweep() sees to it. */
static void let_go(struct piece *piece)
{
	if (--piece->holders == 0 && !piece->exported)
		clear_piece(piece);
}

static void drop_process(int index)
{
	uint32_t *references = machine->references[index - 1];

	for (unsigned i = 0; i < machine->hint; i++) {
		if (references[i]) {
			references[i] = 0;
			let_go(&machine->pieces[i]);
		}
	}
	machine->processes[index - 1] = (struct process){0};
}

static void drop_dead(void)
{
	for (int i = 0; i < PROCESSES; i++) {
		struct process *process = &machine->processes[i];

		if (process->pid && i + 1 != own_process && start_of(process->pid) != process->start)
			drop_process(i + 1);
	}
}

/* Dead processes, then memory that only a descriptor held. */
static void sweep(void)
{
	bool scanned = false;

	drop_dead();
	for (unsigned i = 0; i < machine->hint; i++) {
		struct piece *piece = &machine->pieces[i];

		if (!piece->id || piece->holders)
			continue;
		if (!scanned)
			scan();
		scanned = true;
		if (piece->seen != machine->scans)
			clear_piece(piece);
	}
}

/* Everything that follows from the references is counted anew: a process that died inside a change left it half done. */
static void mend(void)
{
	memset(machine->used, 0, sizeof(machine->used));
	for (unsigned i = 0; i < PIECES; i++) {
		struct piece *piece = &machine->pieces[i];

		if (piece->id && i >= machine->hint)
			machine->hint = i + 1;
		piece->holders = 0;
		for (int p = 0; p < PROCESSES && machine->processes[p].pid; p++) {
			if (!piece->id)
				machine->references[p][i] = 0;
			piece->holders += machine->references[p][i] != 0;
		}
		if (!piece->id)
			continue;
		if (piece->location < SIM_HOST || piece->location >= SIM_DEVICES_MAX || (!piece->holders && !piece->exported))
			*piece = (struct piece){0};
		else
			*used_at(piece->location) += piece->bytes;
	}
}

bool sim_machine_open(void)
{
	const char *folder = getenv("SUBLET_SIM_MACHINE");
	struct stat status;
	char path[512];
	int fd = -1;

	if (machine)
		return true;
	if (folder && *folder) {
		mkdir(folder, 0700);
		snprintf(path, sizeof(path), "%s/machine", folder);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0)
			return false;
		/* The lock of the file, not of the table: it makes the first one the one that sets up. */
		if (lockf(fd, F_LOCK, 0) != 0 || ftruncate(fd, sizeof(struct machine)) != 0 || fstat(fd, &status) != 0) {
			close(fd);
			return false;
		}
		machine = map_table(fd);
		if (machine && machine->magic && machine->magic != MACHINE_MAGIC) {
			fprintf(stderr, "simulated driver: %s is from another version: end its processes and remove it\n", path);
			munmap(machine, sizeof(*machine));
			machine = NULL;
		} else if (machine && !machine->magic) {
			set_up(true);
		}
		snprintf(token, sizeof(token), "%llx", (unsigned long long)status.st_ino);
		close(fd); /* gives the lock up */
	} else {
		machine = map_table(-1);
		if (machine)
			set_up(false);
		snprintf(token, sizeof(token), "p%d", (int)getpid());
	}
	if (!machine)
		return false;
	lock_machine();
	drop_dead();
	for (int i = 0; i < PROCESSES && !own_process; i++) {
		struct process *process = &machine->processes[i];

		if (!process->pid) {
			*process = (struct process){(int32_t)getpid(), start_of(getpid())};
			own_process = i + 1;
		}
	}
	unlock_machine();
	return own_process != 0;
}

static uint64_t limit_of(int location)
{
	return location == SIM_HOST ? sim_config.host_capacity : sim_config.capacity;
}

static struct piece *free_piece(void)
{
	for (unsigned n = 0; n < PIECES; n++) {
		unsigned i = machine->cursor++ % PIECES;

		if (!machine->pieces[i].id) {
			if (i >= machine->hint)
				machine->hint = i + 1;
			return &machine->pieces[i];
		}
	}
	return NULL;
}

uint64_t sim_machine_take(int location, uint64_t bytes)
{
	struct piece *piece = NULL;
	uint64_t id = 0;

	lock_machine();
	if (*used_at(location) + bytes > limit_of(location))
		sweep();
	if (*used_at(location) + bytes <= limit_of(location)) {
		piece = free_piece();
		if (!piece) {
			sweep();
			piece = free_piece();
		}
	}
	if (piece) {
		unsigned place = (unsigned)(piece - machine->pieces);

		/* The id leads to its place: serial number above, index below. */
		id = machine->next_id++ << 16 | place;
		*piece = (struct piece){.id = id, .bytes = bytes, .location = location, .holders = 1};
		machine->references[own_process - 1][place] = 1;
		*used_at(location) += bytes;
		if (*used_at(location) > machine->peak[location + 1])
			machine->peak[location + 1] = *used_at(location);
	}
	unlock_machine();
	return id;
}

static struct piece *find_piece(uint64_t id)
{
	struct piece *piece = &machine->pieces[id & (PIECES - 1)];

	return id && piece->id == id ? piece : NULL;
}

bool sim_machine_ref(uint64_t id, uint64_t *ret_bytes, int *ret_location)
{
	struct piece *piece;

	lock_machine();
	piece = find_piece(id);
	if (piece) {
		if (machine->references[own_process - 1][piece - machine->pieces]++ == 0)
			piece->holders++;
		*ret_bytes = piece->bytes;
		*ret_location = piece->location;
	}
	unlock_machine();
	return piece != NULL;
}

void sim_machine_unref(uint64_t id)
{
	struct piece *piece;

	if (!machine)
		return;
	lock_machine();
	piece = find_piece(id);
	if (piece && machine->references[own_process - 1][piece - machine->pieces] &&
		--machine->references[own_process - 1][piece - machine->pieces] == 0)
		let_go(piece);
	unlock_machine();
}

void sim_machine_exported(uint64_t id)
{
	struct piece *piece;

	lock_machine();
	piece = find_piece(id);
	if (piece)
		piece->exported = 1;
	unlock_machine();
}

uint64_t sim_machine_used(int location)
{
	uint64_t used;

	lock_machine();
	sweep();
	used = *used_at(location);
	unlock_machine();
	return used;
}

uint64_t sim_machine_peak(int location, bool reset)
{
	uint64_t peak;

	lock_machine();
	sweep();
	peak = machine->peak[location + 1];
	if (reset)
		machine->peak[location + 1] = *used_at(location);
	unlock_machine();
	return peak;
}

uint64_t *sim_machine_lock_used(int location)
{
	lock_machine();
	return used_at(location);
}

uint32_t sim_machine_scans(void)
{
	return machine->scans;
}

void sim_machine_close(void)
{
	if (!machine)
		return;
	lock_machine();
	drop_process(own_process);
	own_process = 0;
	sweep();
	unlock_machine();
	munmap(machine, sizeof(*machine));
	machine = NULL;
}
