"""What the worker pool needs of an operating system and a CPU, as LLVM IR text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Platform:
    """What differs between operating systems and CPUs.

    `wait_ir` defines `@sleep_while(ptr word, i32 value)`, which sleeps while the word has the value
    and may return early, and `@wake(ptr word, i32 count)`. `pause_ir` is the statement that tells
    the CPU that a loop polls. `monotonic_clock` and `sig_setmask` are the system's constants.
    """

    wait_ir: str
    pause_ir: str
    monotonic_clock: int
    sig_setmask: int


def futex_ir(syscall_number: int) -> str:
    """Sleeping and waking by Linux's futex system call, private to the process."""
    call = f"call i64 (i64, ...) @syscall(i64 {syscall_number}"
    wait, wake = 0 | 128, 1 | 128
    return f"""
declare i64 @syscall(i64, ...)

define internal void @sleep_while(ptr %word, i32 %value) {{
  %r = {call}, ptr %word, i64 {wait}, i32 %value, ptr null)
  ret void
}}

define internal void @wake(ptr %word, i32 %count) {{
  %r = {call}, ptr %word, i64 {wake}, i32 %count)
  ret void
}}

define void @pool_prepare() {{
  ret void
}}
"""


# One condition variable stands for every word: a waker changes its word before it calls @wake, and
# a sleeper checks the word under the mutex, so no wake-up is lost. Statically initialised memory is
# not portable (macOS wants a signature), hence @pool_prepare.
CONDITION_VARIABLE_IR = """
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

@mutex = internal global [128 x i8] zeroinitializer, align 64
@condition = internal global [128 x i8] zeroinitializer, align 64

define void @pool_prepare() {
  %m = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr @condition, ptr null)
  ret void
}

define internal void @sleep_while(ptr %word, i32 %value) {
  %locked = call i32 @pthread_mutex_lock(ptr @mutex)
  br label %check
check:
  %now = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %now, %value
  br i1 %same, label %sleep, label %done
sleep:
  %slept = call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  br label %check
done:
  %unlocked = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

define internal void @wake(ptr %word, i32 %count) {
  %locked = call i32 @pthread_mutex_lock(ptr @mutex)
  %sent = call i32 @pthread_cond_broadcast(ptr @condition)
  %unlocked = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
"""
