// C = A @ B of bfloat16 in blocks of 64 x 64: two stages of 32 terms, 32 x 32 elements a warp.
struct u32x2 {
  unsigned lane[2];
};
struct __align__(16) u32x4 {
  unsigned lane[4];
};
struct __align__(16) f32x4 {
  float lane[4];
};
typedef unsigned short u16;

__device__ inline void copy_async_16(void *shared, const void *global) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(shared)),
      "l"(global)
      : "memory");
}

extern "C" __global__ void __launch_bounds__(128)
    product(float *c, const u16 *a, const u16 *b, long long n) {
  extern __shared__ __align__(16) u16 shared[];
  u16(*left)[64][40] = (u16(*)[64][40])shared;
  u16(*right)[32][72] = (u16(*)[32][72])(shared + 2 * 64 * 40);
  int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, row = warp / 2 * 32,
      column = warp % 2 * 32;
  long long first_row = blockIdx.y * 64, first_column = blockIdx.x * 64;
  f32x4 sums[2][4] = {};
  auto load = [&](int stage, int k) {
    for (int i = thread; i < 256; i += 128) {
      copy_async_16(&left[stage][i / 4][i % 4 * 8], a + (first_row + i / 4) * n + k + i % 4 * 8);
      copy_async_16(&right[stage][i / 8][i % 8 * 8],
                    b + (k + i / 8) * n + first_column + i % 8 * 8);
    }
    copy_async_commit();
  };
  load(0, 0);
  for (int k = 0, stage = 0; k < n; k += 32, stage ^= 1) {
    if (k + 32 < n) {
      load(stage ^ 1, k + 32);
      copy_async_wait<1>();  // the stage before
    } else {
      copy_async_wait<0>();  // the last stage
    }
    __syncthreads();  // all threads' copies are there
    for (int j = 0; j < 32; j += 16) {
      u32x4 x[2];
      u32x2 y[4];
      for (int i = 0; i < 2; i++)
        x[i] = load_matrix_x4(&left[stage][row + i * 16 + lane % 16][j + lane / 16 * 8]);
      for (int i = 0; i < 4; i++)
        y[i] = load_matrix_x2_transposed(&right[stage][j + lane % 16][column + i * 8]);
      for (int i = 0; i < 2; i++)
        for (int m = 0; m < 4; m++) sums[i][m] = mma_m16n8k16_bf16(x[i], y[m], sums[i][m]);
    }
    __syncthreads();  // the stage has been read
  }
  for (int i = 0; i < 2; i++)
    for (int m = 0; m < 4; m++)
      for (int e = 0; e < 4; e++)
        c[(first_row + row + i * 16 + lane / 4 + e / 2 * 8) * n + first_column + column + m * 8 +
          lane % 4 * 2 + e % 2] = sums[i][m].lane[e];
}
