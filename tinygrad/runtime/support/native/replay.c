/* Replay: records of kernels that ran before, run again in order as one call.
 *
 * A record is one launch, or several that need not wait for each other. Arguments are indirect: a
 * slot holds an address, an argument is a slot and a byte offset. All arguments are resolved before
 * the first record runs, so the caller repoints a buffer by one store to its slot. Integers of a
 * kernel are variables, likewise; so is the size of its grid. A part of runtime.c, after pool.c.
 */
#include <stddef.h>
#include <stdint.h>

#include "platform.h"
#include "pool.h"

/* One launch of a record. */
struct member {
  Kernel *kernel;
  int64_t first_argument;
  int64_t first_value;
  int64_t grid_variable;
  int64_t pieces; /* into which the grid is cut if the record has several members */
};

struct record {
  int64_t first_member;
  int64_t member_count;
  int64_t pieces; /* of all members together */
  int64_t parallel; /* 0: in the calling thread alone */
};

/* The same fields in the same order as `Table` in replay.py. */
struct table {
  const struct record *records;
  int64_t record_count;
  const struct member *members;
  char **arguments; /* written here: the addresses that kernels read */
  const int64_t *argument_slots;
  const int64_t *argument_offsets;
  char *const *slots;
  int64_t argument_count;
  int64_t *values; /* written here: the integers that kernels read */
  const int64_t *value_variables;
  const int64_t *variables;
  int64_t value_count;
};

static void resolve_arguments(const struct table *table) {
  for (int64_t i = 0; i < table->argument_count; i++)
    table->arguments[i] = table->slots[table->argument_slots[i]] + table->argument_offsets[i];
  for (int64_t i = 0; i < table->value_count; i++)
    table->values[i] = table->variables[table->value_variables[i]];
}

/* A kernel that runs the members of a record as one grid. An item is a piece of a member: piece p of
 * n is the part of the member's own grid from p/n to (p + 1)/n. */
static void run_pieces(void *buffers, const void *values, int64_t begin, int64_t end) {
  const struct table *table = buffers;
  const struct record *record = values;
  int64_t start = 0; /* the first piece of the member */
  for (int64_t i = 0; i < record->member_count; i++) {
    const struct member *member = &table->members[record->first_member + i];
    int64_t pieces = member->pieces;
    int64_t from = (begin > start ? begin : start) - start;
    int64_t to = (end < start + pieces ? end : start + pieces) - start;
    start += pieces;
    if (from >= to) continue;
    int64_t grid = table->variables[member->grid_variable];
    int64_t first = grid * from / pieces, last = grid * to / pieces;
    if (first < last)
      member->kernel(table->arguments + member->first_argument,
                     table->values + member->first_value, first, last);
  }
}

static void run_record(struct table *table, const struct record *record) {
  if (record->member_count > 1) {
    if (record->parallel)
      launch_chunks(run_pieces, table, record, record->pieces, 1);
    else
      run_pieces(table, record, 0, record->pieces);
    return;
  }
  const struct member *member = &table->members[record->first_member];
  char **buffers = table->arguments + member->first_argument;
  const int64_t *values = table->values + member->first_value;
  int64_t grid = table->variables[member->grid_variable];
  if (record->parallel)
    pool_launch(member->kernel, buffers, values, grid);
  else
    member->kernel(buffers, values, 0, grid);
}

/* Runs all records. `elapsed_ns`, unless NULL, receives the time that each one took. */
void replay_run(struct table *table, int64_t *elapsed_ns) {
  resolve_arguments(table);
  for (int64_t i = 0; i < table->record_count; i++) {
    int64_t start_ns = elapsed_ns ? now_ns() : 0;
    run_record(table, &table->records[i]);
    if (elapsed_ns) elapsed_ns[i] = now_ns() - start_ns;
  }
}
