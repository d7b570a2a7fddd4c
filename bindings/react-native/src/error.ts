/** Errors under the codes of react-native-executorch, with the library's own kind beside them. */

export type RnExecuTorchErrorCode =
  | "LOAD_FAILED"
  | "EXECUTION_FAILED"
  | "SCHEMA_MISMATCH"
  | "INVALID_ARGUMENT"
  | "INVALID_STATE"
  | "RESOURCE_DISPOSED"
  | "RESOURCE_BUSY"
  | "DOWNLOAD_FAILED"
  | "DOWNLOAD_ABORTED"
  | "UNKNOWN";

/** The library's kinds, which say more. */
export type ErrorKind =
  | "NotFound" | "NotEnoughMemory" | "Unsupported" | "Damaged" | "Cancelled" | "ContextFull" | "Invalid" | "Fetch" | "Storage"
  | "Run" | "Busy" | "Disposed" | "Listener";

const CODES: Record<ErrorKind, RnExecuTorchErrorCode> = {
  NotFound: "LOAD_FAILED",
  NotEnoughMemory: "LOAD_FAILED",
  Unsupported: "LOAD_FAILED",
  Damaged: "LOAD_FAILED",
  Cancelled: "DOWNLOAD_ABORTED",
  ContextFull: "INVALID_STATE",
  Invalid: "INVALID_ARGUMENT",
  Fetch: "DOWNLOAD_FAILED",
  Storage: "DOWNLOAD_FAILED",
  Run: "EXECUTION_FAILED",
  Busy: "RESOURCE_BUSY",
  Disposed: "RESOURCE_DISPOSED",
  Listener: "EXECUTION_FAILED",
};

export class PteronError extends Error {
  override readonly name = "RnExecuTorchError";
  readonly code: RnExecuTorchErrorCode;
  readonly kind: ErrorKind;
  /** Of `NotEnoughMemory`, in bytes. */
  readonly needed?: number;
  readonly limit?: number;

  constructor(details: { kind: ErrorKind; reason: string; needed?: number; limit?: number }) {
    super(details.reason);
    this.kind = details.kind;
    this.code = CODES[details.kind] ?? "UNKNOWN";
    if (details.needed !== undefined) this.needed = details.needed;
    if (details.limit !== undefined) this.limit = details.limit;
  }

  /** What the native side threw. */
  static of(thrown: unknown): PteronError {
    if (thrown instanceof PteronError) return thrown;
    const message = thrown instanceof Error ? thrown.message : String(thrown);
    try {
      const details = JSON.parse(message);
      if (details && typeof details.kind === "string") return new PteronError(details);
    } catch {
      // Words, not JSON.
    }
    return new PteronError({ kind: "Run", reason: message });
  }
}

/** Whether an error is one of this package's, and of a code where one is named. */
export function isRnExecuTorchError(error: unknown, code?: RnExecuTorchErrorCode): error is PteronError {
  return error instanceof PteronError && (code === undefined || error.code === code);
}
