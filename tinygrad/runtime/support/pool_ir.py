"""LLVM IR text of the worker pool.

A kernel is `void kernel(ptr buffers, ptr values, i64 begin, i64 end)`. `pool_launch` runs one over
a grid: it opens a job, takes part in it, closes it when every item is claimed and waits for the
workers that are inside. A worker that wakes late finds the job closed and costs nothing, so no
launch ever waits for a thread to be scheduled in.

`@gate` holds all of that in one atomic word: the job's number in the high half; in the low half,
how many workers are inside, whether the job is open (bit 30) and whether the launching thread
sleeps until they leave (bit 31). Workers poll it for `@spin_ns` nanoseconds, then sleep on its high
half.
"""

from __future__ import annotations

from tinygrad.runtime.support.copy_ir import COPY_IR
from tinygrad.runtime.support.group_ir import GROUP_IR
from tinygrad.runtime.support.platform_ir import Platform
from tinygrad.runtime.support.replay_ir import REPLAY_IR

OPEN = 1 << 30
WAITING = 1 << 31
MAX_THREADS = 1024

STATE_IR = f"""
@gate = internal global [8 x i64] zeroinitializer, align 64
@next = internal global [8 x i64] zeroinitializer, align 64
@sleepers = internal global [16 x i32] zeroinitializer, align 64
@launch_lock = internal global [16 x i32] zeroinitializer, align 64

; the job: written before the gate opens, read by those inside
@job.kernel = internal global ptr null, align 64
@job.buffers = internal global ptr null
@job.values = internal global ptr null
@job.grid = internal global i64 0
@job.chunk = internal global i64 0

@threads = internal global i32 1
@started = internal global i32 0
@stopping = internal global i32 0
@spin_ns = internal global i64 30000
@handles = internal global [{MAX_THREADS} x i64] zeroinitializer

declare i32 @clock_gettime(i32, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @sigfillset(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @llvm.smin.i32(i32, i32)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.x86.sse2.pause()
declare void @llvm.aarch64.hint(i32)
"""


def _helpers(platform: Platform) -> str:
    """The clock, and a lock whose word is 0 free, 1 held, 2 held and waited for."""
    return f"""
define internal i64 @now_ns() {{
  %time = alloca {{ i64, i64 }}
  %r = call i32 @clock_gettime(i32 {platform.monotonic_clock}, ptr %time)
  %s = load i64, ptr %time
  %ns.ptr = getelementptr {{ i64, i64 }}, ptr %time, i32 0, i32 1
  %ns = load i64, ptr %ns.ptr
  %s.ns = mul i64 %s, 1000000000
  %sum = add i64 %s.ns, %ns
  ret i64 %sum
}}

define internal void @lock(ptr %word) {{
  %pair = cmpxchg ptr %word, i32 0, i32 1 acquire monotonic
  %free = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %free, label %done, label %contend
contend:
  %old = atomicrmw xchg ptr %word, i32 2 acquire
  %mine = icmp eq i32 %old, 0
  br i1 %mine, label %done, label %sleep
sleep:
  call void @sleep_while(ptr %word, i32 2)
  br label %contend
done:
  ret void
}}

define internal void @unlock(ptr %word) {{
  %old = atomicrmw xchg ptr %word, i32 0 release
  %waited = icmp eq i32 %old, 2
  br i1 %waited, label %notify, label %done
notify:
  call void @wake(ptr %word, i32 1)
  br label %done
done:
  ret void
}}

; wakes a few sleeping workers; each of them wakes a few more
define internal void @rouse() {{
  %count = load atomic i32, ptr @sleepers seq_cst, align 4
  %any = icmp sgt i32 %count, 0
  br i1 %any, label %notify, label %done
notify:
  %few = call i32 @llvm.smin.i32(i32 %count, i32 4)
  %high = getelementptr i32, ptr @gate, i64 1
  call void @wake(ptr %high, i32 %few)
  br label %done
done:
  ret void
}}
"""


WORK_IR = """
; claims chunks of the open job until none is left
define internal void @work() {
  %kernel = load ptr, ptr @job.kernel
  %buffers = load ptr, ptr @job.buffers
  %values = load ptr, ptr @job.values
  %grid = load i64, ptr @job.grid
  %chunk = load i64, ptr @job.chunk
  br label %claim
claim:
  %begin = atomicrmw add ptr @next, i64 %chunk monotonic
  %some = icmp slt i64 %begin, %grid
  br i1 %some, label %run, label %done
run:
  %after = add i64 %begin, %chunk
  %end = call i64 @llvm.smin.i64(i64 %after, i64 %grid)
  call void %kernel(ptr %buffers, ptr %values, i64 %begin, i64 %end)
  br label %claim
done:
  ret void
}
"""


def _worker(platform: Platform) -> str:
    """The life of a worker thread."""
    return f"""
define internal ptr @worker(ptr %unused) {{
entry:
  %seen = alloca i32
  %polls = alloca i32
  %deadline = alloca i64
  store i32 0, ptr %seen
  br label %rest

rest:
  %spin = load i64, ptr @spin_ns
  %now = call i64 @now_ns()
  %until = add i64 %now, %spin
  store i64 %until, ptr %deadline
  store i32 0, ptr %polls
  br label %poll

poll:
  %gate = load atomic i64, ptr @gate acquire, align 8
  %gate.high = lshr i64 %gate, 32
  %job = trunc i64 %gate.high to i32
  %last = load i32, ptr %seen
  %new = icmp ne i32 %job, %last
  br i1 %new, label %news, label %idle

idle:
  {platform.pause_ir}
  %polls.old = load i32, ptr %polls
  %polls.new = add i32 %polls.old, 1
  store i32 %polls.new, ptr %polls
  %polls.low = and i32 %polls.new, 31
  %check = icmp eq i32 %polls.low, 0
  br i1 %check, label %clock, label %poll
clock:
  %time = call i64 @now_ns()
  %limit = load i64, ptr %deadline
  %late = icmp sgt i64 %time, %limit
  br i1 %late, label %sleep, label %poll
sleep:
  %s.in = atomicrmw add ptr @sleepers, i32 1 seq_cst
  %high = getelementptr i32, ptr @gate, i64 1
  call void @sleep_while(ptr %high, i32 %last)
  %s.out = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  br label %rest

news:
  %stop = load atomic i32, ptr @stopping acquire, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %quit, label %look
quit:
  ret ptr null
look:
  %open.bit = and i64 %gate, {OPEN}
  %open = icmp ne i64 %open.bit, 0
  br i1 %open, label %enter, label %missed
missed:
  store i32 %job, ptr %seen
  br label %rest
enter:
  %gate.new = add i64 %gate, 1
  %pair = cmpxchg ptr @gate, i64 %gate, i64 %gate.new acq_rel monotonic
  %entered = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %entered, label %inside, label %poll
inside:
  store i32 %job, ptr %seen
  call void @rouse()
  call void @work()
  %old = atomicrmw sub ptr @gate, i64 1 acq_rel
  %low = trunc i64 %old to i32
  %awaited = icmp eq i32 %low, {_signed(WAITING | 1)}
  br i1 %awaited, label %report, label %rest
report:
  call void @wake(ptr @gate, i32 1)
  br label %rest
}}
"""


def _start(platform: Platform) -> str:
    """Starting, stopping and, in a child of fork, forgetting the workers."""
    return f"""
; with all signals blocked, so that they go to Python's own threads
define internal void @start() {{
entry:
  %all = alloca [256 x i8], align 16
  %before = alloca [256 x i8], align 16
  %f = call i32 @sigfillset(ptr %all)
  %m = call i32 @pthread_sigmask(i32 {platform.sig_setmask}, ptr %all, ptr %before)
  %threads = load i32, ptr @threads
  br label %loop
loop:
  %i = phi i32 [ 1, %entry ], [ %i.next, %create ]
  %more = icmp slt i32 %i, %threads
  br i1 %more, label %create, label %done
create:
  %handle = getelementptr i64, ptr @handles, i32 %i
  %error = call i32 @pthread_create(ptr %handle, ptr null, ptr @worker, ptr null)
  %i.next = add i32 %i, 1
  %created = icmp eq i32 %error, 0
  br i1 %created, label %loop, label %done
done:
  ; where the system refuses a thread, those that exist do
  %count = phi i32 [ %threads, %loop ], [ %i, %create ]
  store i32 %count, ptr @threads
  store i32 1, ptr @started
  %u = call i32 @pthread_sigmask(i32 {platform.sig_setmask}, ptr %before, ptr null)
  ret void
}}

; ends the workers; from here on every grid runs in the thread that launches it
define void @pool_stop() {{
entry:
  call void @lock(ptr @launch_lock)
  %threads = load i32, ptr @threads
  %started = load i32, ptr @started
  store i32 1, ptr @threads
  store i32 0, ptr @started
  store atomic i32 1, ptr @stopping release, align 4
  %g = atomicrmw add ptr @gate, i64 4294967296 seq_cst
  %high = getelementptr i32, ptr @gate, i64 1
  call void @wake(ptr %high, i32 2147483647)
  %running = icmp ne i32 %started, 0
  br i1 %running, label %loop, label %done
loop:
  %i = phi i32 [ 1, %entry ], [ %i.next, %join ]
  %more = icmp slt i32 %i, %threads
  br i1 %more, label %join, label %done
join:
  %slot = getelementptr i64, ptr @handles, i32 %i
  %handle = load i64, ptr %slot
  %r = call i32 @pthread_join(i64 %handle, ptr null)
  %i.next = add i32 %i, 1
  br label %loop
done:
  call void @unlock(ptr @launch_lock)
  ret void
}}

; a pool of so many threads, the launching one included; the workers start at the first launch.
; Only before any launch, after @pool_stop, or in a child of fork, where the workers do not exist.
define void @pool_reset(i32 %threads, i64 %spin_ns) {{
  call void @pool_prepare()
  store i64 0, ptr @gate
  store i32 0, ptr @sleepers
  store i32 0, ptr @launch_lock
  store i32 0, ptr @started
  store i32 0, ptr @stopping
  %few = call i32 @llvm.smin.i32(i32 %threads, i32 {MAX_THREADS})
  store i32 %few, ptr @threads
  store i64 %spin_ns, ptr @spin_ns
  ret void
}}
"""


def _launch(platform: Platform) -> str:
    """Opening, working on and closing one job."""
    return f"""
define void @pool_launch(ptr %kernel, ptr %buffers, ptr %values, i64 %grid) {{
  %threads = load i32, ptr @threads
  %wide = sext i32 %threads to i64
  %pieces = mul i64 %wide, 4
  %even = sdiv i64 %grid, %pieces
  %chunk = call i64 @llvm.smax.i64(i64 %even, i64 1)
  call void @launch_chunks(ptr %kernel, ptr %buffers, ptr %values, i64 %grid, i64 %chunk)
  ret void
}}

; threads claim so many items at a time
define internal void @launch_chunks(
    ptr %kernel, ptr %buffers, ptr %values, i64 %grid, i64 %chunk) {{
entry:
  %threads = load i32, ptr @threads
  %alone = icmp slt i32 %threads, 2
  %small = icmp slt i64 %grid, 2
  %serial = or i1 %alone, %small
  br i1 %serial, label %direct, label %shared
direct:
  call void %kernel(ptr %buffers, ptr %values, i64 0, i64 %grid)
  ret void

shared:
  call void @lock(ptr @launch_lock)
  %started = load i32, ptr @started
  %ready = icmp ne i32 %started, 0
  br i1 %ready, label %publish, label %begin
begin:
  call void @start()
  br label %publish
publish:
  store ptr %kernel, ptr @job.kernel
  store ptr %buffers, ptr @job.buffers
  store ptr %values, ptr @job.values
  store i64 %grid, ptr @job.grid
  store i64 %chunk, ptr @job.chunk
  store atomic i64 0, ptr @next monotonic, align 8
  %gate = load atomic i64, ptr @gate monotonic, align 8
  %job.old = lshr i64 %gate, 32
  %job = add i64 %job.old, 1
  %job.high = shl i64 %job, 32
  %opened = or i64 %job.high, {OPEN}
  ; sequentially consistent: either a worker going to sleep sees the new job, or we see the sleeper
  store atomic i64 %opened, ptr @gate seq_cst, align 8
  call void @rouse()
  call void @work()
  %closed = atomicrmw and ptr @gate, i64 {~OPEN} acq_rel
  br label %poll

poll:
  %polls = phi i32 [ 0, %publish ], [ %polls.next, %again ]
  %state = load atomic i64, ptr @gate acquire, align 8
  %inside = trunc i64 %state to i32
  %left = icmp eq i32 %inside, 0
  br i1 %left, label %done, label %again
again:
  {platform.pause_ir}
  %polls.next = add i32 %polls, 1
  %patient = icmp slt i32 %polls.next, 2000
  br i1 %patient, label %poll, label %announce

announce:
  %old = atomicrmw or ptr @gate, i64 {WAITING} acq_rel
  br label %nap
nap:
  %state.now = load atomic i64, ptr @gate acquire, align 8
  %low = trunc i64 %state.now to i32
  %gone = icmp eq i32 %low, {_signed(WAITING)}
  br i1 %gone, label %done, label %sleep
sleep:
  call void @sleep_while(ptr @gate, i32 %low)
  br label %nap

done:
  call void @unlock(ptr @launch_lock)
  ret void
}}
"""


def _signed(word: int) -> int:
    """A 32-bit pattern as LLVM prints it in an i32."""
    return word - (1 << 32) if word >= 1 << 31 else word


def pool_ir(platform: Platform) -> str:
    """The whole module."""
    return "".join(
        (
            platform.wait_ir,
            STATE_IR,
            _helpers(platform),
            WORK_IR,
            _worker(platform),
            _start(platform),
            _launch(platform),
            REPLAY_IR,
            GROUP_IR,
            COPY_IR,
        )
    )
