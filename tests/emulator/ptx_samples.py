"""Small PTX kernels, written by hand, for tests of the emulator."""

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 smem[];\n"


def kernel(body: str, registers: str = "") -> str:
    """A kernel of three pointers and a number; %rd1 to %rd3 point to its arrays, %r1 is the thread, %r2 the number."""
    return (
        HEAD
        + ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n{\n"
        + ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<30>; .reg .f32 %f<9>; .reg .b64 %rd<30>;\n"
        + registers
        + "ld.param.u64 %rd1, [a];\nld.param.u64 %rd2, [b];\nld.param.u64 %rd3, [c];\nld.param.u32 %r2, [n];\n"
        + "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd4, %r1, 4;\n"
        + "add.s64 %rd5, %rd1, %rd4;\nadd.s64 %rd6, %rd2, %rd4;\nadd.s64 %rd7, %rd3, %rd4;\n"
        + "shl.b32 %r3, %r1, 2;\nmov.u32 %r4, smem;\nadd.s32 %r5, %r4, %r3;\n"
        + body
        + "\nret;\n}\n"
    )


# Threads read what the mirror image of their block wrote to shared memory.
MIRROR = """
.loc 1 10 0
ld.global.b32 %r6, [%rd5];
.loc 1 11 0
st.shared.b32 [%r5], %r6;
BARRIER
.loc 1 13 0
sub.s32 %r7, 252, %r3;
add.s32 %r8, %r4, %r7;
ld.shared.b32 %r9, [%r8];
.loc 1 14 0
st.global.b32 [%rd7], %r9;
"""

# Blocks count in %rd2 under a lock in %rd1: thread 0 takes it and tells the others through shared memory.
LOCK = """
setp.eq.u32 %p1, %r1, 0;
AGAIN:
bar.sync 0;
mov.b32 %r6, 0;
@%p1 atom.global.acq_rel.gpu.cas.b32 %r6, [%rd1], 0, 1;
@%p1 st.shared.b32 [%r4], %r6;
bar.sync 0;
ld.shared.b32 %r7, [%r4];
setp.eq.u32 %p2, %r7, 1;
@%p2 bra AGAIN;
@%p1 ld.global.b32 %r8, [%rd2];
@%p1 add.s32 %r8, %r8, 1;
@%p1 st.global.b32 [%rd2], %r8;
bar.sync 0;
@%p1 atom.global.acq_rel.gpu.exch.b32 %r9, [%rd1], 0;
"""

# All threads load one number, and thread 0 stores what follows it; STORE may let others use what they loaded.
UNIFORM = """
setp.eq.u32 %p1, %r1, 0;
ld.global.b32 %r6, [%rd2];
add.s32 %r7, %r6, 1;
@%p1 st.global.b32 [%rd2], %r7;
STORE
"""

# Each thread stores square(a) + 1 where the callee branches, and calls another function.
CALLS = """
.func (.param .b32 r) plus_one(.param .b32 v)
{
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [v];
  add.u32 %r2, %r1, 1;
  st.param.b32 [r+0], %r2;
  ret;
}
.func (.param .b32 r) square(.param .b32 v, .param .b32 limit)
{
  .local .align 4 .b8 depot[8];
  .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<3>;
  ld.param.u32 %r1, [v];
  ld.param.u32 %r2, [limit];
  mov.u64 %rd1, depot;
  setp.lt.u32 %p1, %r1, %r2;
  @%p1 bra SMALL;
  st.param.b32 [r+0], %r2;
  ret;
SMALL:
  mul.lo.u32 %r3, %r1, %r1;
  st.local.u32 [%rd1+4], %r3;
  ld.local.u32 %r4, [%rd1+4];
  {
  .param .b32 param0;
  st.param.b32 [param0+0], %r4;
  .param .b32 retval0;
  call.uni (retval0), plus_one, (param0);
  ld.param.b32 %r5, [retval0+0];
  }
  st.param.b32 [r+0], %r5;
  ret;
}
"""
CALL = """
ld.global.b32 %r6, [%rd5];
mov.u32 %r7, 0;
mov.u32 %r9, 0;
LOOP:
{
.param .b32 param0;
st.param.b32 [param0+0], %r6;
.param .b32 param1;
st.param.b32 [param1+0], 10;
.param .b32 retval0;
call (retval0), square, (param0, param1);
ld.param.b32 %r8, [retval0+0];
}
add.u32 %r9, %r9, %r8;
add.u32 %r7, %r7, 1;
setp.lt.u32 %p1, %r7, 2;
@%p1 bra LOOP;
st.global.b32 [%rd7], %r9;
"""

# One warp: c = a b + 1 of 16 x 16 matrices of halves; A, B and C are how a, b and c lie in memory.
WMMA = """
mov.f32 %f1, 0f3F800000;
mov.u32 %r6, 16;
wmma.load.a.sync.aligned.A.m16n16k16.global.f16 {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, [%rd1], %r6;
wmma.load.b.sync.aligned.B.m16n16k16.global.f16 {%r20, %r21, %r22, %r23, %r24, %r25, %r26, %r27}, [%rd2], %r6;
wmma.mma.sync.aligned.A.B.m16n16k16.f32.f32 {%f2, %f3, %f4, %f5, %f6, %f7, %f8, %f9},
  {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, {%r20, %r21, %r22, %r23, %r24, %r25, %r26, %r27},
  {%f1, %f1, %f1, %f1, %f1, %f1, %f1, %f1};
wmma.store.d.sync.aligned.C.m16n16k16.global.f32 [%rd3], {%f2, %f3, %f4, %f5, %f6, %f7, %f8, %f9}, %r6;
"""
