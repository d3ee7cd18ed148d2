/* The operating system and the CPU, as the worker pool needs them.
 *
 * `sleep_while` and `wake` are a futex: the system call on Linux, a condition variable elsewhere (or
 * with -DUSE_CONDITION_VARIABLE). A waker changes the word first and calls `wake` after that.
 */
#ifndef PLATFORM_H
#define PLATFORM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#if defined(__linux__) && !defined(USE_CONDITION_VARIABLE)
#include <sys/syscall.h>
#include <unistd.h>
#define USE_FUTEX 1
#endif

#ifndef __has_builtin
#define __has_builtin(name) 0
#endif

/* The unit in which caches of several cores exchange memory. */
#define CACHE_LINE 64

/* Tells the CPU that this is a polling loop. */
static inline void relax_cpu(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) && __has_builtin(__builtin_arm_yield)
  __builtin_arm_yield();
#else
  atomic_thread_fence(memory_order_seq_cst);
#endif
}

static inline int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

#ifdef USE_FUTEX

/* Both are private to the process, which spares the kernel a lookup. */
enum { FUTEX_WAIT_PRIVATE = 0 | 128, FUTEX_WAKE_PRIVATE = 1 | 128 };

static inline void prepare_sleep(void) {}

/* Sleeps while the word has the value; may return early. */
static inline void sleep_while(_Atomic uint32_t *word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL);
}

/* Wakes up to `count` threads that sleep on the word. */
static inline void wake(_Atomic uint32_t *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count);
}

#else

/* One condition variable serves all words. Sleepers check their word under the mutex and wakers
 * signal under it, so no wake-up is lost. */
static pthread_mutex_t sleep_mutex;
static pthread_cond_t sleep_condition;

/* Also in a child of fork(), where the state that was inherited is of no use. */
static inline void prepare_sleep(void) {
  pthread_mutex_init(&sleep_mutex, NULL);
  pthread_cond_init(&sleep_condition, NULL);
}

static inline void sleep_while(_Atomic uint32_t *word, uint32_t value) {
  pthread_mutex_lock(&sleep_mutex);
  while (atomic_load(word) == value) pthread_cond_wait(&sleep_condition, &sleep_mutex);
  pthread_mutex_unlock(&sleep_mutex);
}

static inline void wake(_Atomic uint32_t *word, int count) {
  (void)word;
  (void)count;
  pthread_mutex_lock(&sleep_mutex);
  pthread_cond_broadcast(&sleep_condition);
  pthread_mutex_unlock(&sleep_mutex);
}

#endif
#endif
