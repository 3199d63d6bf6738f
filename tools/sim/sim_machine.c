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

#define MACHINE_MAGIC 0x53494d31u
#define PIECES 65536
#define HOLDERS 6
#define PROCESSES 128

struct holder {
	int32_t process; /* index plus one, 0: empty */
	uint32_t count;
};
struct piece {
	uint64_t id, bytes;
	int32_t location;
	uint32_t exported;
	struct holder holders[HOLDERS];
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
	uint32_t hint;   /* pieces from here on were never used */
	uint32_t cursor; /* where the search for a free piece goes on */
	struct process processes[PROCESSES];
	struct piece pieces[PIECES];
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

static void lock_machine(void)
{
	if (pthread_mutex_lock(&machine->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&machine->lock);
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
		if (machine && machine->magic != MACHINE_MAGIC)
			set_up(true);
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
	for (int i = 0; i < PROCESSES && !own_process; i++) {
		struct process *process = &machine->processes[i];

		if (!process->pid || (process->pid == getpid() && process->start == start_of(getpid()))) {
			*process = (struct process){(int32_t)getpid(), start_of(getpid())};
			own_process = i + 1;
		}
	}
	unlock_machine();
	return own_process != 0;
}

static uint64_t *used_at(int location)
{
	return &machine->used[location + 1];
}

/* Is a descriptor of this memory open in any process? Then the bytes are there, whoever made them. */
static bool open_somewhere(uint64_t id)
{
	char name[160], wanted[96], link[512], target[160];
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	bool found = false;

	snprintf(wanted, sizeof(wanted), "/memfd:sublet-sim-%s-%llu ", token, (unsigned long long)id);
	while (processes && !found && (entry = readdir(processes))) {
		struct dirent *fd;
		DIR *fds;

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		snprintf(name, sizeof(name), "/proc/%.20s/fd", entry->d_name);
		fds = opendir(name);
		while (fds && !found && (fd = readdir(fds))) {
			ssize_t n;

			snprintf(link, sizeof(link), "%s/%.20s", name, fd->d_name);
			n = readlink(link, target, sizeof(target) - 1);
			if (n <= 0)
				continue;
			target[n] = '\0';
			found = strncmp(target, wanted, strlen(wanted)) == 0;
		}
		if (fds)
			closedir(fds);
	}
	if (processes)
		closedir(processes);
	return found;
}

static void drop_piece_if_unheld(struct piece *piece)
{
	for (int h = 0; h < HOLDERS; h++) {
		if (piece->holders[h].process)
			return;
	}
	if (piece->exported && open_somewhere(piece->id))
		return;
	*used_at(piece->location) -= piece->bytes;
	memset(piece, 0, sizeof(*piece));
}

static void drop_process(int index)
{
	for (unsigned i = 0; i < machine->hint; i++) {
		struct piece *piece = &machine->pieces[i];

		for (int h = 0; h < HOLDERS && piece->id; h++) {
			if (piece->holders[h].process == index)
				piece->holders[h] = (struct holder){0};
		}
	}
	machine->processes[index - 1] = (struct process){0};
}

/* Dead processes, then memory that only a descriptor held. */
static void sweep(void)
{
	for (int i = 0; i < PROCESSES; i++) {
		struct process *process = &machine->processes[i];

		if (process->pid && i + 1 != own_process && start_of(process->pid) != process->start)
			drop_process(i + 1);
	}
	for (unsigned i = 0; i < machine->hint; i++) {
		if (machine->pieces[i].id)
			drop_piece_if_unheld(&machine->pieces[i]);
	}
}

static uint64_t limit_of(int location)
{
	return location == SIM_HOST ? sim_config.host_capacity : sim_config.capacity;
}

uint64_t sim_machine_take(int location, uint64_t bytes)
{
	struct piece *piece = NULL;
	uint64_t id = 0;

	lock_machine();
	if (*used_at(location) + bytes > limit_of(location))
		sweep();
	if (*used_at(location) + bytes <= limit_of(location)) {
		for (unsigned n = 0; n < PIECES && !piece; n++) {
			unsigned i = machine->cursor++ % PIECES;

			if (!machine->pieces[i].id) {
				piece = &machine->pieces[i];
				if (i >= machine->hint)
					machine->hint = i + 1;
			}
		}
	}
	if (piece) {
		/* The id leads to its place: serial number above, index below. */
		id = machine->next_id++ << 16 | (uint64_t)(piece - machine->pieces);
		*piece = (struct piece){.id = id, .bytes = bytes, .location = location, .holders = {{own_process, 1}}};
		*used_at(location) += bytes;
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
	struct holder *mine = NULL;

	lock_machine();
	piece = find_piece(id);
	for (int h = 0; piece && h < HOLDERS; h++) {
		if (piece->holders[h].process == own_process)
			mine = &piece->holders[h];
	}
	for (int h = 0; piece && !mine && h < HOLDERS; h++) {
		if (!piece->holders[h].process)
			mine = &piece->holders[h];
	}
	if (mine) {
		mine->process = own_process;
		mine->count++;
		*ret_bytes = piece->bytes;
		*ret_location = piece->location;
	}
	unlock_machine();
	return mine != NULL;
}

void sim_machine_unref(uint64_t id)
{
	struct piece *piece;

	if (!machine)
		return;
	lock_machine();
	piece = find_piece(id);
	for (int h = 0; piece && h < HOLDERS; h++) {
		if (piece->holders[h].process == own_process && --piece->holders[h].count == 0) {
			piece->holders[h] = (struct holder){0};
			drop_piece_if_unheld(piece);
			break;
		}
	}
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
