// C = A @ B of bfloat16 in blocks of 32 x 32, staged in threadgroup memory, by simdgroup matrices.
#include <metal_stdlib>
using namespace metal;
kernel void product(device float *c [[buffer(0)]], device const bfloat *a [[buffer(1)]],
                    device const bfloat *b [[buffer(2)]], constant long &n [[buffer(3)]],
                    uint3 block [[threadgroup_position_in_grid]],
                    uint number [[thread_position_in_threadgroup]]) {
  threadgroup bfloat left[32][16];
  threadgroup bfloat right[16][32];
  int row = number / 64 * 16, column = number / 32 % 2 * 16;
  simdgroup_float8x8 sums[2][2];
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) sums[i][j] = simdgroup_float8x8(0);
  for (int k = 0; k < n; k += 16) {
    for (int e = number; e < 512; e += 128) {
      left[e / 16][e % 16] = a[(block.y * 32 + e / 16) * n + k + e % 16];
      right[e / 32][e % 32] = b[(k + e / 32) * n + block.x * 32 + e % 32];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  // the operands are there
    for (int m = 0; m < 16; m += 8) {
      simdgroup_bfloat8x8 x[2], y[2];
      for (int i = 0; i < 2; i++) {
        simdgroup_load(x[i], &left[row + i * 8][m], 16);
        simdgroup_load(y[i], &right[m][column + i * 8], 32);
      }
      for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
          simdgroup_multiply_accumulate(sums[i][j], x[i], y[j], sums[i][j]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  // the operands have been read
  }
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++)
      simdgroup_store(
          sums[i][j],
          c + (block.y * 32 + row + i * 8) * n + block.x * 32 + column + j * 8, n);
}
