/* Drives the worker pool from several threads, with plain memory accesses in the kernels: a thread
 * sanitizer sees a race if an item runs twice, or if a launch returns before its items are done. */
#include "runtime.c"

#include <stdio.h>
#include <stdlib.h>

enum { CALLERS = 4, ROUNDS = 60, LAUNCHES = 40, SIZE = 512 };

struct caller {
  pthread_t thread;
  unsigned seed;
  int64_t counts[2][SIZE];
};

static struct caller callers[CALLERS];

static void check(int condition, const char *claim) {
  if (condition) return;
  fprintf(stderr, "failed: %s\n", claim);
  exit(1);
}

/* Adds value 0 to the items of buffer 0. */
static void add(void *buffers, const void *values, int64_t begin, int64_t end) {
  int64_t *counts = ((int64_t **)buffers)[0];
  for (int64_t i = begin; i < end; i++) counts[i] += ((const int64_t *)values)[0];
}

static void launch_grids(struct caller *caller) {
  int64_t expected[SIZE] = {0}, one = 1;
  int64_t *counts = caller->counts[0];
  for (int i = 0; i < LAUNCHES; i++) {
    int64_t grid = rand_r(&caller->seed) % SIZE;
    pool_launch(add, &counts, &one, grid);
    for (int64_t j = 0; j < grid; j++) expected[j]++;
  }
  for (int j = 0; j < SIZE; j++) check(counts[j] == expected[j], "every item runs exactly once");
}

/* A record of two members, and a record of one that reads what both wrote. */
static void replay_records(struct caller *caller) {
  char *slots[] = {(char *)caller->counts};
  int64_t zeros[3] = {0}, offsets[] = {0, sizeof caller->counts[0], 0};
  int64_t variables[] = {SIZE, 1, 2 * SIZE}, value_variables[] = {1, 1, 1}, values[3];
  char *arguments[3];
  struct member members[] = {{add, 0, 0, 0, 7}, {add, 1, 1, 0, 5}, {add, 2, 2, 2, 1}};
  struct record records[] = {{0, 2, 12, 1}, {2, 1, 1, 1}};
  struct table table = {
      records, 2, members, arguments, zeros, offsets, slots, 3, values, value_variables, variables,
      3};
  int64_t elapsed_ns[2];
  replay_run(&table, elapsed_ns);
  for (int j = 0; j < SIZE; j++) check(caller->counts[1][j] == 2, "records run in order");
}

static void *call(void *argument) {
  struct caller *caller = argument;
  memset(caller->counts, 0, sizeof caller->counts);
  launch_grids(caller);
  replay_records(caller);
  return NULL;
}

int main(void) {
  for (int round = 0; round < ROUNDS; round++) {
    /* with polling only, with sleeping only, and with both */
    int64_t spin_ns[] = {1000000, 0, 2000};
    pool_reset(3 + round % 2, spin_ns[round % 3]);
    for (unsigned i = 0; i < CALLERS; i++) {
      callers[i].seed = (unsigned)round * CALLERS + i;
      check(pthread_create(&callers[i].thread, NULL, call, &callers[i]) == 0, "threads start");
    }
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i].thread, NULL);
    pool_stop();
  }
  puts("done");
  return 0;
}
