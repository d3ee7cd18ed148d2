// The intrinsics of OpenCL kernels. Each paragraph defines one name.

static inline int block_number() { return get_group_id(0); }

static inline int thread_number() { return get_local_id(0); }

// Waits for all threads of the block, which then see what the others wrote to shared memory.
#define block_barrier() barrier(CLK_LOCAL_MEM_FENCE)

// The value of another lane of the warp.
#define warp_shuffle(value, lane) sub_group_shuffle(value, lane)

typedef struct { ushort bits; } half_bits;

static inline half_bits half_of_bits(ushort bits) { half_bits result = {bits}; return result; }

static inline ushort bits_of_half(half_bits x) { return x.bits; }

static inline float half_to_float(half_bits x) { return vload_half(0, (const half *)&x); }

// To nearest, ties to even.
static inline half_bits float_to_half(float x) {
  half_bits result;
  vstore_half_rte(x, 0, (half *)&result);
  return result;
}
