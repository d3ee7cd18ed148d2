"""LLVM IR text of the kernel that copies memory, to stand in one module with the pool.

Its buffers are destination and source; its values are the bytes in all and the bytes of a grid
item. Many bytes to an aligned, disjoint destination are written past the caches, which pays once
both ends do not fit in them: a plain store first reads the cache line that it overwrites.
"""

from __future__ import annotations

LINE_BYTES = 64
# of all that is copied; both ends together are then larger than most last-level caches
STREAM_BYTES = 32 << 20

COPY_IR = f"""
declare i64 @llvm.abs.i64(i64, i1)

define void @copy_kernel(ptr %buffers, ptr %values, i64 %begin, i64 %end) {{
entry:
  %to = load ptr, ptr %buffers
  %from.ptr = getelementptr ptr, ptr %buffers, i64 1
  %from = load ptr, ptr %from.ptr
  %nbytes = load i64, ptr %values
  %piece.ptr = getelementptr i64, ptr %values, i64 1
  %piece = load i64, ptr %piece.ptr
  %first = mul i64 %begin, %piece
  %after = mul i64 %end, %piece
  %last = call i64 @llvm.smin.i64(i64 %after, i64 %nbytes)
  %to.first = getelementptr i8, ptr %to, i64 %first
  %address = ptrtoint ptr %to.first to i64
  %misalignment = and i64 %address, {LINE_BYTES - 1}
  %aligned = icmp eq i64 %misalignment, 0
  %large = icmp sge i64 %nbytes, {STREAM_BYTES}
  %to.address = ptrtoint ptr %to to i64
  %from.address = ptrtoint ptr %from to i64
  %signed.distance = sub i64 %to.address, %from.address
  %distance = call i64 @llvm.abs.i64(i64 %signed.distance, i1 false)
  %disjoint = icmp sge i64 %distance, %nbytes
  %large.aligned = and i1 %large, %aligned
  %stream = and i1 %large.aligned, %disjoint
  %count = sub i64 %last, %first
  %whole.lines = and i64 %count, {-LINE_BYTES}
  %streamed = select i1 %stream, i64 %whole.lines, i64 0
  %full = add i64 %first, %streamed
  br label %loop
loop:
  %i = phi i64 [ %first, %entry ], [ %i.next, %body ]
  %more = icmp slt i64 %i, %full
  br i1 %more, label %body, label %tail
body:
  %from.line = getelementptr i8, ptr %from, i64 %i
  %to.line = getelementptr i8, ptr %to, i64 %i
  %line = load <{LINE_BYTES} x i8>, ptr %from.line, align 1
  store <{LINE_BYTES} x i8> %line, ptr %to.line, align {LINE_BYTES}, !nontemporal !0
  %i.next = add i64 %i, {LINE_BYTES}
  br label %loop
tail:
  %rest = sub i64 %last, %full
  %from.rest = getelementptr i8, ptr %from, i64 %full
  %to.rest = getelementptr i8, ptr %to, i64 %full
  call void @llvm.memmove.p0.p0.i64(ptr %to.rest, ptr %from.rest, i64 %rest, i1 false)
  ; streaming stores are not ordered by what ends a kernel
  fence seq_cst
  ret void
}}

!0 = !{{ i32 1 }}
"""
