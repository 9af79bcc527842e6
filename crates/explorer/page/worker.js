// Runs the model on a thread of its own. The worker takes {wasm} (compressed) once, then {id, batches}: lists of
// questions. It answers each batch with {id, index, answers}. A newer id ends the work on an older one. It reports
// an error as {failure}.

import { modelOf } from "./model.js";

let model = null;
let newest = 0;

// One turn of the event loop, so that a newer request can arrive. A timer would wait for 4 ms.
const { port1, port2 } = new MessageChannel();
const turn = () =>
  new Promise((resolve) => {
    port1.onmessage = resolve;
    port2.postMessage(null);
  });

async function work(id, batches) {
  for (const [index, batch] of batches.entries()) {
    const answers = batch.map((job) => model.ask(job));
    self.postMessage({ id, index, answers });
    await turn();
    if (id !== newest) return;
  }
}

async function start(wasm) {
  const plain = new Blob([wasm]).stream().pipeThrough(new DecompressionStream("gzip"));
  const { instance } = await WebAssembly.instantiate(await new Response(plain).arrayBuffer());
  model = modelOf(instance.exports);
  self.postMessage({ ready: true });
}

self.onmessage = async ({ data }) => {
  newest = data.id ?? newest;
  try {
    await (data.wasm ? start(data.wasm) : work(data.id, data.batches));
  } catch (error) {
    self.postMessage({ failure: String(error) });
  }
};
