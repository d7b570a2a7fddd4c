/**
 * Models by name. The library's registry knows where their files are, and takes the variant that fits the platform: MLX where
 * that is built in, else what the CPU or Vulkan runs. A backend can be named to have its own variant.
 */

import type { LLMModel } from "./types.js";

const named = (modelPath: string) => {
  const model: LLMModel = { modelPath };
  return { DEFAULT: model, CPU: { ...model, backend: "cpu" }, MLX: { ...model, backend: "mlx" }, VULKAN: { ...model, backend: "vulkan" } };
};

export const models = {
  llm: {
    SMOLLM2_135M: named("smollm2-135m"),
    GEMMA3_270M: named("gemma3-270m"),
    QWEN2_5_CODER_0_5B: named("qwen2.5-coder-0.5b"),
    QWEN2_5_CODER_1_5B: named("qwen2.5-coder-1.5b"),
    GEMMA4_E2B: named("gemma4_e2b"),
  },
} as const;
