/* tests/sim/nvtx/ranges.c PART...
 * A program with ranges of NVTX, as frameworks have them; ranges.py says what is to be seen of each part. It prints what NVTX
 * answers, and what the tool has counted where there is one. */
#include <cuda.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(condition)                                                                                                \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "ranges.c:%d: not so: %s\n", __LINE__, #condition);                            \
			exit(99);                                                                                      \
		}                                                                                                      \
	} while (0)

static nvtxEventAttributes_t attributes_of(int type)
{
	nvtxEventAttributes_t attributes = {0};

	attributes.version = NVTX_VERSION;
	attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
	attributes.messageType = type;
	return attributes;
}

static nvtxEventAttributes_t ascii(const char *name)
{
	nvtxEventAttributes_t attributes = attributes_of(NVTX_MESSAGE_TYPE_ASCII);

	attributes.message.ascii = name;
	return attributes;
}

static nvtxEventAttributes_t registered(nvtxStringHandle_t handle)
{
	nvtxEventAttributes_t attributes = attributes_of(NVTX_MESSAGE_TYPE_REGISTERED);

	attributes.message.registered = handle;
	return attributes;
}

/* ---- what ranges.py asks for ---- */

static void part_plain(void)
{
	nvtxMarkA("gen a mark begins nothing");
	printf("%d\n", nvtxRangePushA("gen ascii"));
	printf("%d\n", nvtxRangePop());
	printf("%d\n", nvtxRangePushW(L"gen w\u00efde \U0001f600"));
	printf("%d\n", nvtxRangePop());
}

static void part_ex(void)
{
	nvtxEventAttributes_t narrow = ascii("gen ex"), wide = attributes_of(NVTX_MESSAGE_TYPE_UNICODE);

	wide.message.unicode = L"gen ex wide";
	printf("%d\n", nvtxRangePushEx(&narrow));
	printf("%d\n", nvtxRangePushEx(&wide));
	printf("%d %d\n", nvtxRangePop(), nvtxRangePop());
}

static void part_nested(void)
{
	nvtxRangePop(); /* nothing is open */
	nvtxRangePushA("outer");
	nvtxRangePushA("gen inner");
	nvtxRangePushA("innermost");
	nvtxRangePop();
	nvtxRangePop();
	nvtxRangePop();
	nvtxRangePop();
	nvtxRangePop();
	nvtxRangePushA("gen after");
	nvtxRangePop();
}

static void part_domains(void)
{
	nvtxDomainHandle_t one = nvtxDomainCreateA("one"), two = nvtxDomainCreateW(L"two");
	nvtxEventAttributes_t first = ascii("gen one"), second = ascii("gen two");

	printf("%d\n", nvtxDomainRangePushEx(one, &first));
	nvtxDomainRangePushEx(two, &second);
	nvtxRangePushA("gen default");
	printf("%d\n", nvtxDomainRangePop(one));
	nvtxDomainRangePop(two);
	nvtxDomainRangePop(two);
	nvtxRangePop();
	nvtxDomainDestroy(one);
}

static void part_registered(void)
{
	nvtxDomainHandle_t domain = nvtxDomainCreateA("domain");
	nvtxStringHandle_t narrow = nvtxDomainRegisterStringA(domain, "gen registered"),
			   wide = nvtxDomainRegisterStringW(domain, L"gen registered wide");
	nvtxEventAttributes_t first = registered(narrow), second = registered(wide);

	nvtxDomainRangePushEx(domain, &first);
	nvtxDomainRangePop(domain);
	nvtxDomainRangeEnd(domain, nvtxDomainRangeStartEx(domain, &second));
}

static void *end_it(void *arg)
{
	nvtxRangeEnd(*(nvtxRangeId_t *)arg);
	return NULL;
}

static void part_started(void)
{
	nvtxEventAttributes_t attributes = ascii("gen start ex");
	nvtxRangeId_t first = nvtxRangeStartA("gen start"), second = nvtxRangeStartEx(&attributes), third = nvtxRangeStartW(L"gen start w");
	pthread_t thread;

	NEED(pthread_create(&thread, NULL, end_it, &first) == 0);
	pthread_join(thread, NULL);
	nvtxRangeEnd(third);
	nvtxRangeEnd(second);
	nvtxRangeEnd(second);
	nvtxRangeEnd(12345);
}

static void *nest_thread(void *arg)
{
	nvtxRangePop(); /* the other thread's is not this one's */
	nvtxRangePushA("gen thread");
	nvtxRangePushA("gen left open");
	return NULL;
}

static void part_threads(void)
{
	pthread_t thread;

	nvtxRangePushA("gen main");
	NEED(pthread_create(&thread, NULL, nest_thread, NULL) == 0);
	pthread_join(thread, NULL);
	nvtxRangePop();
}

/* Attributes of other versions, and what no version has. */
static void part_odd(void)
{
	nvtxEventAttributes_t odd[6];
	nvtxEventAttributes_t first = ascii("gen of version 1");
	char page[64] = "gen not registered";

	for (int i = 0; i < 6; i++)
		odd[i] = ascii("gen odd");
	odd[0].version = 99;
	odd[1].size = 16;
	odd[2].version = 0;
	odd[3].messageType = 77;
	odd[4] = registered((nvtxStringHandle_t)(void *)page);
	odd[5] = registered((nvtxStringHandle_t)(size_t)0x5aa5);
	for (int i = 0; i < 6; i++)
		nvtxRangePushEx(&odd[i]);
	nvtxRangePushEx(NULL);
	nvtxRangePushA(NULL);
	nvtxRangePushW(NULL);
	for (int i = 0; i < 9; i++)
		nvtxRangePop();
	odd[0] = registered(nvtxDomainRegisterStringA(NULL, NULL));
	nvtxDomainCreateA(NULL);
	first.version = 1;
	nvtxRangePushEx(&first);
	nvtxRangePop();
}

static void part_copies(void)
{
	int (*push[4])(const char *), (*pop[4])(void);

	for (int i = 0; i < 4; i++) {
		char path[512];
		void *handle;

		snprintf(path, sizeof(path), "%s/libcopy_%d.so", getenv("COPIES"), i);
		handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		NEED(handle);
		push[i] = (int (*)(const char *))dlsym(handle, "copy_push");
		pop[i] = (int (*)(void))dlsym(handle, "copy_pop");
		NEED(push[i] && pop[i]);
	}
	nvtxRangePushA("gen of the program");
	for (int i = 0; i < 4; i++)
		printf("%d\n", push[i]("gen of a copy"));
	for (int i = 3; i >= 0; i--)
		pop[i]();
	nvtxRangePop();
}

static void part_fork(void)
{
	int status = 0;
	pid_t child;

	nvtxRangePushA("gen before the fork");
	fflush(stdout);
	child = fork();
	NEED(child >= 0);
	if (child == 0) {
		nvtxRangePushA("gen in the child");
		nvtxRangePop();
		nvtxRangePop();
		_exit(0);
	}
	NEED(waitpid(child, &status, 0) == child && status == 0);
	nvtxRangePop();
}

static void part_extension(void)
{
	const nvtxPayloadSchemaAttr_t schema = {.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE, .type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC};

	printf("schema %d\n", (int)nvtxPayloadSchemaRegister(NULL, &schema));
	nvtxRangePushA("gen beside payloads");
	nvtxRangePop();
}

static void part_enabled(void)
{
	printf("enabled %d\n", nvtxDomainIsEnabled(NULL));
}

static void part_before(void)
{
	nvtxRangePushA("gen open before cuInit");
	nvtxRangePushA("gen over before cuInit");
	nvtxRangePop();
}

static void part_init(void)
{
	NEED(cuInit(0) == CUDA_SUCCESS);
}

static void part_pop(void)
{
	nvtxRangePop();
}

/* What the tool has seen, if there is one. */
static void report(void)
{
	const char *path = getenv("SUBLET_NVTX_NEXT") ? getenv("SUBLET_NVTX_NEXT") : getenv("NVTX_INJECTION64_PATH");
	void *handle = path && strstr(path, "libtool") ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	void (*print)(void) = handle ? (void (*)(void))dlsym(handle, "tool_report") : NULL;

	if (print)
		print();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {{"plain", part_plain}, {"ex", part_ex}, {"nested", part_nested}, {"domains", part_domains},
		{"registered", part_registered}, {"started", part_started}, {"threads", part_threads}, {"odd", part_odd},
		{"copies", part_copies}, {"fork", part_fork}, {"extension", part_extension}, {"before", part_before},
		{"enabled", part_enabled}, {"init", part_init}, {"pop", part_pop}};

	for (int i = 1; i < argc; i++) {
		bool known = false;

		for (size_t p = 0; p < sizeof(parts) / sizeof(parts[0]); p++) {
			if (strcmp(argv[i], parts[p].name) == 0) {
				parts[p].run();
				known = true;
			}
		}
		NEED(known);
	}
	report();
	return 0;
}
