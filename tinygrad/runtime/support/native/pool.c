/* The worker pool.
 *
 * A launch opens a job, works on it too, closes it when every item is claimed, and waits for the
 * workers that are inside. A worker that wakes up late finds the job closed: no launch ever waits for
 * the system to schedule a thread.
 *
 * The gate holds the state of the job in one atomic word, so that a worker enters only if the job is
 * still open: a worker enters by a compare-and-swap that adds 1 to the word it saw.
 */
#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "platform.h"

enum { MAX_THREADS = 1024 };
/* More chunks than threads, so that fast threads take more of them. */
enum { CHUNKS_PER_THREAD = 4 };
/* Reading the clock takes as long as several polls. */
enum { POLLS_PER_CLOCK = 32 };
/* How often a launch polls for its workers to leave before it sleeps. */
enum { POLLS_BEFORE_SLEEP = 2000 };
/* How many workers a thread wakes; each of them wakes as many. */
enum { WAKE_FANOUT = 4 };

/* Bits of the gate's state. Below OPEN: the number of workers inside. Above WAITING: the number of
 * the job, in the high half, on which idle workers sleep. */
#define OPEN (UINT64_C(1) << 30)    /* workers may enter */
#define WAITING (UINT64_C(1) << 31) /* the launching thread sleeps until the workers have left */
#define NEXT_JOB (UINT64_C(1) << 32)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the halves of the gate are in this order");

static union {
  _Atomic uint64_t state;
  struct {
    _Atomic uint32_t inside; /* with OPEN and WAITING */
    _Atomic uint32_t job;
  };
  char padding[CACHE_LINE];
} gate __attribute__((aligned(CACHE_LINE)));

/* The first item that no thread has claimed yet. */
static union {
  _Atomic int64_t item;
  char padding[CACHE_LINE];
} next __attribute__((aligned(CACHE_LINE)));

/* How many workers sleep, or are about to. */
static union {
  _Atomic int32_t count;
  char padding[CACHE_LINE];
} sleepers __attribute__((aligned(CACHE_LINE)));

/* Held by the thread that launches: 0 free, 1 held, 2 held and other threads may sleep on it. */
static union {
  _Atomic uint32_t word;
  char padding[CACHE_LINE];
} launch_lock __attribute__((aligned(CACHE_LINE)));

/* The job: written before the gate opens, read by the threads inside. */
static struct {
  Kernel *kernel;
  void *buffers;
  const void *values;
  int64_t grid;
  int64_t chunk;
} job __attribute__((aligned(CACHE_LINE)));

static _Atomic int32_t thread_count = 1;
static _Atomic int64_t poll_ns;
static _Atomic int32_t stopping;
static int32_t started; /* under the launch lock */
static pthread_t workers[MAX_THREADS];

static void lock(_Atomic uint32_t *word) {
  uint32_t expected = 0;
  if (atomic_compare_exchange_strong_explicit(
          word, &expected, 1, memory_order_acquire, memory_order_relaxed))
    return;
  while (atomic_exchange_explicit(word, 2, memory_order_acquire) != 0) sleep_while(word, 2);
}

static void unlock(_Atomic uint32_t *word) {
  if (atomic_exchange_explicit(word, 0, memory_order_release) == 2) wake(word, 1);
}

/* Wakes a few of the workers that sleep. */
static void wake_workers(void) {
  int32_t count = atomic_load(&sleepers.count);
  if (count > 0) wake(&gate.job, count < WAKE_FANOUT ? count : WAKE_FANOUT);
}

/* Claims and runs chunks of the open job until no item is left. */
static void run_chunks(void) {
  int64_t grid = job.grid, chunk = job.chunk;
  for (;;) {
    int64_t begin = atomic_fetch_add_explicit(&next.item, chunk, memory_order_relaxed);
    if (begin >= grid) return;
    int64_t end = begin + chunk;
    job.kernel(job.buffers, job.values, begin, end < grid ? end : grid);
  }
}

/* Waits until the gate shows another job than `seen`, and returns its state. */
static uint64_t await_job(uint32_t seen) {
  int64_t limit_ns = atomic_load_explicit(&poll_ns, memory_order_relaxed);
  int64_t deadline = now_ns() + limit_ns;
  for (uint32_t polls = 1;; polls++) {
    uint64_t state = atomic_load_explicit(&gate.state, memory_order_acquire);
    if ((uint32_t)(state / NEXT_JOB) != seen) return state;
    relax_cpu();
    if (polls % POLLS_PER_CLOCK == 0 && now_ns() > deadline) {
      atomic_fetch_add(&sleepers.count, 1);
      sleep_while(&gate.job, seen);
      atomic_fetch_sub(&sleepers.count, 1);
      deadline = now_ns() + limit_ns;
    }
  }
}

/* The life of a worker. */
static void *work(void *unused) {
  (void)unused;
  uint32_t seen = 0;
  for (;;) {
    uint64_t state = await_job(seen);
    if (atomic_load_explicit(&stopping, memory_order_acquire)) return NULL;
    uint32_t number = (uint32_t)(state / NEXT_JOB);
    if (state & OPEN) {
      if (!atomic_compare_exchange_strong_explicit(
              &gate.state, &state, state + 1, memory_order_acq_rel, memory_order_relaxed))
        continue;
      wake_workers();
      run_chunks();
      uint64_t before = atomic_fetch_sub_explicit(&gate.state, 1, memory_order_acq_rel);
      if ((uint32_t)before == (WAITING | 1)) wake(&gate.inside, 1);
    }
    seen = number;
  }
}

/* Starts the workers, with all signals blocked: signals go to Python's own threads. Where the system
 * refuses a thread, the pool works with those that it has. */
static void start_workers(void) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int32_t wanted = atomic_load_explicit(&thread_count, memory_order_relaxed);
  int32_t count = 1; /* the launching thread */
  while (count < wanted && pthread_create(&workers[count], NULL, work, NULL) == 0) count++;
  atomic_store_explicit(&thread_count, count, memory_order_relaxed);
  started = 1;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void pool_reset(int32_t threads, int64_t spin_ns) {
  prepare_sleep();
  atomic_store(&gate.state, 0);
  atomic_store(&sleepers.count, 0);
  atomic_store(&launch_lock.word, 0);
  atomic_store(&stopping, 0);
  atomic_store(&thread_count, threads < MAX_THREADS ? threads : MAX_THREADS);
  atomic_store(&poll_ns, spin_ns);
  started = 0;
}

void pool_stop(void) {
  lock(&launch_lock.word);
  int32_t count = started ? atomic_load_explicit(&thread_count, memory_order_relaxed) : 1;
  started = 0;
  atomic_store_explicit(&thread_count, 1, memory_order_relaxed);
  atomic_store_explicit(&stopping, 1, memory_order_release);
  atomic_fetch_add(&gate.state, NEXT_JOB);
  wake(&gate.job, INT32_MAX);
  for (int32_t i = 1; i < count; i++) pthread_join(workers[i], NULL);
  unlock(&launch_lock.word);
}

/* Lets workers in. Sequentially consistent: either a worker that goes to sleep sees the new job, or
 * this thread sees the sleeper. */
static void open_job(void) {
  uint64_t number = atomic_load_explicit(&gate.state, memory_order_relaxed) / NEXT_JOB + 1;
  atomic_store(&gate.state, number * NEXT_JOB | OPEN);
  wake_workers();
}

/* Lets no more workers in, and waits until the last one has left. */
static void close_job(void) {
  atomic_fetch_and_explicit(&gate.state, ~OPEN, memory_order_acq_rel);
  for (int polls = 0; polls < POLLS_BEFORE_SLEEP; polls++) {
    if ((uint32_t)atomic_load_explicit(&gate.state, memory_order_acquire) == 0) return;
    relax_cpu();
  }
  atomic_fetch_or_explicit(&gate.state, WAITING, memory_order_acq_rel);
  for (;;) {
    uint32_t inside = (uint32_t)atomic_load_explicit(&gate.state, memory_order_acquire);
    if (inside == WAITING) return;
    sleep_while(&gate.inside, inside);
  }
}

/* pool_launch(), where threads claim `chunk` items at a time. */
static void launch_chunks(
    Kernel *kernel, void *buffers, const void *values, int64_t grid, int64_t chunk) {
  if (atomic_load_explicit(&thread_count, memory_order_relaxed) < 2 || grid < 2) {
    kernel(buffers, values, 0, grid);
    return;
  }
  lock(&launch_lock.word);
  if (!started) start_workers();
  job.kernel = kernel;
  job.buffers = buffers;
  job.values = values;
  job.grid = grid;
  job.chunk = chunk;
  atomic_store_explicit(&next.item, 0, memory_order_relaxed);
  open_job();
  run_chunks();
  close_job();
  unlock(&launch_lock.word);
}

void pool_launch(Kernel *kernel, void *buffers, const void *values, int64_t grid) {
  int64_t chunks = atomic_load_explicit(&thread_count, memory_order_relaxed) * CHUNKS_PER_THREAD;
  int64_t chunk = grid / chunks;
  launch_chunks(kernel, buffers, values, grid, chunk > 1 ? chunk : 1);
}
