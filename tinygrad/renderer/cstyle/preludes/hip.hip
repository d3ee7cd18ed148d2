// The intrinsics of HIP kernels, without HIP's headers. Each paragraph defines one name.

#define __global__ __attribute__((global))

#define __device__ __attribute__((device))

#define __shared__ __attribute__((shared))

#define __launch_bounds__(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))

__device__ inline int block_number() { return __builtin_amdgcn_workgroup_id_x(); }

__device__ inline int thread_number() { return __builtin_amdgcn_workitem_id_x(); }

// Waits for all threads of the block, which then see what the others wrote to shared memory.
__device__ inline void block_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// The value of another lane of the warp.
template <class T> __device__ inline T warp_shuffle(T value, int lane) {
  int words[(sizeof(T) + 3) / 4] = {};
  __builtin_memcpy(words, &value, sizeof(T));
  for (int &word : words) word = __builtin_amdgcn_ds_bpermute(lane * 4, word);
  __builtin_memcpy(&value, words, sizeof(T));
  return value;
}

// The remainder of a division, exact, with the sign of x.
__device__ inline double remainder_of(double x, double y) {
  double rest = __builtin_fabs(x), divisor = __builtin_fabs(y);
  if (!(rest < INFINITY) || !(divisor > 0)) return NAN;
  while (rest >= divisor) {
    // the multiple of the divisor by a power of two that is at most the rest and above its half
    int exponent = __builtin_amdgcn_frexp_exp(rest) - __builtin_amdgcn_frexp_exp(divisor);
    double multiple = __builtin_ldexp(divisor, exponent);
    rest -= multiple <= rest ? multiple : __builtin_ldexp(divisor, exponent - 1);
  }
  return __builtin_copysign(rest, x);
}

#define INFINITY __builtin_inff()

#define NAN __builtin_nanf("")

typedef _Float16 half;

__device__ inline half half_of_bits(unsigned short bits) { return __builtin_bit_cast(half, bits); }

__device__ inline unsigned short bits_of_half(half x) {
  return __builtin_bit_cast(unsigned short, x);
}

__device__ inline float half_to_float(half x) { return x; }

__device__ inline half float_to_half(float x) { return x; }

typedef __bf16 bfloat16;

__device__ inline bfloat16 bfloat16_of_bits(unsigned short bits) {
  return __builtin_bit_cast(bfloat16, bits);
}

__device__ inline unsigned short bits_of_bfloat16(bfloat16 x) {
  return __builtin_bit_cast(unsigned short, x);
}

__device__ inline float bfloat16_to_float(bfloat16 x) { return x; }

__device__ inline bfloat16 float_to_bfloat16(float x) { return x; }

typedef __attribute__((ext_vector_type(4))) short short4;

typedef __attribute__((ext_vector_type(16))) short short16;

typedef __attribute__((ext_vector_type(4))) _Float16 half4;

typedef __attribute__((ext_vector_type(16))) _Float16 half16;

typedef __attribute__((ext_vector_type(4))) float float4;

typedef __attribute__((ext_vector_type(8))) float float8;

typedef __attribute__((ext_vector_type(16))) float float16;

// Matrix instructions: c + a @ b, of fragments as renderer/matrix_instruction.py lays them out.
__device__ inline f32x4 mfma_16x16x16_f16(u16x4 a, u16x4 b, f32x4 c) {
  return __builtin_bit_cast(f32x4, __builtin_amdgcn_mfma_f32_16x16x16f16(
      __builtin_bit_cast(half4, a), __builtin_bit_cast(half4, b),
      __builtin_bit_cast(float4, c), 0, 0, 0));
}

__device__ inline f32x4 mfma_16x16x16_bf16(u16x4 a, u16x4 b, f32x4 c) {
  return __builtin_bit_cast(f32x4, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
      __builtin_bit_cast(short4, a), __builtin_bit_cast(short4, b),
      __builtin_bit_cast(float4, c), 0, 0, 0));
}

__device__ inline f32x16 mfma_32x32x8_f16(u16x4 a, u16x4 b, f32x16 c) {
  return __builtin_bit_cast(f32x16, __builtin_amdgcn_mfma_f32_32x32x8f16(
      __builtin_bit_cast(half4, a), __builtin_bit_cast(half4, b),
      __builtin_bit_cast(float16, c), 0, 0, 0));
}

__device__ inline f32x16 mfma_32x32x8_bf16(u16x4 a, u16x4 b, f32x16 c) {
  return __builtin_bit_cast(f32x16, __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(
      __builtin_bit_cast(short4, a), __builtin_bit_cast(short4, b),
      __builtin_bit_cast(float16, c), 0, 0, 0));
}

__device__ inline f32x8 wmma_16x16x16_f16(u16x16 a, u16x16 b, f32x8 c) {
  return __builtin_bit_cast(f32x8, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(
      __builtin_bit_cast(half16, a), __builtin_bit_cast(half16, b),
      __builtin_bit_cast(float8, c)));
}

__device__ inline f32x8 wmma_16x16x16_bf16(u16x16 a, u16x16 b, f32x8 c) {
  return __builtin_bit_cast(f32x8, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(
      __builtin_bit_cast(short16, a), __builtin_bit_cast(short16, b),
      __builtin_bit_cast(float8, c)));
}
