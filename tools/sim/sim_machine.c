/* tools/sim/sim_machine.c
 * The machine file. One table of pieces, one of processes, and per process a bit for each piece it holds. Sums are kept, and
 * computed anew whenever a process died with the mutex held. */
#include "tools/sim/sim_machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/sim/sim.h"

#define MACHINE_MAGIC 0x3165746c62757303ull
#define PIECE_COUNT 131072u
#define PROCESS_COUNT 256u
#define WORD_COUNT (PIECE_COUNT / 64)

struct piece {
	uint64_t id; /* 0: free */
	uint64_t bytes;
	int32_t device;
	uint32_t holders; /* processes whose bit is set */
};

struct process {
	int32_t pid; /* 0: free */
	int32_t padding;
	uint64_t start_time; /* of /proc/PID/stat, tells a reused pid apart */
	uint64_t held[WORD_COUNT];
};

struct machine {
	uint64_t magic;
	char boot_id[40];
	uint64_t tag;
	pthread_mutex_t mutex;
	int32_t devices;
	uint32_t piece_high; /* all used slots are below */
	uint32_t piece_hint; /* where a free slot may be */
	uint32_t orphans;    /* pieces without holder that an fd somewhere keeps alive */
	uint64_t capacity[SUBLET_SIM_MAX_DEVICES];
	uint64_t host_capacity;
	uint64_t next_id;
	uint64_t used[SUBLET_SIM_MAX_DEVICES];
	uint64_t host_used;
	struct piece pieces[PIECE_COUNT];
	struct process processes[PROCESS_COUNT];
};

static struct machine *machine;
static uint32_t self; /* slot of this process */

static uint64_t *used_of(int device)
{
	return device == SIM_HOST_DEVICE ? &machine->host_used : &machine->used[device];
}

/* Start time of @pid, or 0 when it is gone or has only its exit status left. */
static uint64_t start_time_of(int pid)
{
	char path[64], text[1024];
	char *field, state;
	unsigned long long start = 0;
	long threads = 0;
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (length <= 0)
		return 0;
	text[length] = '\0';
	field = strrchr(text, ')'); /* the name before it may contain anything */
	if (!field ||
		sscanf(field + 2,
			"%c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu", &state,
			&threads, &start) != 3)
		return 0;
	/* A zombie leader whose other threads still run is alive. */
	if ((state == 'Z' || state == 'X') && threads <= 1)
		return 0;
	return start ? start : 1;
}

static bool process_alive(const struct process *process)
{
	return start_time_of(process->pid) == process->start_time;
}

static void recompute(void)
{
	memset(machine->used, 0, sizeof(machine->used));
	machine->host_used = 0;
	machine->orphans = 0;
	for (uint32_t i = 0; i < machine->piece_high; i++) {
		struct piece *piece = &machine->pieces[i];

		if (!piece->id)
			continue;
		piece->holders = 0;
		for (uint32_t p = 0; p < PROCESS_COUNT; p++) {
			if (machine->processes[p].pid && (machine->processes[p].held[i / 64] >> (i % 64) & 1))
				piece->holders++;
		}
		machine->orphans += piece->holders == 0;
		*used_of(piece->device) += piece->bytes;
	}
}

static void machine_lock(void)
{
	if (pthread_mutex_lock(&machine->mutex) == EOWNERDEAD) {
		recompute();
		pthread_mutex_consistent(&machine->mutex);
	}
}

static void machine_unlock(void)
{
	pthread_mutex_unlock(&machine->mutex);
}

static void piece_free(uint32_t slot)
{
	struct piece *piece = &machine->pieces[slot];

	*used_of(piece->device) -= piece->bytes;
	memset(piece, 0, sizeof(*piece));
	if (slot < machine->piece_hint)
		machine->piece_hint = slot;
}

/* One process fewer holds the piece. It is an orphan then, until somebody has looked whether an fd of it is open. */
static void piece_unhold(uint32_t slot, uint32_t process)
{
	machine->processes[process].held[slot / 64] &= ~(1ull << (slot % 64));
	if (--machine->pieces[slot].holders == 0)
		machine->orphans++;
}

static void bury(uint32_t process)
{
	struct process *dead = &machine->processes[process];

	for (uint32_t word = 0; word * 64 < machine->piece_high; word++) {
		while (dead->held[word])
			piece_unhold(word * 64 + (uint32_t)__builtin_ctzll(dead->held[word]), process);
	}
	dead->pid = 0;
}

static void bury_dead(void)
{
	for (uint32_t p = 0; p < PROCESS_COUNT; p++) {
		if (machine->processes[p].pid && p != self && !process_alive(&machine->processes[p]))
			bury(p);
	}
}

static int compare_ids(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

/* Ids of this machine's pieces that some process has open, sorted; *@ret_ids is the caller's to free. */
static size_t open_pieces(uint64_t **ret_ids)
{
	char prefix[48], path[300], link[128];
	size_t count = 0, room = 0;
	uint64_t *ids = NULL;
	DIR *processes = opendir("/proc");
	struct dirent *process, *entry;

	*ret_ids = NULL;
	if (!processes)
		return 0;
	snprintf(prefix, sizeof(prefix), "/memfd:sublet-sim-%016llx-", (unsigned long long)machine->tag);
	while ((process = readdir(processes))) {
		DIR *fds;

		if (process->d_name[0] < '0' || process->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%.16s/fd", process->d_name);
		fds = opendir(path);
		while (fds && (entry = readdir(fds))) {
			ssize_t length = readlinkat(dirfd(fds), entry->d_name, link, sizeof(link) - 1);

			if (length <= 0)
				continue;
			link[length] = '\0';
			if (strncmp(link, prefix, strlen(prefix)) != 0)
				continue;
			if (count == room) {
				uint64_t *more = realloc(ids, (room = room ? room * 2 : 64) * sizeof(*ids));

				if (!more)
					break;
				ids = more;
			}
			ids[count++] = strtoull(link + strlen(prefix), NULL, 16);
		}
		if (fds)
			closedir(fds);
	}
	closedir(processes);
	if (count)
		qsort(ids, count, sizeof(*ids), compare_ids);
	*ret_ids = ids;
	return count;
}

/* Give back the pieces that no process holds and nobody has open. Looks into /proc only when there are candidates. */
static void sweep_orphans(void)
{
	uint64_t *ids;
	size_t count;

	if (machine->orphans == 0)
		return;
	count = open_pieces(&ids);
	machine->orphans = 0;
	for (uint32_t i = 0; i < machine->piece_high; i++) {
		struct piece *piece = &machine->pieces[i];

		if (!piece->id || piece->holders)
			continue;
		if (count && bsearch(&piece->id, ids, count, sizeof(*ids), compare_ids))
			machine->orphans++;
		else
			piece_free(i);
	}
	free(ids);
}

static void sweep(void)
{
	bury_dead();
	sweep_orphans();
}

/* ---- Joining ---- */

static void read_boot_id(char *buffer, size_t size)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, buffer, size - 1);

	if (fd >= 0)
		close(fd);
	buffer[length > 0 ? length : 0] = '\0';
}

static void set_up(const struct sim_config *config, const char *boot_id)
{
	pthread_mutexattr_t attributes;
	struct timespec now;

	memset(machine, 0, offsetof(struct machine, pieces));
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&machine->mutex, &attributes);
	pthread_mutexattr_destroy(&attributes);
	clock_gettime(CLOCK_REALTIME, &now);
	machine->tag = ((uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec) * 0x9e3779b97f4a7c15ull ^ (uint64_t)getpid();
	machine->next_id = 1;
	strcpy(machine->boot_id, boot_id);
	machine->magic = MACHINE_MAGIC;
	(void)config;
}

static void take_sizes(const struct sim_config *config)
{
	machine->devices = config->devices;
	for (int i = 0; i < SUBLET_SIM_MAX_DEVICES; i++)
		machine->capacity[i] = config->capacity_bytes;
	machine->host_capacity = config->host_capacity_bytes;
}

/* The file of a shared machine, locked against others who are joining. */
static int open_file(const struct sim_config *config)
{
	char path[sizeof(config->machine) + 32];
	struct stat status;
	int fd;

	mkdir(config->machine, 0700);
	snprintf(path, sizeof(path), "%s/sublet-sim.machine", config->machine);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	if (flock(fd, LOCK_EX) != 0 || fstat(fd, &status) != 0)
		goto fail;
	/* Allocated up front: a full disk shall be an error here, not a SIGBUS later. */
	if ((size_t)status.st_size < sizeof(struct machine) && posix_fallocate(fd, 0, sizeof(struct machine)) != 0)
		goto fail;
	return fd;
fail:
	close(fd);
	return -1;
}

static bool enter_process(void)
{
	for (uint32_t p = 0; p < PROCESS_COUNT; p++) {
		struct process *process = &machine->processes[p];

		if (process->pid)
			continue;
		memset(process, 0, sizeof(*process));
		process->start_time = start_time_of(getpid());
		process->pid = getpid();
		self = p;
		return true;
	}
	return false;
}

CUresult sim_machine_attach(void)
{
	const struct sim_config *config = sim_config();
	char boot_id[sizeof(machine->boot_id)];
	int fd = -1;
	bool entered, alone = true;

	if (machine)
		return CUDA_SUCCESS;
	if (config->machine[0]) {
		fd = open_file(config);
		if (fd < 0)
			return CUDA_ERROR_OPERATING_SYSTEM;
	}
	machine = mmap(NULL, sizeof(*machine), PROT_READ | PROT_WRITE,
		fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED, fd, 0);
	if (machine == MAP_FAILED) {
		machine = NULL;
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	read_boot_id(boot_id, sizeof(boot_id));
	if (machine->magic != MACHINE_MAGIC || strcmp(machine->boot_id, boot_id) != 0) {
		if (machine->magic)
			memset(machine, 0, sizeof(*machine));
		set_up(config, boot_id);
	}
	machine_lock();
	self = PROCESS_COUNT;
	sweep();
	for (uint32_t p = 0; p < PROCESS_COUNT; p++)
		alone = alone && !machine->processes[p].pid;
	if (alone)
		take_sizes(config);
	entered = enter_process();
	machine_unlock();
	if (fd >= 0)
		close(fd); /* gives up the file lock too */
	if (!entered) {
		munmap(machine, sizeof(*machine));
		machine = NULL;
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	return CUDA_SUCCESS;
}

void sim_machine_detach(void)
{
	if (!machine)
		return;
	machine_lock();
	bury(self);
	machine_unlock();
	munmap(machine, sizeof(*machine));
	machine = NULL;
}

/* ---- Questions ---- */

int sim_machine_devices(void)
{
	return machine->devices;
}

uint64_t sim_machine_tag(void)
{
	return machine->tag;
}

uint64_t sim_machine_capacity(int device)
{
	return device == SIM_HOST_DEVICE ? machine->host_capacity : machine->capacity[device];
}

uint64_t sim_machine_used(int device)
{
	uint64_t used;

	if (!machine)
		return 0;
	machine_lock();
	sweep();
	used = *used_of(device);
	machine_unlock();
	return used;
}

size_t sim_machine_processes(void)
{
	size_t count = 0;

	if (!machine)
		return 0;
	machine_lock();
	bury_dead();
	for (uint32_t p = 0; p < PROCESS_COUNT; p++)
		count += machine->processes[p].pid != 0;
	machine_unlock();
	return count;
}

/* ---- Pieces ---- */

static uint32_t free_slot(void)
{
	uint32_t slot = machine->piece_hint;

	while (slot < PIECE_COUNT && machine->pieces[slot].id)
		slot++;
	machine->piece_hint = slot;
	return slot;
}

static void enter_piece(uint32_t slot, uint64_t id, int device, uint64_t bytes)
{
	struct piece *piece = &machine->pieces[slot];

	/* Holder first, id last: a process that dies in between leaves nothing that recompute would misread. */
	machine->processes[self].held[slot / 64] |= 1ull << (slot % 64);
	piece->holders = 1;
	piece->bytes = bytes;
	piece->device = device;
	piece->id = id;
	if (slot >= machine->piece_high)
		machine->piece_high = slot + 1;
	machine->piece_hint = slot + 1;
	*used_of(device) += bytes;
}

static bool fits(int device, uint64_t bytes)
{
	uint64_t capacity = sim_machine_capacity(device), used = *used_of(device);

	return used <= capacity && bytes <= capacity - used;
}

CUresult sim_machine_create(int device, uint64_t bytes, uint64_t *ret_id)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	uint32_t slot;

	machine_lock();
	if (!fits(device, bytes))
		sweep();
	slot = free_slot();
	if (fits(device, bytes) && slot < PIECE_COUNT) {
		*ret_id = machine->next_id++;
		enter_piece(slot, *ret_id, device, bytes);
		result = CUDA_SUCCESS;
	}
	machine_unlock();
	return result;
}

static uint32_t slot_of(uint64_t id)
{
	for (uint32_t i = 0; i < machine->piece_high; i++) {
		if (machine->pieces[i].id == id)
			return i;
	}
	return PIECE_COUNT;
}

CUresult sim_machine_hold(uint64_t id, int device, uint64_t bytes)
{
	CUresult result = CUDA_SUCCESS;
	uint32_t slot;

	machine_lock();
	slot = slot_of(id);
	if (slot < PIECE_COUNT) {
		uint64_t bit = 1ull << (slot % 64);

		if (!(machine->processes[self].held[slot / 64] & bit)) {
			machine->processes[self].held[slot / 64] |= bit;
			if (machine->pieces[slot].holders++ == 0)
				machine->orphans--;
		}
	} else {
		slot = free_slot();
		if (slot < PIECE_COUNT)
			enter_piece(slot, id, device, bytes);
		else
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	machine_unlock();
	return result;
}

void sim_machine_drop(uint64_t id)
{
	uint32_t slot;

	if (!machine)
		return;
	machine_lock();
	slot = slot_of(id);
	if (slot < PIECE_COUNT && (machine->processes[self].held[slot / 64] >> (slot % 64) & 1))
		piece_unhold(slot, self);
	machine_unlock();
}
