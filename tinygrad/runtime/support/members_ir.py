"""LLVM IR text of the kernel that runs another kernel on several devices, as one grid.

Its buffers are those of each member, one behind the other. Its values are the other kernel, the
numbers of buffers and of values of a member, the grid of a member, and the values of each member.
Grid item i is item i % grid of member i / grid.
"""

from __future__ import annotations

MEMBERS_IR = """
define void @members_kernel(ptr %buffers, ptr %values, i64 %begin, i64 %end) {
entry:
  %kernel = load ptr, ptr %values
  %buffer.count.ptr = getelementptr i64, ptr %values, i64 1
  %buffer.count = load i64, ptr %buffer.count.ptr
  %value.count.ptr = getelementptr i64, ptr %values, i64 2
  %value.count = load i64, ptr %value.count.ptr
  %grid.ptr = getelementptr i64, ptr %values, i64 3
  %grid = load i64, ptr %grid.ptr
  %first.values = getelementptr i64, ptr %values, i64 4
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %run ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %run, label %done
run:
  %member = udiv i64 %i, %grid
  %first = urem i64 %i, %grid
  %left = sub i64 %end, %i
  %reach = add i64 %first, %left
  %last = call i64 @llvm.smin.i64(i64 %reach, i64 %grid)
  %buffer.start = mul i64 %member, %buffer.count
  %own.buffers = getelementptr ptr, ptr %buffers, i64 %buffer.start
  %value.start = mul i64 %member, %value.count
  %own.values = getelementptr i64, ptr %first.values, i64 %value.start
  call void %kernel(ptr %own.buffers, ptr %own.values, i64 %first, i64 %last)
  %steps = sub i64 %last, %first
  %i.next = add i64 %i, %steps
  br label %loop
done:
  ret void
}
"""
