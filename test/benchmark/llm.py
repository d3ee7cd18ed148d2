"""Language models: SmolLM2-135M in Q4_1, 98 MB.

`python -m test.benchmark.llm` prints tokens a second, what memory bandwidth allows, seconds to the
first token of a process with and without cached kernels, and memory, next to llama.cpp if the
package llama-cpp-python is installed. Rounds of one and two devices alternate, so that other load
on the machine affects both.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from test.benchmark.measure import Benchmark, jitted_ms
from tinygrad import Tensor, TinyJit
from tinygrad.apps.language.files.catalogue import CATALOGUE
from tinygrad.apps.language.generation.kv_cache import KVCache
from tinygrad.apps.language.model.transformer import Transformer
from tinygrad.apps.language.model.weights import Matrix
from tinygrad.nn.state.ggml import FORMATS, BlockFormat
from tinygrad.nn.state.gguf import gguf_load_metadata

PROMPT = [number * 7919 % 49000 for number in range(512)]
CONTEXT = 1024
STEPS = 24
ROUNDS = 5
DEVICES = {1: None, 2: ("CPU:0", "CPU:1")}
MEASURED_BYTES = 1 << 29

# a separate process, which prints the seconds since its start and its memory in bytes
FIRST_TOKEN = """
import json, time
from tinygrad import GlobalCounters
from tinygrad.apps.language.files.catalogue import CATALOGUE
from tinygrad.apps.language.model.transformer import Transformer
model, _ = Transformer.from_gguf(CATALOGUE["smollm2:135m"].path(), max_context=512)
generated = model.generate([1, 504, 3575, 282, 4649, 314])
next(generated)
status = dict(line.split(":") for line in open("/proc/self/status"))
print(json.dumps([time.time(), GlobalCounters.mem_used, int(status["RssAnon"].split()[0]) * 1024]))
"""


@functools.cache
def model_on(count: int) -> Transformer:
    """The model on this number of devices, its steps captured."""
    model, _ = Transformer.from_gguf(
        CATALOGUE["smollm2:135m"].path(), max_context=CONTEXT, devices=DEVICES[count]
    )
    cache = model.new_cache()
    model.prefill(PROMPT[:200], cache)
    for _ in range(3):
        model.decode([1], [cache])
    return model


def seconds(function: Callable[[], Tensor]) -> float:
    """The seconds until the result of a function is on the host."""
    start = time.perf_counter()
    function().numpy()
    return time.perf_counter() - start


def prefill_s(count: int) -> float:
    """Seconds for a prompt of 512 tokens."""
    model = model_on(count)
    cache = model.new_cache()
    return seconds(lambda: model.prefill(PROMPT, cache))


def decode_s(count: int, batch: int = 1) -> float:
    """Median seconds of a decoding step of several sequences, after 64 tokens each."""
    model = model_on(count)
    caches: list[KVCache] = [model.new_cache() for _ in range(batch)]
    for cache in caches:
        model.prefill(PROMPT[:64], cache)
    tokens = [1] * batch
    for _ in range(2):
        model.decode(tokens, caches)
    return statistics.median(seconds(lambda: model.decode(tokens, caches)) for _ in range(STEPS))


def first_token(folder: str) -> tuple[float, int, int]:
    """Seconds from the start of a process to its first token, and its memory in bytes."""
    start = time.time()
    found = subprocess.run(
        [sys.executable, "-c", FIRST_TOKEN],
        check=True,
        capture_output=True,
        env=os.environ | {"CACHEDIR": folder},
    )
    end, in_use, anonymous = json.loads(found.stdout)
    return end - start, in_use, anonymous


def starts() -> tuple[float, float]:
    """Seconds to the first token with an empty cache of kernels, and the median with a full one."""
    with tempfile.TemporaryDirectory() as folder:
        # the model itself is not downloaded again
        CATALOGUE["smollm2:135m"].path()
        link_model(folder)
        cold = first_token(folder)[0]
        return cold, statistics.median(first_token(folder)[0] for _ in range(ROUNDS))


def link_model(folder: str) -> None:
    """Links the downloaded wheels into another cache folder."""
    wheels = CATALOGUE["smollm2:135m"].path().parents[2]
    os.symlink(wheels, os.path.join(folder, wheels.name))


def bandwidth() -> float:
    """Memory bandwidth in bytes per second: the best of several sums."""
    data = Tensor.ones(MEASURED_BYTES // 4).contiguous().realize()
    total = TinyJit(lambda: data.sum().realize())
    for _ in range(3):
        total()
    return MEASURED_BYTES / min(seconds(total) for _ in range(ROUNDS))


def bytes_per_token() -> int:
    """The bytes of weights that a step reads: all layers, and the embedding as output layer."""
    _, _, entries = gguf_load_metadata(str(CATALOGUE["smollm2:135m"].path()))
    return sum(entry.nbytes for entry in entries.values())


# ---- llama.cpp ----


@functools.cache
def llama_cpp() -> Any:
    """The same model in llama.cpp, or None if it is not installed."""
    if importlib.util.find_spec("llama_cpp") is None:
        return None
    llama = importlib.import_module("llama_cpp").Llama
    path = str(CATALOGUE["smollm2:135m"].path())
    threads = len(os.sched_getaffinity(0))
    return llama(path, n_ctx=CONTEXT, n_threads=threads, n_threads_batch=threads, verbose=False)


def llama_prefill_s() -> float:
    """Seconds for the same prompt in llama.cpp."""
    model = llama_cpp()
    model.reset()
    start = time.perf_counter()
    model.eval(PROMPT)
    return time.perf_counter() - start


def llama_decode_s() -> float:
    """Median seconds of the same steps in llama.cpp."""
    model = llama_cpp()
    model.reset()
    model.eval(PROMPT[:64])
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        model.eval([1])
        times.append(time.perf_counter() - start)
    return statistics.median(times)


# ---- the table ----


def speeds() -> None:
    """Prints tokens per second: the best and the median of alternating rounds."""
    rows: dict[str, tuple[int, Callable[[], float]]] = {
        "prefill 512, 1 device": (512, lambda: prefill_s(1)),
        "prefill 512, 2 devices": (512, lambda: prefill_s(2)),
        "decode, 1 device": (1, lambda: decode_s(1)),
        "decode, 2 devices": (1, lambda: decode_s(2)),
        "decode 4 together, 1 device": (4, lambda: decode_s(1, 4)),
        "decode 8 together, 1 device": (8, lambda: decode_s(1, 8)),
    }
    if llama_cpp() is not None:
        rows["prefill 512, llama.cpp"] = (512, llama_prefill_s)
        rows["decode, llama.cpp"] = (1, llama_decode_s)
    times: dict[str, list[float]] = {name: [] for name in rows}
    for name in [*rows] * ROUNDS:
        times[name].append(rows[name][1]())
    print(f"{'tokens/s':32} {'median':>10} {'best':>10}")
    for name, (tokens, _) in rows.items():
        median, best = tokens / statistics.median(times[name]), tokens / min(times[name])
        print(f"{name:32} {median:10.1f} {best:10.1f}", flush=True)


def main() -> None:
    speeds()
    rate, read = bandwidth(), bytes_per_token()
    print(f"{'decode, bound by bandwidth':32} {rate / read:10.1f}", end="")
    print(f"   ({read / 1e6:.1f} MB a token at {rate / 1e9:.1f} GB/s)")
    cold, warm = starts()
    print(f"{'first token, empty cache':32} {cold:10.2f} s")
    print(f"{'first token, full cache':32} {warm:10.2f} s")
    size = CATALOGUE["smollm2:135m"].path().stat().st_size
    with tempfile.TemporaryDirectory() as folder:
        link_model(folder)
        _, in_use, anonymous = first_token(folder)
    print(f"file {size / 1e6:.1f} MB, mapped; buffers beside it {in_use / 1e6:.1f} MB with a cache")
    print(f"of 512 tokens, {(size + in_use) / size:.2f} of the file in all; the process has")
    print(f"{anonymous / 1e6:.1f} MB of its own, Python and the compiler included")


# ---- products with quantised matrices ----

# the feed-forward network of models of 4 and of 8 billion parameters
SHAPES = ((9728, 2560), (14336, 4096))
SMALL_SHAPE = (64, 512)
QUANTISED = ("Q4_0", "Q4_K", "Q6_K", "Q8_0")


def format_of(name: str) -> BlockFormat:
    """A block format by its name."""
    return next(x for x in FORMATS.values() if x.name == name)


def product_ms(name: str, shape: tuple[int, int], rows: int) -> float:
    """The product of vectors with a matrix of random bytes, whose scales are finite."""
    format, (height, width) = format_of(name), shape
    size = height, width // format.elements, format.nbytes
    content = np.random.default_rng(0).integers(0, 59, size, dtype=np.uint8)
    matrix = Matrix(Tensor(content).realize(), format)
    return jitted_ms(matrix, Tensor.rand(1, rows, width).realize())


def product(name: str, shape: tuple[int, int], rows: int) -> Benchmark:
    """A row of the table: bytes of one vector, operations of many."""
    height, width = shape
    nbytes = height * width // format_of(name).elements * format_of(name).nbytes
    return Benchmark(
        f"{name} {width} x {height}, {rows} rows",
        functools.partial(product_ms, name, shape, rows),
        work=None if rows == 1 else 2 * rows * height * width / 1e9,
        nbytes=nbytes if rows == 1 else None,
        small=functools.partial(product_ms, name, SMALL_SHAPE, rows),
    )


BENCHMARKS = [
    *(product(x, shape, rows) for x in QUANTISED for shape in SHAPES for rows in (1, 8, 64, 256)),
    Benchmark("llm prefill 512", lambda: prefill_s(1) * 1e3),
    Benchmark("llm prefill 512, 2 devices", lambda: prefill_s(2) * 1e3),
    Benchmark("llm decode", lambda: decode_s(1) * 1e3),
    Benchmark("llm decode, 2 devices", lambda: decode_s(2) * 1e3),
    Benchmark("llm start cold, first token", lambda: starts()[0] * 1e3),
    Benchmark("llm start warm, first token", lambda: starts()[1] * 1e3),
]

if __name__ == "__main__":
    main()
