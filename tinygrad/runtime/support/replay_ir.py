"""LLVM IR text of the native loop over recorded kernels, to stand in one module with the pool."""

from __future__ import annotations

# A record is { i64 first member, i64 members, i64 pieces of all, i64 parallel }, a member is
# { ptr kernel, i64 first argument, i64 first value, i64 variable of the grid, i64 pieces }; a table
# is as `replay.Table`. All arguments are resolved first, so repointing a slot costs one store.
REPLAY_IR = """
%Record = type { i64, i64, i64, i64 }
%Member = type { ptr, i64, i64, i64, i64 }
%Table = type { ptr, i64, ptr, ptr, ptr, ptr, ptr, i64, ptr, ptr, ptr, i64 }

define void @replay_run(ptr %table, ptr %elapsed) {
entry:
  %t = load %Table, ptr %table
  %records = extractvalue %Table %t, 0
  %record.count = extractvalue %Table %t, 1
  %members = extractvalue %Table %t, 2
  %arguments = extractvalue %Table %t, 3
  %argument.slots = extractvalue %Table %t, 4
  %argument.offsets = extractvalue %Table %t, 5
  %slots = extractvalue %Table %t, 6
  %argument.count = extractvalue %Table %t, 7
  %values = extractvalue %Table %t, 8
  %value.slots = extractvalue %Table %t, 9
  %variables = extractvalue %Table %t, 10
  %value.count = extractvalue %Table %t, 11
  %timed = icmp ne ptr %elapsed, null
  br label %resolve

resolve:
  %a = phi i64 [ 0, %entry ], [ %a.next, %resolve.body ]
  %a.more = icmp slt i64 %a, %argument.count
  br i1 %a.more, label %resolve.body, label %assign
resolve.body:
  %a.slot.ptr = getelementptr i64, ptr %argument.slots, i64 %a
  %a.slot = load i64, ptr %a.slot.ptr
  %a.base.ptr = getelementptr i64, ptr %slots, i64 %a.slot
  %a.base = load i64, ptr %a.base.ptr
  %a.offset.ptr = getelementptr i64, ptr %argument.offsets, i64 %a
  %a.offset = load i64, ptr %a.offset.ptr
  %a.address = add i64 %a.base, %a.offset
  %a.out = getelementptr i64, ptr %arguments, i64 %a
  store i64 %a.address, ptr %a.out
  %a.next = add i64 %a, 1
  br label %resolve

assign:
  %v = phi i64 [ 0, %resolve ], [ %v.next, %assign.body ]
  %v.more = icmp slt i64 %v, %value.count
  br i1 %v.more, label %assign.body, label %step
assign.body:
  %v.slot.ptr = getelementptr i64, ptr %value.slots, i64 %v
  %v.slot = load i64, ptr %v.slot.ptr
  %v.in = getelementptr i64, ptr %variables, i64 %v.slot
  %v.value = load i64, ptr %v.in
  %v.out = getelementptr i64, ptr %values, i64 %v
  store i64 %v.value, ptr %v.out
  %v.next = add i64 %v, 1
  br label %assign

step:
  %i = phi i64 [ 0, %assign ], [ %i.next, %advance ]
  %more = icmp slt i64 %i, %record.count
  br i1 %more, label %read, label %done
read:
  %record = getelementptr %Record, ptr %records, i64 %i
  %r = load %Record, ptr %record
  %first.member = extractvalue %Record %r, 0
  %member.count = extractvalue %Record %r, 1
  %pieces = extractvalue %Record %r, 2
  %parallel = extractvalue %Record %r, 3
  %serial = icmp eq i64 %parallel, 0
  br i1 %timed, label %stamp, label %choose
stamp:
  %stamped = call i64 @now_ns()
  br label %choose
choose:
  %from = phi i64 [ 0, %read ], [ %stamped, %stamp ]
  %several = icmp sgt i64 %member.count, 1
  br i1 %several, label %group, label %single
group:
  br i1 %serial, label %group.direct, label %group.pooled
group.direct:
  call void @group_kernel(ptr %table, ptr %record, i64 0, i64 %pieces)
  br label %finish
group.pooled:
  call void @launch_chunks(ptr @group_kernel, ptr %table, ptr %record, i64 %pieces, i64 1)
  br label %finish
single:
  %member = getelementptr %Member, ptr %members, i64 %first.member
  %m = load %Member, ptr %member
  %kernel = extractvalue %Member %m, 0
  %first.argument = extractvalue %Member %m, 1
  %first.value = extractvalue %Member %m, 2
  %grid.variable = extractvalue %Member %m, 3
  %k.buffers = getelementptr i64, ptr %arguments, i64 %first.argument
  %k.values = getelementptr i64, ptr %values, i64 %first.value
  %grid.ptr = getelementptr i64, ptr %variables, i64 %grid.variable
  %grid = load i64, ptr %grid.ptr
  br i1 %serial, label %direct, label %pooled
direct:
  call void %kernel(ptr %k.buffers, ptr %k.values, i64 0, i64 %grid)
  br label %finish
pooled:
  call void @pool_launch(ptr %kernel, ptr %k.buffers, ptr %k.values, i64 %grid)
  br label %finish
finish:
  br i1 %timed, label %measure, label %advance
measure:
  %to = call i64 @now_ns()
  %ns = sub i64 %to, %from
  %out = getelementptr i64, ptr %elapsed, i64 %i
  store i64 %ns, ptr %out
  br label %advance
advance:
  %i.next = add i64 %i, 1
  br label %step
done:
  ret void
}
"""
