// What an app writes, for the checker of types alone.

import { Embedder, Model, Module, PteronError, Tensor, Transcriber, requirements, stored, type Answer } from "pteron-browser";

export async function app(file: File): Promise<Answer> {
  const needs = await requirements(file, { context: 512 });
  const model = await Model.open("/model.pte", { progress: ({ event }) => event !== "fetching", memoryLimit: needs.total });
  const chat = await model.chat({ system: "Be brief.", tools: [], whenFull: "stop" });
  for await (const piece of chat.stream("Why?")) console.log(piece.toUpperCase());
  try {
    await chat.rewind((await chat.turns()) - 1);
  } catch (error) {
    if (error instanceof PteronError && error.kind === "Busy") chat.stop();
  }
  const module = await Module.load(file);
  const [logits]: Tensor[] = await module.forward(new Tensor("i64", [1], BigInt64Array.of(5n)), 0);
  const vectors: Float32Array[] = await (await Embedder.open(file)).embed(["a", "b"]);
  const { text } = await (await Transcriber.open(file)).transcribe(vectors[0]!, { rate: logits!.shape[0] });
  const kept: number = (await stored()).reduce((sum, { bytes }) => sum + bytes, 0);
  // @ts-expect-error: there is no such dtype
  new Tensor("i65", [kept], new Uint8Array());
  return model.generate(text, { schema: { type: "boolean" }, listener: (piece) => piece !== "stop" });
}
