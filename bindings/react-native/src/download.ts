/** Files at URLs, brought here by what the app has chosen for it; paths and names are left as they are. */

import { PteronError } from "./error.js";
import { settings } from "./settings.js";

export type DownloadOptions = {
  readonly onProgress?: (progress: number) => void;
  readonly signal?: AbortSignal;
  readonly forceDownload?: boolean;
};

const isUrl = (value: unknown): value is string => typeof value === "string" && /^https?:\/\//.test(value);

/** Every URL inside a value. */
function urlsOf(value: unknown): string[] {
  if (isUrl(value)) return [value];
  if (value === null || typeof value !== "object") return [];
  return Object.values(value).flatMap(urlsOf);
}

function replaced<T>(value: T, paths: ReadonlyMap<string, string>): T {
  if (isUrl(value)) return (paths.get(value) ?? value) as T;
  if (Array.isArray(value)) return value.map((inner) => replaced(inner, paths)) as T;
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, replaced(inner, paths)])) as T;
}

/** The same value with every URL replaced by the path of its file. */
export async function download<T>(config: T, options: DownloadOptions = {}): Promise<T> {
  const urls = [...new Set(urlsOf(config))];
  if (!urls.length) return config;
  const { fetcher } = settings();
  if (!fetcher) {
    const reason = `${urls[0]}: nothing fetches URLs here; give configure() a fetcher, or name a model that the library knows`;
    throw new PteronError({ kind: "Fetch", reason });
  }
  const { onProgress, signal = new AbortController().signal, forceDownload = false } = options;
  const parts = new Map(urls.map((url) => [url, 0]));
  const paths = new Map<string, string>();
  const fetched = urls.map(async (url) => {
    const told = (progress: number) => {
      parts.set(url, progress);
      onProgress?.([...parts.values()].reduce((sum, part) => sum + part, 0) / parts.size);
    };
    paths.set(url, await fetcher(url, { onProgress: told, signal, forceDownload }));
    told(1);
  });
  try {
    await Promise.all(fetched);
  } catch (error) {
    if (signal.aborted) throw new PteronError({ kind: "Cancelled", reason: "cancelled" });
    throw error instanceof PteronError ? error : new PteronError({ kind: "Fetch", reason: String(error) });
  }
  return replaced(config, paths);
}
