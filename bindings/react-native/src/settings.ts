/** What an app chooses once: where models are kept, and how files at a URL are fetched. */

/** Brings a file at a URL to this machine; where it lies. The library fetches models by name itself. */
export type Fetcher = (
  url: string,
  options: { onProgress: (progress: number) => void; signal: AbortSignal; forceDownload: boolean },
) => Promise<string>;

export type Settings = {
  /** The folder that models by name are fetched to and conversions are kept in. */
  home?: string;
  fetcher?: Fetcher;
};

let chosen: Settings = {};

export function configure(settings: Settings): void {
  chosen = { ...chosen, ...settings };
}

export const settings = (): Readonly<Settings> => chosen;
