// A worker that answers the newest request only.

/** Starts a worker of the script `source` with the compressed model `wasm`. `onFailure` gets the text of an error. */
export function startEngine(source, wasm, onFailure) {
  const worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  let current = { id: 0, end() {} };
  const ready = new Promise((resolve) => {
    worker.onmessage = ({ data }) => {
      if (data.failure) onFailure(data.failure);
      else if (data.ready) resolve();
      else if (data.id === current.id) current.take(data.answers, data.index);
    };
  });
  worker.onerror = (event) => onFailure(event.message || "the worker could not be started");
  worker.postMessage({ wasm });
  return {
    /** Asks `batches` of questions. `take(answers, index)` gets the answers to each batch. Resolves to true after
     * the last one, or to false if a newer request came before. */
    ask(batches, take) {
      const id = current.id + 1;
      current.end(false);
      return new Promise((resolve) => {
        current = {
          id,
          end: resolve,
          take(answers, index) {
            take(answers, index);
            if (index === batches.length - 1) resolve(true);
          },
        };
        ready.then(() => id === current.id && worker.postMessage({ id, batches }));
      });
    },
  };
}
