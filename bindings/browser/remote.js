// A worker with WebAssembly in it, and calls to it: each has a number, and its answers come back under that.

/** Why something could not be done. */
export class PteronError extends Error {
  constructor({ kind, reason, ...numbers }) {
    super(reason);
    this.name = "PteronError";
    this.kind = kind;
    Object.assign(this, numbers);
  }
}

const disposed = (what) => new PteronError({ kind: "Disposed", reason: `this ${what} was disposed of` });

/** What a worker holds: a model, an embedder, a transcriber or a module. */
export class Remote {
  #what;
  #worker;
  #calls = new Map();
  #number = 0;
  #gone = null;

  constructor(what) {
    this.#what = what;
    this.#worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: `pteron ${what}` });
    this.#worker.onmessage = ({ data }) => this.#heard(data);
    const broken = ({ message }) => this.#end({ kind: "Run", reason: message || "the worker could not be started" });
    this.#worker.onerror = broken;
    this.#worker.onmessageerror = broken;
  }

  #heard({ call, event, done, failed, fatal }) {
    const waiting = this.#calls.get(call);
    if (!waiting) return;
    if (event !== undefined) return waiting.tell(event);
    this.#calls.delete(call);
    if (failed === undefined) return waiting.resolve(done);
    waiting.reject(waiting.thrown ?? new PteronError(failed));
    if (fatal) this.#end(failed);
  }

  /** Nothing more is to be had of the worker; its memory goes back. */
  #end(failed) {
    this.#gone ??= failed;
    this.#worker.terminate();
    for (const { reject } of this.#calls.values()) reject(new PteronError(failed));
    this.#calls.clear();
  }

  /**
   * Calls what the worker knows by a name. `listener` is told of events on the way; what it throws or a `false` of its ends
   * the call there.
   */
  call(name, args, { listener, signal, transfer = [] } = {}) {
    if (this.#gone) return Promise.reject(new PteronError(this.#gone));
    if (signal?.aborted) return Promise.reject(new PteronError({ kind: "Cancelled", reason: "cancelled" }));
    const call = ++this.#number;
    const post = (message, moved) => this.#worker.postMessage({ call, ...message }, moved);
    return new Promise((resolve, reject) => {
      const waiting = {
        thrown: null,
        resolve: (done) => (waiting.thrown ? reject(waiting.thrown) : resolve(done)),
        reject,
        tell: (event) => {
          let goOn = !signal?.aborted && !waiting.thrown;
          try {
            goOn &&= listener?.(event) !== false;
          } catch (error) {
            const reason = `the listener failed: ${error}`;
            waiting.thrown = Object.assign(new PteronError({ kind: "Listener", reason }), { cause: error });
            goOn = false;
          }
          post({ goOn });
        },
      };
      this.#calls.set(call, waiting);
      signal?.addEventListener("abort", () => this.#calls.has(call) && post({ goOn: false }), { once: true });
      post({ name, args }, transfer);
    });
  }

  /** Ends what is under way, waits for that, and gives the memory back. */
  async dispose() {
    if (this.#gone) return;
    const ended = this.call("dispose", []);
    this.#gone = { kind: "Disposed", reason: disposed(this.#what).message };
    await ended.catch(() => {});
    this.#end(this.#gone);
  }
}
