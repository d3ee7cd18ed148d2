"""LLVM IR text of the kernel that runs the members of a record, as one grid.

Its buffers are the table of the replay, its values the record. A grid item is a piece of a member:
piece p of n is the part of the member's own grid from p/n to (p+1)/n.
"""

from __future__ import annotations

GROUP_IR = """
define internal void @group_kernel(ptr %table, ptr %record, i64 %begin, i64 %end) {
entry:
  %t = load %Table, ptr %table
  %members = extractvalue %Table %t, 2
  %arguments = extractvalue %Table %t, 3
  %values = extractvalue %Table %t, 8
  %variables = extractvalue %Table %t, 10
  %r = load %Record, ptr %record
  %first = extractvalue %Record %r, 0
  %count = extractvalue %Record %r, 1
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %start = phi i64 [ 0, %entry ], [ %stop, %next ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %done
look:
  %number = add i64 %first, %i
  %member = getelementptr %Member, ptr %members, i64 %number
  %m = load %Member, ptr %member
  %kernel = extractvalue %Member %m, 0
  %first.argument = extractvalue %Member %m, 1
  %first.value = extractvalue %Member %m, 2
  %grid.variable = extractvalue %Member %m, 3
  %pieces = extractvalue %Member %m, 4
  %stop = add i64 %start, %pieces
  %from = call i64 @llvm.smax.i64(i64 %begin, i64 %start)
  %to = call i64 @llvm.smin.i64(i64 %end, i64 %stop)
  %some = icmp slt i64 %from, %to
  br i1 %some, label %run, label %next
run:
  %grid.ptr = getelementptr i64, ptr %variables, i64 %grid.variable
  %grid = load i64, ptr %grid.ptr
  %from.piece = sub i64 %from, %start
  %to.piece = sub i64 %to, %start
  %from.share = mul i64 %grid, %from.piece
  %to.share = mul i64 %grid, %to.piece
  %low = sdiv i64 %from.share, %pieces
  %high = sdiv i64 %to.share, %pieces
  %any = icmp slt i64 %low, %high
  br i1 %any, label %call, label %next
call:
  %own.arguments = getelementptr i64, ptr %arguments, i64 %first.argument
  %own.values = getelementptr i64, ptr %values, i64 %first.value
  call void %kernel(ptr %own.arguments, ptr %own.values, i64 %low, i64 %high)
  br label %next
next:
  %i.next = add i64 %i, 1
  br label %loop
done:
  ret void
}
"""
