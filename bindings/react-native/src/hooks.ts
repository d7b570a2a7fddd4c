/** Hooks with what those of react-native-executorch give. */

import { useEffect, useMemo, useState } from "react";
import { download } from "./download.js";
import { isRnExecuTorchError } from "./error.js";
import { createLLMChatSession } from "./session.js";
import type { LLMChatSession, LLMChatSessionOptions, LLMModel, ResourceOptions } from "./types.js";

const errorOf = (thrown: unknown) => (thrown instanceof Error ? thrown : new Error(String(thrown)));

/** Brings the files of a configuration here; progress is in percent. */
export function useResourceDownload<T>(config: T | undefined, options?: ResourceOptions) {
  const { preventLoad = false, forceDownload = false } = options ?? {};
  const [resource, setResource] = useState<T>();
  const [downloadProgress, setDownloadProgress] = useState(0);
  const [downloadError, setDownloadError] = useState<Error>();
  // By value: an object that is written anew at each rendering is the same one.
  const key = useMemo(() => JSON.stringify(config), [config]);

  useEffect(() => {
    setResource(undefined);
    setDownloadProgress(0);
    setDownloadError(undefined);
    if (config === undefined || preventLoad) return;
    const controller = new AbortController();
    const { signal } = controller;
    const onProgress = (progress: number) => {
      if (!signal.aborted) setDownloadProgress(progress * 100);
    };
    download(config, { signal, forceDownload, onProgress }).then(
      (found) => {
        if (signal.aborted) return;
        setResource(() => found);
        setDownloadProgress(100);
      },
      (error) => {
        if (!signal.aborted && !isRnExecuTorchError(error, "DOWNLOAD_ABORTED")) setDownloadError(errorOf(error));
      },
    );
    return () => controller.abort();
  }, [key, preventLoad, forceDownload]);

  return { resource, downloadProgress, downloadError };
}

/** Makes something of a configuration, and disposes of it when that changes or the component goes. */
export function useModel<TConfig, TModel extends { dispose: () => unknown }>(
  createModel: (config: TConfig, signal: AbortSignal) => Promise<TModel>,
  config: TConfig | undefined,
) {
  const [model, setModel] = useState<TModel>();
  const [error, setError] = useState<Error>();
  const key = useMemo(() => JSON.stringify(config), [config]);

  useEffect(() => {
    setModel(undefined);
    setError(undefined);
    if (config === undefined) return;
    const controller = new AbortController();
    const { signal } = controller;
    let instance: TModel | undefined;
    createModel(config, signal).then(
      (made) => {
        if (signal.aborted) return void made.dispose();
        instance = made;
        setModel(() => made);
      },
      (failed) => {
        if (!signal.aborted) setError(errorOf(failed));
      },
    );
    return () => {
      controller.abort();
      // In mid-answer too: that is cancelled, and nothing is given back before it has ended.
      instance?.dispose();
    };
  }, [key]);

  return { model, error };
}

/** Loads a model and talks to it; all is given back when the component goes. */
export function useLLMChatSession(config: LLMModel, options?: LLMChatSessionOptions & ResourceOptions) {
  const files = useResourceDownload(config, options);
  const [opening, setOpening] = useState(0);
  const { model: session, error } = useModel<LLMModel, LLMChatSession>(
    (found, signal) =>
      createLLMChatSession(found, options, {
        signal,
        onProgress: (progress) => {
          if (!signal.aborted) setOpening(progress * 100);
        },
      }),
    files.resource,
  );
  // Models by name are fetched when they are opened.
  const downloadProgress = session ? 100 : opening > 0 ? opening : files.downloadProgress;
  return {
    isReady: session !== undefined,
    error: files.downloadError ?? error,
    downloadProgress,
    resource: files.resource,
    sendMessage: session?.sendMessage,
    getHistory: session?.getHistory,
    getKVCacheState: session?.getKVCacheState,
    stop: session?.stop,
    rewind: session?.rewind,
  };
}
