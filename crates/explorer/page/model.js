// The model: WebAssembly whose exports take and leave numbers (see src/exports.rs).

/** A model that asks by the `exports` of its WebAssembly. */
export function modelOf(exports) {
  const numbers = () => [...new Float64Array(exports.memory.buffer, exports.answer(), exports.answer_len())];
  const fault = () => {
    const text = new Uint8Array(exports.memory.buffer, exports.fault_text(), exports.fault_text_len());
    return { input: exports.fault_input(), text: new TextDecoder().decode(text) };
  };
  return {
    /** Calls the export `call` about `question`: its numbers, or a fault. */
    ask({ call, question, args = [] }) {
      exports.set_question(...question);
      return exports[call](...args) ? { numbers: numbers() } : { fault: fault() };
    },
  };
}
