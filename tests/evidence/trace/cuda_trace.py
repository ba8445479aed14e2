"""Traces of a GPU, built by hand in the form that kineto writes: no GPU is where these tests run.

The form (categories, keys, names of CUDA's calls and copies) is that of public traces of torch 2.x; see kineto's
output_json.cpp.
"""

PID, MAIN = 4242, 4242


class CudaTrace:
    """Builds `traceEvents`; times in us."""

    def __init__(self) -> None:
        self.events: list[dict] = []
        self._correlation = 100

    def host(self, category, name, begin, lasts, tid=MAIN, **args):
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": PID, "tid": tid, "ts": begin, "dur": lasts, "args": args}
        )

    def step(self, number, begin, lasts):
        self.host("user_annotation", f"ProfilerStep#{number}", begin, lasts)

    def frame(self, file, line, function, begin, lasts):
        self.host("python_function", f"{file}({line}): {function}", begin, lasts)

    def launch(self, name, begin, runs, lasts, *, category="kernel", call="cudaLaunchKernel", takes=4.0, stream=7,
               size=0):  # fmt: skip
        """A call of CUDA at `begin` whose kernel or copy runs at `runs`."""
        self._correlation += 1
        number = self._correlation
        self.host("cuda_runtime", call, begin, takes, correlation=number, cbid=211)
        args = {"device": 0, "context": 1, "stream": stream, "correlation": number, "External id": number}
        args |= {"bytes": size} if size else {}
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream, "ts": runs, "dur": lasts, "args": args}
        )
        self.events.append(
            {"ph": "s", "id": number, "pid": PID, "tid": MAIN, "ts": begin, "cat": "ac2g", "name": "ac2g"}
        )

    @property
    def text(self):
        import json

        head = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
            "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
            "traceEvents": self.events,
        }
        return json.dumps(head, indent=1)
