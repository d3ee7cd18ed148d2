"""Programs that `test.fuzz_state` found to differ from the eager reference, by kind.

Those of REFUSABLE kinds may be an error instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from test.devices import DEVICE, only_one_process
from test.fuzz_state.check import compare, compare_strictly
from test.fuzz_state.program import Program
from test.fuzzing.layouts import Layout
from tinygrad import Device

TWO = Layout((2,), (0,), (0, 1))

CAPTURED_WRITES = {
    "return of a contiguous counter": """
count = Tensor([0.0]).realize()
@TinyJit
def f(x):
    count.assign(count + x)
    return count.contiguous()
a = f(Tensor([1.0])).clone()
b = f(Tensor([1.0])).clone()
c = f(Tensor([1.0])).clone()
d = f(Tensor([1.0])).clone()
see(d.numpy())
see(count.numpy())
""",
    "return of a counter + 0": """
count = Tensor([0.0]).realize()
@TinyJit
def f(x):
    count.assign(count + x)
    return count + 0
a = f(Tensor([1.0])) + 1
b = f(Tensor([1.0])) + 1
c = f(Tensor([1.0])) + 1
d = f(Tensor([1.0])) + 1
see(d.numpy())
see(count.numpy())
""",
    "a cell that another one equals": """
w = Tensor.ones(1).contiguous().realize()
e = (w + 0).realize()
@TinyJit
def f(x):
    w.assign(w + x)
    e.assign(e * 0 + w)
    return w + 0
a = f(Tensor([1.0])).clone()
b = f(Tensor([1.0])).clone()
c = f(Tensor([1.0])).clone()
d = f(Tensor([1.0])).clone()
see(w.numpy())
""",
    "two functions that write one cell": """
w = Tensor([0.0]).realize()
@TinyJit
def f(x):
    w.assign(w + x)
    return w.contiguous()
@TinyJit
def g(x):
    w.assign(w + x)
    return w * 1
one = Tensor([1.0]).realize()
a, b = f(one).clone(), g(one).clone()
c, d = f(one).clone(), g(one).clone()
e, h = f(one).clone(), g(one).clone()
i, j = f(one).clone(), g(one).clone()
see(w.numpy())
""",
}
SHARED_ARGUMENTS = {
    "an argument + 0 is written": """
@TinyJit
def f(x):
    x += 1
    return x * 2
a = Tensor([1.0]).realize()
f(Tensor([0.0]).realize())
f(a + 0)
y = Tensor([0.0]).realize()
f(y)
f(y)
see(y.numpy())
""",
    "an argument equals a cell that is written": """
w = Tensor([6, -3]).realize()
@TinyJit
def f(x):
    w.assign(w + 1)
    return x + w
f(Tensor([0, 0]))
f(w)
see(f(w * 1).numpy())
see(w.numpy())
""",
    "a slice of a cell is written to itself by an argument": """
c = Tensor([1.0, 2.0]).realize()
@TinyJit
def f(x):
    c[1:2].assign(x[1:2])
f(c)
f(c)
f(Tensor([5.0, 6.0]))
see(c.numpy())
""",
    "a slice of a cell is written to an argument that equals one": """
w = Tensor([5])
y = Tensor([-3])
@TinyJit
def f(x):
    x[0:1].assign(w[0:1])
    w[:1] += 1
    return x
f(Tensor([0]).realize())
f(y)
see(f(y.contiguous()).numpy())
""",
    "a result is a view of a sharded cell and not of the argument": """
w = Tensor([[2, 4], [9, 9], [2, 9], [1, 0]], device=L)
@TinyJit
def f(x):
    return w[:1]
f(w)
f(w * 1)
see(f(Tensor([[7, 8], [0, 7], [6, -2], [3, -3]], device=L)).numpy())
""",
    "a constant argument has views": """
cache = Tensor.zeros(4, 2)
row = cache[0]
@TinyJit
def f(x):
    return x * 2
f(cache)
cache += 1
row += 10
see(cache.numpy())
see(row.numpy())
""",
    "a constant cell is an argument and has views": """
w = Tensor.zeros(1, 2)
@TinyJit
def f(x):
    return w[:1]
a = f(w + 1)
b = f(w)
b[:] = 7
see(a.numpy())
""",
    "the last result is kept and written as an argument": """
w = Tensor([[-3, -1], [5, 5]])
def make(c):
    @TinyJit
    def f(x):
        nonlocal c
        a = x * w
        x += 1
        c = a
        return a + w, a
    return f
f = make(Tensor([6]))
p, r = f(Tensor([[6, -1], [5, 1]]))
q, s = f(r.clone())
t, u = f(s)
see(s.numpy())
""",
    "a lazy argument is contiguous_backward": """
w = Tensor.full((2, 1), 1.0)
@TinyJit
def f(x):
    x.assign(x + w)
x = Tensor([[6.0], [-1.0]]).clone().contiguous_backward()
f(x)
see(x.numpy())
""",
}
EQUAL_VALUES = {
    "contiguous of a lazily placed value": """
x = Tensor([1.0, 2.0])
k = x.contiguous()
x[0] = 5
see(k.numpy())
""",
    "contiguous of a detached value": """
x = Tensor([1.0, 2.0]).realize()
k = x.detach().contiguous().realize()
x += 1
x.realize()
see(k.numpy())
""",
    "a write to contiguous of a detached value": """
x = Tensor([1.0, 2.0]).realize()
k = x.detach().contiguous()
k[0] = 9
see(x.numpy())
""",
    "contiguous_backward + 0": """
x = Tensor([1.0, 2.0]).realize()
k = x.contiguous_backward() + 0
x[0] = 5
see(k.numpy())
""",
    "contiguous of a detached result": """
@TinyJit
def f(x):
    return x * x
f(Tensor([1.0]))
k = f(Tensor([2.0])).detach().contiguous()
f(Tensor([3.0]))
see(k.numpy())
""",
    "a result of symbolic size * 1": """
n = Variable("n", 1, 4)
@TinyJit
def f(x):
    return x + 1
f(Tensor([1.0, 2.0, 3.0, 4.0]).realize()[:n.bind(1)])
k = f(Tensor([5.0, 6.0, 7.0, 8.0]).realize()[:n.bind(2)]) * 1
f(Tensor([0.0, 0.0, 0.0, 0.0]).realize()[:n.bind(3)])
see(k.numpy())
""",
}
INTERRUPTS = {
    "a pending write": """
x = Tensor([1, 2]).realize()
x += 1
with interrupted(0, "after"):
    x.realize()
see(x.numpy())
""",
    "a pending write that reads itself": """
x = Tensor([1, 2, 5]).realize()
x.assign(x.flip(0))
with interrupted(1, "after"):
    x.realize()
see(x.numpy())
""",
    "a reader of a pending write": """
x = Tensor([1, 2]).realize()
y = x + 1
x += 1
with interrupted(0, "after"):
    x.realize()
see(y.numpy())
see(x.numpy())
""",
    "one of two shards": """
x = Tensor([1, 2, 3, 4], device=L).realize()
x += 1
with interrupted(1, "after"):
    x.realize()
see(x.numpy())
""",
}
RESULTS = {
    "a view of the second of two arguments that are views of one tensor": """
w = Tensor([[1, 2], [3, 4], [5, 6]], device=L)
@TinyJit
def f(x, y):
    return y, y[:1]
f(w, w)
f(w, w.flip(0))
a, b = f(w, Tensor([[7, 8], [9, 10], [11, 12]], device=L).realize())
see(a.numpy())
see(b.numpy())
""",
    "a view of a constant of the closure": """
w = Tensor.full((2, 2), 2.0)
box = [w]
@TinyJit
def f(x):
    a = x + box[0]
    x.assign(a)
    return box[0][:1], a
f(Tensor([[1.0, 4.0], [0.0, 8.0]]))
f(Tensor.full((2, 2), 1.0))
a, b = f((--w))
f(w)
see(a.numpy())
see(w.numpy())
""",
    "a tensor of the closure, beside a copy of it as the argument": """
w = Tensor([-4, -4])
@TinyJit
def f(x):
    return w
a = f(Tensor([-1, -2]))
b = f(a + 0)
c = f(w)
w[0] = 7
see(c.numpy())
d = f(w + 0)
w[1] = 3
see(d.numpy())
""",
    "a tensor of the closure, beside a view of it as the argument": """
w = Tensor([0, 0, 7, 8, 9], device=L)
box = {"w": w}
@TinyJit
def f(x):
    return box["w"]
a = f(Tensor([-2, 6, 9, 2, 4]))
b = f(w.flip(0))
c = f(box["w"])
c += 1
see(w.numpy())
see((w * 2).numpy())
""",
    "an older result as an argument that is written": """
kept = []
@TinyJit
def f(x):
    a = x + 3
    kept.append(a)
    x.assign(x * 2)
    return [a[:1], x]
a, b = f(Tensor([[2, 8, -1]]))
c, d = f(b)
later = c + 1
e, g = f(c)
see(g.numpy())
see(c.numpy())
see(later.numpy())
""",
    "an older result as an argument of which a view is returned": """
box = SimpleNamespace(w=Tensor([0, 1]))
@TinyJit
def f(x, y):
    box.w = x * x
    return box.w, y[:1]
t = Tensor([0, 1])
a, b = f(t, t)
c, d = f(a, (--box.w))
e, g = f(t, c + 1)
h, i = f(box.w, Tensor([3, -2]))
j, k = f(e, box.w)
k.view(1).assign(i)
see(h.numpy())
""",
    "in a dataclass": """
@TinyJit
def f(x):
    return Output(x * 2)
f(Tensor([1.0]))
f(Tensor([2.0]))
see(f(Tensor([3.0])).y.numpy())
""",
    "in a namespace": """
@TinyJit
def f(x):
    return SimpleNamespace(y=(x, x * 2))
f(Tensor([1.0]))
f(Tensor([2.0]))
a, b = f(Tensor([3.0])).y
see(a.numpy())
see(b.numpy())
""",
    "in a set": """
@TinyJit
def f(x):
    return {x * 2}
f(Tensor([1.0]))
f(Tensor([2.0]))
a, = f(Tensor([3.0]))
see(a.numpy())
""",
    "in a deque": """
@TinyJit
def f(x):
    return deque([x * 2])
f(Tensor([1.0]))
f(Tensor([2.0]))
see(f(Tensor([3.0]))[0].numpy())
""",
    "in a generator": """
@TinyJit
def f(x):
    return (y for y in [x * 2])
a, = f(Tensor([1.0]))
b, = f(Tensor([2.0]))
c, = f(Tensor([3.0]))
see(c.numpy())
""",
    "in a closure": """
@TinyJit
def f(x):
    y = x * 2
    return lambda: y
f(Tensor([1.0]))
f(Tensor([2.0]))
see(f(Tensor([3.0]))().numpy())
""",
    "views of a kept tensor": """
P = SimpleNamespace()
@TinyJit
def f(x):
    P.kept = x * x
    return P.kept[:1]
a = f(Tensor([1.0, 0.0]))
b = f(Tensor([2.0, 0.0]))
c = f(Tensor([3.0, 0.0]))
d = f(Tensor([4.0, 0.0]))
see(c.numpy())
""",
    "without a history, at the first call too": """
w = Tensor([4.0]).requires_grad_()
@TinyJit
def f(x):
    (x * w).sum().backward()
    w.assign(w.detach() - w.grad)
    w.grad = None
    return w * 2
a = f(Tensor([1.0]))
b = f(a)
see(w.numpy())
""",
}
EFFECTS = {
    "a view of a kept tensor beside a result of its value": """
c = Tensor([5, -3, 1]).realize()
@TinyJit
def f(x):
    global c
    c[0:1] = x[0:1]
    c = c + 1
    x[1:2].assign(c[1:2])
    return (c + 0), c[:1], (c + 0)
a, b, k = f(Tensor([1, 8, 2]))
d, e, l = f(Tensor([2, 8, 3]))
c += 10
see(e.numpy())
see(c.numpy())
""",
    "a kept argument beside a result of its value": """
box = SimpleNamespace()
@TinyJit
def f(x):
    a = x * 3
    box.kept = x
    x.assign(a)
    return x + 0
f(Tensor([0.0, -3.0]))
x = (Tensor([4.0, -4.0]) * 1).detach()
f(x)
y = Tensor([-1.0, 5.0])
a = f(y)
see(x.numpy())
see(y.numpy())
see(a.numpy())
see(box.kept.numpy())
""",
    "gradients through the history of an argument": """
w = Tensor([-3.0]).requires_grad_()
v = Tensor([6.0]).requires_grad_()
@TinyJit
def f(x):
    (x * w).sum().backward()
f(w)
f(w + 1)
f(v)
f(v)
f(w + 1)
see(w.grad.numpy())
see(v.grad.numpy())
""",
    "a list of numbers": """
log = []
@TinyJit
def f(x):
    log.append(1.0)
    return x
f(Tensor([1.0]))
f(Tensor([2.0]))
f(Tensor([3.0]))
see(len(log))
""",
    "a dict that grows": """
seen = {}
@TinyJit
def f(x):
    seen[len(seen)] = x * 2
    return x
f(Tensor([1.0]))
f(Tensor([2.0]))
f(Tensor([3.0]))
see(len(seen))
""",
    "a set that grows": """
seen = set()
@TinyJit
def f(x):
    seen.add(len(seen))
    return x
f(Tensor([1.0]))
f(Tensor([2.0]))
f(Tensor([3.0]))
see(len(seen))
""",
    "a weight that is frozen": """
w, b = Tensor([1.0]).requires_grad_(), Tensor([3.0]).requires_grad_()
@TinyJit
def f(x):
    (w * x + b).sum().backward()
    for p in [w, b]:
        if p.requires_grad:
            p.assign(p.detach() - p.grad)
            p.grad = None
    return w + b
one = Tensor([1.0]).realize()
f(one)
f(one)
f(one)
w.requires_grad = False
f(one)
see(w.numpy())
""",
}
EXPORTS = {
    "a slice with a step that needs padding": """
t = Tensor([[3], [6], [7], [2], [5]]).realize()
k = t.permute(1, 0)[:, 1::3]
n = np.from_dlpack(k)
n[...] += 4
see(t.numpy())
see(k.numpy())
t[4] = 9
see(t.numpy())
see(n)
""",
    "a slice with a step that selects one element": """
x = Tensor([[7, 4], [2, 1]])
array = np.from_dlpack(x[:1][::-3])
array += 1
see(x.numpy())
""",
    "a write of another tensor is not seen": """
a = Tensor([1.0, 2.0]).realize()
x = a.contiguous().realize()
array = np.from_dlpack(x)
a[0] = 9
settle(globals())
see(array)
""",
    "a write through the array is seen": """
a = Tensor([1.0, 2.0]).realize()
x = (a + 0).realize()
array = np.from_dlpack(x)
x.assign(Tensor([5.0, 6.0]))
settle(globals())
see(array)
array[1] = 7
see(x.numpy())
see(a.numpy())
""",
    "an equal value of exported memory": """
x = Tensor([1.0, 2.0]).realize()
array = np.from_dlpack(x)
y = x + 0
settle(globals())
array[0] = 5
see(y.numpy())
""",
    "an equal value of foreign memory": """
array = np.array([1.0, 2.0], dtype=np.float32)
x = Tensor.from_dlpack(array)
y = x.contiguous()
settle(globals())
array[0] = 5
see(y.numpy())
""",
    "a view in memory of its own": """
x = Tensor([1.0, 2.0, 3.0])
array = np.asarray(x, copy=False)
y = x[::2]
y.realize()
settle(globals())
array[0] = 5
see(y.numpy())
""",
}
THREADS = {
    "first calls": """
w = Tensor([0]).realize()
one = Tensor([1]).realize()
@TinyJit
def f(x):
    w.assign(w + x)
    pause()
    w.assign(w + x)
    return w + 0
at_once(lambda: f(one), lambda: f(one))
at_once(lambda: f(one), lambda: f(one))
at_once(lambda: f(one), lambda: f(one))
see(w.numpy())
""",
}
LAZY_ARGUMENTS = {
    "a write that waits while a function that returned its target is captured": """
t = Tensor([[3, 9], [5, 9]])
@TinyJit
def f(x):
    return x
r = f(t)
r.assign(r * 2)
s = f(Tensor([[6, 0], [-3, 4]]))
u = f(s)
see(r.numpy())
see(t.numpy())
see(u.numpy())
""",
    "a view of a result, then an equal value of that, then the view": """
t = Tensor([[7, -4], [0, 8], [0, 1]]).realize()
@TinyJit
def f(x):
    x += 1
    return x
k = f(t[1:2])
m = f(k)
y = m * 1
n = f(y)
f(k)
see(k.numpy())
see(t.numpy())
see(n.numpy())
n = f(y)
n = f(m)
see(t.numpy())
see(y.numpy())
""",
    "a write that the captured call realizes, then its result": """
x = Tensor([1, -1]).realize()
t = Tensor([3, 4]).realize()
P = {"w": t}
@TinyJit
def f(x):
    return (P["w"] + 0)
f(x)
f(x)
@TinyJit
def g(x):
    a = x + x
    x += 1
    return a, a
r = g(t.flip(0))
k = f(Tensor([9, 0]).realize())
m = ((--k).contiguous() + 0)
r = f(k)
see(r.numpy())
see(m.numpy())
see(t.numpy())
""",
    "an argument in the memory of a leaf that the function writes": """
t = Tensor([1.0, 2.0]).requires_grad_()
@TinyJit
def f(x):
    g = (x * t).sum().gradient(t)[0]
    t.assign(t.detach() + g)
    return g.contiguous()
for number in range(3):
    see(f(t.contiguous_backward()).numpy())
""",
    "an equal value of a pending write": """
@TinyJit
def f(x):
    return x * 2
@TinyJit
def g(x):
    return x * 3
x = Tensor([1, 2]).realize()
f(x)
r = f(x)
r.assign(Tensor([5, 6]))
see(g(r.detach().contiguous()).numpy())
""",
    "an equal value of a lazy copy is written": """
@TinyJit
def f(x):
    x[1:2].assign(x[1:2] + 2)
    return x + 1
x = Tensor([1, 2]).realize()
k = x.clone()
f(Tensor([1, 2]).realize())
f(Tensor([1, 2]).realize())
f(k.contiguous())
see(k.numpy())
""",
}
STORED_VIEWS = {
    "a value is assigned what it is another order of": """
t = Tensor([[0, 1, 2], [3, 4, 5], [6, 7, 8]]).realize()
x = Tensor.zeros(3, 3, dtype=dtypes.int)
x.assign(t.flip(0))
x.assign(t)
see(x.numpy())
y = Tensor.zeros(3, 3, dtype=dtypes.int)
y.assign(t.permute(1, 0))
y.assign(t)
see(y.numpy())
see(t.numpy())
""",
    "the detached new content of memory that another value has": """
t = Tensor([1, 2])
x = t + 0
x.realize()
x.assign(x * 2)
y = x.detach().contiguous().realize()
see(t.numpy())
see(y.numpy())
x += 1
see(y.numpy())
see(x.numpy())
""",
    "contiguous_backward of what is stored": """
x = Tensor([[2.0, 3.0], [4.0, 5.0]]).realize()
for number in range(4):
    other = (x * 0 + 9).contiguous().realize()
    del other
    y = x.contiguous_backward().contiguous().contiguous_backward()
    see(y.numpy())
""",
    "a value and a view of it that one kernel stores": """
a = Tensor.zeros(40).contiguous().realize()
b = a.contiguous().detach()
c = b.unsqueeze(1)
a.assign(Tensor.ones(40))
c += 1
Tensor.realize(a, c)
c += 1
see(b.numpy())
""",
    "a sharded value and a view of it that one kernel stores": """
a = Tensor.zeros(80, device=L).contiguous().realize()
b = a.contiguous().detach()
c = b.unsqueeze(1)
a.assign(Tensor.ones(80, device=L))
c += 1
Tensor.realize(a, c)
c += 1
see(b.numpy())
""",
    "a slice written through a flip of all memory": """
t1 = Tensor.arange(2).reshape(1, 2).expand(3, 2).realize()
t2 = t1.detach().contiguous()
t2.flip(0).assign(t2)
t2[2] = 7
see(t1.numpy())
see(t2.numpy())
""",
    "contiguous_backward of a pending write": """
t1 = Tensor([[3, 4], [0, 2]]).realize()
t2 = t1.clone().contiguous_backward().contiguous()
see(t2.numpy())
""",
    "a captured result of contiguous_backward": """
t1 = Tensor([8]).realize()
@TinyJit
def f(x):
    return (x.contiguous() + 0).contiguous_backward()
r1 = f(t1.detach() * 1)
r2 = f(r1)
see(r2.numpy())
""",
}
KINDS = {
    "stored views": STORED_VIEWS,
    "lazy arguments": LAZY_ARGUMENTS,
    "captured writes": CAPTURED_WRITES,
    "shared arguments": SHARED_ARGUMENTS,
    "equal values": EQUAL_VALUES,
    "interrupts": INTERRUPTS,
    "results": RESULTS,
    "effects": EFFECTS,
    "exports": EXPORTS,
    "threads": THREADS,
}
# kinds of programs that may be refused instead
REFUSABLE = {"results", "effects", "threads"}


def cases() -> Iterator[Any]:
    one_process = only_one_process("arrays, Ctrl-C and threads are of one")
    on_the_host = pytest.mark.skipif(
        not Device[DEVICE].allocator.addressable, reason="arrays are in memory of the host"
    )
    for kind, programs in KINDS.items():
        is_local = kind in {"exports", "interrupts", "threads"}
        for name, text in programs.items():
            marks = [one_process] if is_local else []
            if kind == "exports":
                marks.append(on_the_host)
            yield pytest.param(kind, text.strip(), marks=marks, id=f"{kind}: {name}")


@pytest.mark.parametrize("kind, text", [*cases()])
def test_programs_give_what_the_reference_gives(kind: str, text: str) -> None:
    check = compare if kind in REFUSABLE else compare_strictly
    finding = check(Program.of(text, L=TWO))
    assert finding is None, str(finding)
