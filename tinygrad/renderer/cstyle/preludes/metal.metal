// The intrinsics of Metal kernels. Each paragraph defines one name.

// Waits for all threads of the block, which then see what the others wrote to shared memory.
static inline void block_barrier() { threadgroup_barrier(mem_flags::mem_threadgroup); }

// The value of another lane of the warp. Shuffles are of numbers of at most 32 bits, and not of bools
// or bfloats (Metal Shading Language Specification, "SIMD-Group Functions").
template <class T> static inline T warp_shuffle(T value, int lane) {
  return simd_shuffle(value, ushort(lane));
}

static inline bool warp_shuffle(bool value, int lane) {
  return simd_shuffle(ushort(value), ushort(lane)) != 0;
}

// Metal has the type since 3.1, which macOS 14 has.
#ifdef __HAVE_BFLOAT__
static inline bfloat warp_shuffle(bfloat value, int lane) {
  return as_type<bfloat>(simd_shuffle(as_type<ushort>(value), ushort(lane)));
}
#endif

static inline long warp_shuffle(long value, int lane) {
  return as_type<long>(simd_shuffle(as_type<uint2>(value), ushort(lane)));
}

static inline ulong warp_shuffle(ulong value, int lane) {
  return as_type<ulong>(simd_shuffle(as_type<uint2>(value), ushort(lane)));
}

static inline half half_of_bits(ushort bits) { return as_type<half>(bits); }

static inline ushort bits_of_half(half x) { return as_type<ushort>(x); }

static inline float half_to_float(half x) { return x; }

static inline half float_to_half(float x) { return half(x); }

static inline bfloat bfloat16_of_bits(ushort bits) { return as_type<bfloat>(bits); }

static inline ushort bits_of_bfloat16(bfloat x) { return as_type<ushort>(x); }

static inline float bfloat16_to_float(bfloat x) { return x; }

static inline bfloat float_to_bfloat16(float x) { return bfloat(x); }

// A lane's two elements of an 8 x 8 matrix.
template <class M, class T> static inline M simdgroup_fragment(T first, T second) {
  M matrix;
  matrix.thread_elements()[0] = first;
  matrix.thread_elements()[1] = second;
  return matrix;
}

// c + a @ b, of fragments as renderer/matrix_instruction.py lays them out.
template <class M> static inline f32x2 simdgroup_product(M a, M b, f32x2 c) {
  simdgroup_float8x8 sum = simdgroup_fragment<simdgroup_float8x8>(c.lane[0], c.lane[1]);
  simdgroup_multiply_accumulate(sum, a, b, sum);
  return {{sum.thread_elements()[0], sum.thread_elements()[1]}};
}

static inline f32x2 simdgroup_8x8x8_f32(f32x2 a, f32x2 b, f32x2 c) {
  return simdgroup_product(simdgroup_fragment<simdgroup_float8x8>(a.lane[0], a.lane[1]),
                           simdgroup_fragment<simdgroup_float8x8>(b.lane[0], b.lane[1]), c);
}

template <class M, class T> static inline M simdgroup_bits(u16x2 x) {
  return simdgroup_fragment<M>(as_type<T>(x.lane[0]), as_type<T>(x.lane[1]));
}

static inline f32x2 simdgroup_8x8x8_f16(u16x2 a, u16x2 b, f32x2 c) {
  return simdgroup_product(simdgroup_bits<simdgroup_half8x8, half>(a),
                           simdgroup_bits<simdgroup_half8x8, half>(b), c);
}

static inline f32x2 simdgroup_8x8x8_bf16(u16x2 a, u16x2 b, f32x2 c) {
  return simdgroup_product(simdgroup_bits<simdgroup_bfloat8x8, bfloat>(a),
                           simdgroup_bits<simdgroup_bfloat8x8, bfloat>(b), c);
}
