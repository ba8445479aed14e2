"""CUDA memory snapshots as torch writes them, made without a GPU: a small allocator with segments, splits and holes.

`Made` is one device; `snapshot(*devices)` is the file's content. Forms: `old` (2.1: no user_metadata, no pool_id),
`new` (2.13: pool_id, forward_frames).
"""

import gzip
import pickle

MIB = 1 << 20
GRAIN = 512
TORCH = "/venv/lib/python3.12/site-packages/torch"
CALL = (f"{TORCH}/nn/modules/module.py", 1790, "_call_impl")
MAIN = ("/home/me/train.py", 90, "<module>")


def forward(line, name="forward", file="/home/me/model.py"):
    return [(file, line, name), CALL, ("/home/me/train.py", 40, "step"), MAIN]


def optimizer(line=76):
    return [(f"{TORCH}/optim/adamw.py", line, "_init_group"), (f"{TORCH}/optim/optimizer.py", 533, "wrapper"),
            ("/home/me/train.py", 44, "step"), MAIN]  # fmt: skip


def script(line, name="step", file="/home/me/train.py"):
    return [(file, line, name), MAIN]


def model_init(line=12):
    return [("/home/me/model.py", line, "__init__"), MAIN]


def native(*names):
    """C++ frames as gather_with_cpp leaves them, outside of all others."""
    return [("??", 0, "torch::unwind::unwind()"), ("memory_snapshot.cpp", 0, "torch::cuda::gather_with_cpp()"),
            ("CUDACachingAllocator.cpp", 0, "c10::cuda::CUDACachingAllocator::Native::malloc(void**)"),
            *(("??", 0, name) for name in names)]  # fmt: skip


def backward(node="MmBackward0"):
    return native(
        f"torch::autograd::generated::{node}::apply(std::vector&&)",
        "torch::autograd::Engine::evaluate_function(std::shared_ptr&)",
        "torch::autograd::Engine::thread_main(std::shared_ptr const&)",
    )


def gradient():
    return native(
        "torch::autograd::AccumulateGrad::apply(std::vector&&)",
        "torch::autograd::Engine::evaluate_function(std::shared_ptr&)",
    )


class Made:
    """One device's allocator and its trace. `capacity` is what the device has; beyond it `alloc` gives None: an OOM."""

    def __init__(self, device=0, capacity=None, form="new", expandable=False, most_events=None, tick=5):
        self.device, self.capacity, self.form = device, capacity, form
        self.expandable, self.most_events, self.tick = expandable, most_events, tick
        self.events = []
        self.segments = {}  # address -> [size, stream, small, pool, expandable]
        self.holes = {}  # address -> (size, segment)
        self.blocks = {}  # address -> [rounded, requested, frames, state, segment]
        self.top = 0x7F0000000000
        self.now = 1_700_000_000_000_000
        self.recording = True
        self._frames = {}

    def frames(self, stack):
        return [self._frames.setdefault(f, {"name": f[2], "filename": f[0], "line": f[1]}) for f in stack]

    def record(self, action, size, frames, stream=0, pool=(0, 0), **more):
        self.now += self.tick
        if not self.recording:
            return
        event = {"action": action, **more, "size": size, "stream": stream, "time_us": self.now}
        if self.form == "new":
            event |= {"compile_context": "N/A", "user_metadata": "", "pool_id": pool, "forward_frames": []}
        event["frames"] = frames
        self.events.append(event)
        if self.most_events and len(self.events) > self.most_events:
            del self.events[0]

    @property
    def reserved(self):
        return sum(s[0] for s in self.segments.values())

    def alloc(self, size, stack=(), stream=0, pool=(0, 0), metadata=""):
        frames = self.frames(stack)
        rounded = -(-size // GRAIN) * GRAIN
        small = size <= MIB
        fits = [
            (hole, at) for at, (hole, seg) in self.holes.items()
            if hole >= rounded and self.segments[seg][1:4] == [stream, small, pool]
        ]  # fmt: skip
        if fits:
            hole, at = min(fits)
            segment = self.holes.pop(at)[1]
        else:
            wanted = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            if self.capacity and self.reserved + wanted > self.capacity:
                self.record("oom", size, frames, stream, pool, device_free=self.capacity - self.reserved)
                return None
            at = segment = self.top
            self.top += wanted + (0 if self.expandable else 2 * MIB)
            hole = wanted
            self.segments[at] = [wanted, stream, small, pool, self.expandable]
            self.record("segment_map" if self.expandable else "segment_alloc", wanted, frames, stream, pool, addr=at)
        if hole > rounded and (small or hole - rounded > MIB):
            self.holes[at + rounded] = (hole - rounded, segment)
        else:
            rounded = hole
        self.blocks[at] = [rounded, size, frames if self.recording else [], "active_allocated", segment]
        self.record("alloc", size, frames, stream, pool, addr=at)
        if metadata and self.events:
            self.events[-1]["user_metadata"] = metadata
        return at

    def free(self, at, stack=(), wait=0):
        """`wait` is events between the request and the completion, as record_stream makes them."""
        size = self.blocks[at][1]
        self.record("free_requested", size, self.frames(stack), addr=at)
        if wait:
            self.blocks[at][3] = "active_pending_free"
        else:
            self.complete(at, stack)

    def complete(self, at, stack=()):
        rounded, size, _, _, segment = self.blocks.pop(at)
        self.record("free_completed", size, self.frames(stack), addr=at)
        self._hole(at, rounded, segment)

    def _hole(self, at, size, segment):
        if at + size in self.holes and self.holes[at + size][1] == segment:
            size += self.holes.pop(at + size)[0]
        before = next((a for a, (s, seg) in self.holes.items() if a + s == at and seg == segment), None)
        if before is not None:
            size += self.holes.pop(before)[0]
            at = before
        self.holes[at] = (size, segment)

    def release(self):
        """empty_cache: whole free segments go back."""
        for at, (size, segment) in list(self.holes.items()):
            if at == segment and size == self.segments[segment][0]:
                del self.holes[at]
                _, stream, _, pool, _ = self.segments.pop(segment)
                self.record("segment_unmap" if self.expandable else "segment_free", size, [], stream, pool, addr=at)

    def plain_segments(self):
        out = []
        for at, (size, stream, small, pool, expandable) in sorted(self.segments.items()):
            blocks = [
                {"address": a, "size": b[0], "requested_size": b[1], "state": b[3], "frames": b[2]}
                for a, b in self.blocks.items() if b[4] == at
            ] + [
                {"address": a, "size": s, "requested_size": 0, "state": "inactive", "frames": []}
                for a, (s, seg) in self.holes.items() if seg == at
            ]  # fmt: skip
            blocks.sort(key=lambda b: b["address"])
            active = sum(b["size"] for b in blocks if b["state"] != "inactive")
            segment = {
                "device": self.device, "address": at, "total_size": size, "allocated_size": active,
                "active_size": active, "requested_size": active, "stream": stream,
                "segment_type": "small" if small else "large", "segment_pool_id": pool,
                "is_expandable": expandable, "frames": [], "blocks": blocks,
            }  # fmt: skip
            if self.form == "old":
                del segment["requested_size"], segment["segment_pool_id"]
            out.append(segment)
        return out


def snapshot(*devices, annotations=()):
    traces = [[] for _ in range(max((d.device for d in devices), default=0) + 1)]
    for device in devices:
        traces[device.device] = list(device.events)
    made = {"segments": [s for d in devices for s in d.plain_segments()], "device_traces": traces}
    if devices and devices[0].form == "new":
        made |= {"allocator_settings": {"expandable_segments": devices[0].expandable},
                 "external_annotations": list(annotations)}  # fmt: skip
    return made


def write(path, *devices, packed=False, annotations=()):
    data = pickle.dumps(snapshot(*devices, annotations=annotations), 4)
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    return path


def train(made, steps, layers=4, each=None, activation=4 * MIB, weight=2 * MIB):
    """A usual training: model, then steps of forward, backward and optimizer. `each(step)` runs inside the forward."""
    weights = [made.alloc(weight, model_init(12 + n)) for n in range(layers)]
    state = []
    for step in range(steps):
        saved = []
        for n in range(layers):
            temporary = made.alloc(activation // 2, forward(30))
            saved.append(made.alloc(activation, forward(31 + n)))
            made.free(temporary)
        if each is not None:
            each(step)
        grads = []
        for at in reversed(saved):
            through = made.alloc(activation, backward())
            grads.append(made.alloc(weight, gradient()))
            made.free(at)
            made.free(through)
        for _ in weights:
            if step == 0:
                state += [made.alloc(weight, optimizer()), made.alloc(weight, optimizer(77))]
            made.free(made.alloc(weight, optimizer(300)))
        for at in grads:
            made.free(at, optimizer(400))
    return weights, state
