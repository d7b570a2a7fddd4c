/** The hooks of react-native-executorch 0.10 for language models, over Pteron: an app changes its import. */

import Installer from "./NativePteron.js";

// The functions are there before anything of this package is called. Elsewhere than in an app there is nothing to install.
Installer?.install();

export { PteronError, isRnExecuTorchError, type ErrorKind, type RnExecuTorchErrorCode } from "./error.js";
export { download, type DownloadOptions } from "./download.js";
export { useLLMChatSession, useModel, useResourceDownload } from "./hooks.js";
export { models } from "./models.js";
export { useNative, type NativePteron } from "./native.js";
export { createLLMChatSession, type Opening } from "./session.js";
export { configure, type Fetcher, type Settings } from "./settings.js";
export type * from "./types.js";
