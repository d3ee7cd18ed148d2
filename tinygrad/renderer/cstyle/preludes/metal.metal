// The intrinsics of Metal kernels. Each paragraph defines one name.

// Waits for all threads of the block, which then see what the others wrote to shared memory.
static inline void block_barrier() { threadgroup_barrier(mem_flags::mem_threadgroup); }

// The value of another lane of the warp.
template <class T> static inline T warp_shuffle(T value, int lane) {
  return simd_shuffle(value, ushort(lane));
}

static inline half half_of_bits(ushort bits) { return as_type<half>(bits); }

static inline ushort bits_of_half(half x) { return as_type<ushort>(x); }

static inline float half_to_float(half x) { return x; }

static inline half float_to_half(float x) { return half(x); }

static inline bfloat bfloat16_of_bits(ushort bits) { return as_type<bfloat>(bits); }

static inline ushort bits_of_bfloat16(bfloat x) { return as_type<ushort>(x); }

static inline float bfloat16_to_float(bfloat x) { return x; }

static inline bfloat float_to_bfloat16(float x) { return bfloat(x); }
