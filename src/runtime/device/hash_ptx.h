// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The kernel that sums the words of WordHash on a GPU. The driver compiles it for the GPU that it
// finds (V100 or later). tests/contrib/ptx_test.sh compiles it with ptxas if that is installed, and
// the driver's stand-in executes it.
namespace swell::runtime {

/// Bytes of a run that form one piece, the work of one warp.
inline constexpr unsigned kHashPiece = 8192, kHashThreads = 256, kHashWarps = kHashThreads / 32;
inline constexpr const char* kHashKernel = "swell_sum_words";
/// A piece as the kernel reads it. `first`: the number of its first word.
struct HashPiece {
  unsigned long long address, first, bytes;
};
/// swell_sum_words(pieces, number of pieces, address to which the sum is added)
inline constexpr const char* kHashPtx = R"(.version 6.3
.target sm_70
.address_size 64

.visible .entry swell_sum_words(
  .param .u64 swell_pieces,
  .param .u32 swell_count,
  .param .u64 swell_sum
)
.maxntid 256, 1, 1
{
  .reg .pred %p<8>;
  .reg .b32 %r<16>;
  .reg .b64 %d<24>;

  ld.param.u64 %d1, [swell_pieces];
  ld.param.u32 %r1, [swell_count];
  ld.param.u64 %d2, [swell_sum];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  and.b32 %r4, %r2, 31;
  shr.u32 %r5, %r2, 5;
  shl.b32 %r6, %r3, 3;
  add.u32 %r5, %r5, %r6;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %d3, %r5, 24;
  add.u64 %d3, %d1, %d3;
  ld.global.u64 %d4, [%d3];
  ld.global.u64 %d5, [%d3+8];
  ld.global.u64 %d6, [%d3+16];
  mov.u64 %d7, 0;
  cvt.u64.u32 %d8, %r4;
  and.b64 %d9, %d4, 7;
  setp.ne.u64 %p2, %d9, 0;
LOOP:
  shl.b64 %d10, %d8, 3;
  setp.ge.u64 %p1, %d10, %d6;
  @%p1 bra REDUCE;
  sub.u64 %d11, %d6, %d10;
  add.u64 %d12, %d4, %d10;
  setp.lt.u64 %p3, %d11, 8;
  or.pred %p3, %p3, %p2;
  @%p3 bra BYTES;
  ld.global.u64 %d13, [%d12];
MIX:
  add.u64 %d14, %d5, %d8;
  add.u64 %d14, %d14, 1;
  mul.lo.u64 %d14, %d14, 0x9e3779b97f4a7c15;
  add.u64 %d13, %d13, %d14;
  shr.u64 %d15, %d13, 32;
  xor.b64 %d13, %d13, %d15;
  mul.lo.u64 %d13, %d13, 0xbf58476d1ce4e5b9;
  shr.u64 %d15, %d13, 29;
  xor.b64 %d13, %d13, %d15;
  mul.lo.u64 %d13, %d13, 0x94d049bb133111eb;
  shr.u64 %d15, %d13, 32;
  xor.b64 %d13, %d13, %d15;
  add.u64 %d7, %d7, %d13;
  add.u64 %d8, %d8, 32;
  bra LOOP;
BYTES:
  min.u64 %d16, %d11, 8;
  add.u64 %d16, %d12, %d16;
  mov.u64 %d13, 0;
  mov.u32 %r7, 0;
BYTE:
  ld.global.u8 %d17, [%d12];
  shl.b64 %d17, %d17, %r7;
  or.b64 %d13, %d13, %d17;
  add.u32 %r7, %r7, 8;
  add.u64 %d12, %d12, 1;
  setp.lt.u64 %p4, %d12, %d16;
  @%p4 bra BYTE;
  bra MIX;
REDUCE:
  mov.u32 %r8, 16;
SHUFFLE:
  mov.b64 {%r9, %r10}, %d7;
  shfl.sync.bfly.b32 %r11, %r9, %r8, 31, 0xffffffff;
  shfl.sync.bfly.b32 %r12, %r10, %r8, 31, 0xffffffff;
  mov.b64 %d18, {%r11, %r12};
  add.u64 %d7, %d7, %d18;
  shr.u32 %r8, %r8, 1;
  setp.ne.u32 %p5, %r8, 0;
  @%p5 bra SHUFFLE;
  setp.ne.u32 %p6, %r4, 0;
  @%p6 bra DONE;
  red.global.add.u64 [%d2], %d7;
DONE:
  ret;
}
)";

}  // namespace swell::runtime
